package inspect

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"slices"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/quote"
	"github.com/redlatch/redlatch/lock"
)

// scanned is how many keys one SCAN looks at, and how many locks are looked at
// together.
const scanned = 512

// Locks iterates over all locks whose names match the glob pattern, "" = all; see
// Client.Locks.
func (i *Inspector) Locks(ctx context.Context, pattern string) iter.Seq2[lock.Inspection, error] {
	if pattern == "" {
		pattern = "*"
	}
	match := luascript.Glob.Replace(i.cfg.Prefix) + pattern
	return func(yield func(lock.Inspection, error) bool) {
		nodes, err := i.scanNodes(ctx)
		if err != nil {
			yield(lock.Inspection{}, err)
			return
		}
		// A key may be seen twice: while the table grows, or its slot moves.
		seen := map[string]bool{}
		var long tooLong
		for _, n := range nodes {
			for cursor, more := uint64(0), true; more; more = cursor != 0 {
				PaceOf(ctx).rest(ctx)
				var found []lock.Inspection
				if found, cursor, err = i.batch(ctx, n, match, cursor, seen, &long); err != nil {
					yield(lock.Inspection{}, err)
					return
				}
				for _, in := range found {
					seen[in.Key] = true
					if !yield(in, nil) {
						return
					}
				}
			}
		}
		if long.count > 0 {
			yield(long.row(), nil)
		}
	}
}

// tooLong counts the names that no lock may have. Each would be sent to the server twelve times, and
// they may have megabytes.
type tooLong struct {
	count int
	first string // as it may be shown
	bytes int    // of the first
}

// leaveOut takes them out of keys.
func (l *tooLong) leaveOut(keys []string) []string {
	return slices.DeleteFunc(keys, func(key string) bool {
		if len(key) <= luascript.MaxKey {
			return false
		}
		if l.count++; l.count == 1 {
			l.first, l.bytes = quote.Text(key), len(key)
		}
		return true
	})
}

// row tells of them in one line.
func (l *tooLong) row() lock.Inspection {
	problem := fmt.Sprintf("skipped: its name has %d bytes, a lock's at most %d", l.bytes, luascript.MaxKey)
	if l.count > 1 {
		problem += fmt.Sprintf("; and %d more such names", l.count-1)
	}
	return odd(l.first, l.first, problem)
}

// odd is a row for what looks like a lock and can't be read.
func odd(name, key, problem string) lock.Inspection {
	return lock.Inspection{
		Name: name, Key: key, Kind: lock.KindUnknown, Problem: quote.Line(problem), Processes: -1,
		Holders: []lock.Holder{}, Queue: []lock.Waiter{},
	}
}

// batch asks for the next keys and looks at them. Nothing is under way while the caller's
// loop has its turn: it may close the Client.
func (i *Inspector) batch(ctx context.Context, n node, match string, cursor uint64, seen map[string]bool, long *tooLong) ([]lock.Inspection, uint64, error) {
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return nil, 0, err
	}
	defer done()
	entry, err := i.scan(ctx, n, match, cursor)
	if err != nil {
		return nil, 0, err
	}
	PaceOf(ctx).owe(scanned*perKey + time.Duration(len(entry.Elements))*perHash)
	keys, err := i.likely(ctx, n, fresh(long.leaveOut(entry.Elements), seen))
	if err != nil {
		return nil, 0, err
	}
	PaceOf(ctx).owe(time.Duration(len(keys)) * perLock)
	found, err := i.look(ctx, keys)
	return found, entry.Cursor, err
}

// fresh are the keys that may be locks and were not seen before.
func fresh(keys []string, seen map[string]bool) []string {
	slices.Sort(keys)
	return slices.DeleteFunc(slices.Compact(keys), func(key string) bool {
		return seen[key] || strings.HasPrefix(key, "redlatch_fair:")
	})
}

func (i *Inspector) scanNodes(ctx context.Context) ([]node, error) {
	ctx, done, err := i.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer done()
	nodes, err := i.masters(ctx)
	if err != nil {
		return nil, i.scanError(ctx, i.cfg.Addr, err)
	}
	return nodes, nil
}

func (i *Inspector) scan(ctx context.Context, n node, match string, cursor uint64) (rueidis.ScanEntry, error) {
	cmd := n.client.B().Scan().Cursor(cursor).Match(match).Count(scanned).Type("hash").Build()
	entry, err := await(ctx, i, nil, func() (rueidis.ScanEntry, error) { return n.client.Do(ctx, cmd).AsScanEntry() })
	if err != nil {
		return entry, i.scanError(ctx, n.addr, err)
	}
	return entry, nil
}

func (i *Inspector) scanError(ctx context.Context, addr string, err error) error {
	switch {
	case ctx.Err() != nil:
		return i.over(ctx, "", "scan", addr, errNoAnswer)
	case conn.IsPermanent(err):
		return &lock.ServerError{Op: "scan", Err: err}
	}
	return i.unavailable("", "scan", addr, err)
}

// likely keeps the hashes that may be locks, by two commands that cost next to nothing: a
// server may have millions that are none.
func (i *Inspector) likely(ctx context.Context, n node, keys []string) ([]string, error) {
	if len(keys) == 0 {
		return nil, nil
	}
	cmds := make([]rueidis.Completed, 0, 2*len(keys))
	for _, key := range keys {
		cmds = append(cmds, n.client.B().Hlen().Key(key).Build(), n.client.B().Hget().Key(key).Field("mode").Build())
	}
	res, err := await(ctx, i, nil, func() ([]rueidis.RedisResult, error) { return n.client.DoMulti(ctx, cmds...), nil })
	if err != nil {
		return nil, i.scanError(ctx, n.addr, err)
	}
	out := keys[:0:0]
	for k, key := range keys {
		fields, err := res[2*k].AsInt64()
		mode, merr := res[2*k+1].ToString()
		if err == nil && merr != nil && !rueidis.IsRedisNil(merr) {
			err = merr
		}
		switch {
		case err == nil && fields != 1 && mode != "read" && mode != "write": // application data
		case err == nil, moved(err): // moved: gone, or something else by now; or on another node
			out = append(out, key)
		default:
			return nil, i.scanError(ctx, n.addr, err)
		}
	}
	return out, nil
}

// moved reports whether a key is not what or where SCAN saw it.
func moved(err error) bool {
	var re *rueidis.RedisError
	if !errors.As(err, &re) {
		return false
	}
	word, _, _ := strings.Cut(re.Error(), " ")
	return word == "WRONGTYPE" || word == "MOVED" || word == "ASK" || word == "TRYAGAIN"
}

// look inspects the keys and returns those that are locks.
func (i *Inspector) look(ctx context.Context, keys []string) ([]lock.Inspection, error) {
	topo := i.conn.Topology()
	if topo.Cluster {
		keys = slices.DeleteFunc(keys, func(key string) bool { return !oneSlot(key) })
	}
	if len(keys) == 0 {
		return nil, nil
	}
	cmds := make([]conn.Command, len(keys))
	for n, key := range keys {
		cmds[n] = LookCommand(topo, key, few)
	}
	res, err := await(ctx, i, nil, func() ([]conn.Result, error) { return i.conn.RunMulti(ctx, cmds, nil), nil })
	if err != nil {
		return nil, i.over(ctx, "", "inspect", i.cfg.Addr, err)
	}
	var out []lock.Inspection
	for n, r := range res {
		if r.Err != nil { // one of many: a slot that moves, a script that is not known yet
			r.Reply, err = i.ask(ctx, keys[n], "inspect", cmds[n], conn.Ambiguous)
			if spoiled, ok := errors.AsType[*conn.SpoiledError](err); ok {
				out = append(out, odd(strings.TrimPrefix(keys[n], i.cfg.Prefix), keys[n], spoiled.Error()))
				continue
			}
			if err != nil {
				return nil, err
			}
		}
		in, err := ReadLook(r.Reply, strings.TrimPrefix(keys[n], i.cfg.Prefix), keys[n])
		if err != nil || in.Kind == lock.KindNone {
			continue // application data, or gone meanwhile
		}
		out = append(out, in)
	}
	i.clients.fill(ctx, i, out)
	return out, nil
}

// oneSlot reports whether a lock's look at this key stays in its slot.
func oneSlot(key string) bool {
	return luascript.Slot(luascript.Derive("x", key)) == luascript.Slot(key)
}
