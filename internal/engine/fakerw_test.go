package engine_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
)

// fakeRW runs the scripts of one read-write lock, as far as its own readers and writers see
// the difference, with the clock of the test's bubble. Links to it are slow and lossy.
type fakeRW struct {
	rough // its mu guards all below

	fields  map[string]time.Time // who holds it, a writer with ":write", and until when
	writers []waitingWriter
	readers map[string]time.Time
	turn    map[string]time.Time
	void    map[string]time.Time
	links   []*rwLink
}

type waitingWriter struct {
	field string
	us    int64
	ends  time.Time
}

func newFakeRW(seed uint64) *fakeRW {
	return &fakeRW{
		rough:   rough{rand: rand.New(rand.NewPCG(seed, 1))}, //nolint:gosec // a test
		fields:  map[string]time.Time{},
		readers: map[string]time.Time{}, turn: map[string]time.Time{}, void: map[string]time.Time{},
	}
}

// rwLink is one client's way to the server. It implements conn.Runner, pubsub.Dialer and
// pubsub.Link.
type rwLink struct {
	f        *fakeRW
	listener pubsub.Handler // guarded by f.mu
	down     chan error
}

func (f *fakeRW) link() *rwLink {
	l := &rwLink{f: f, down: make(chan error)}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.links = append(f.links, l)
	return l
}

func (l *rwLink) Topology() conn.Topology { return conn.Topology{} }

func (l *rwLink) Run(_ context.Context, cmd conn.Command) (conn.Reply, error) {
	f := l.f
	time.Sleep(f.lag())
	luck := f.luck()
	switch luck {
	case 0:
		f.note(cmd, "unsent")
		return conn.Reply{}, errUnsent
	case 1:
		f.note(cmd, "loading")
		return conn.Reply{}, conn.Refusal("LOADING Redis is loading the dataset in memory")
	case 2:
		f.note(cmd, "late")
		late := f.lag()
		go func() { // it runs after its caller was told
			time.Sleep(late)
			f.exec(cmd)
		}()
		return conn.Reply{}, errLost
	}
	r := f.exec(cmd)
	if luck == 3 {
		f.note(cmd, "lost")
		return conn.Reply{}, errLost
	}
	time.Sleep(f.lag())
	return r, nil
}

func (l *rwLink) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	return side(ctx, l.Run, cmds)
}

func (l *rwLink) Node(uint16) string { return "" }
func (l *rwLink) Moved(string)       {}
func (l *rwLink) Dial(_ string, h pubsub.Handler) (pubsub.Link, error) {
	l.f.mu.Lock()
	defer l.f.mu.Unlock()
	l.listener = h
	return l, nil
}

func (l *rwLink) Subscribe(_ context.Context, channels []string, _ bool) error {
	time.Sleep(l.f.lag())
	for _, ch := range channels {
		l.listener.Confirmed(ch)
	}
	return nil
}
func (l *rwLink) Unsubscribe(context.Context, []string, bool) error { return nil }
func (l *rwLink) Down() <-chan error                                { return l.down }
func (l *rwLink) Close()                                            {}

// publish sends a message for all, or for the one whose channel it is. mu is held.
func (f *fakeRW) publish(ch, payload string) {
	for _, l := range f.links {
		if h := l.listener; h != nil {
			lag := time.Duration(f.rand.IntN(2000)) * time.Microsecond
			go func() {
				time.Sleep(lag)
				h.Message(ch, payload)
			}()
		}
	}
}

func (f *fakeRW) ended(now time.Time) {
	for _, all := range []map[string]time.Time{f.fields, f.void, f.readers, f.turn} {
		for field, ends := range all {
			if !now.Before(ends) {
				delete(all, field)
			}
		}
	}
	f.writers = slices.DeleteFunc(f.writers, func(w waitingWriter) bool { return !now.Before(w.ends) })
}

// writer is who holds the write lock, and the longest lease of anybody.
func (f *fakeRW) writer() (field string, last time.Time) {
	for x, ends := range f.fields {
		if strings.HasSuffix(x, ":write") {
			field = x
		}
		if ends.After(last) {
			last = ends
		}
	}
	return field, last
}

func (f *fakeRW) raise(field, lease string, now time.Time) {
	if ends := now.Add(ms(lease)); ends.After(f.fields[field]) {
		f.fields[field] = ends
	}
}

func (f *fakeRW) refusal(now time.Time) conn.Reply {
	w, last := f.writer()
	pttl := int64(-2)
	if !last.IsZero() {
		pttl = last.Sub(now).Milliseconds()
	}
	return conn.Reply{Vals: []conn.Value{
		{}, {Int: pttl}, {Str: strings.TrimSuffix(w, ":write"), IsStr: true}, {IsStr: true}, {Int: max(1, pttl)}, {Int: now.UnixMicro()},
	}}
}

func (f *fakeRW) read(arg []string, now time.Time) conn.Reply {
	field, entry := arg[0], kind.EntryOf(arg[0])
	if _, gone := f.void[field]; gone {
		return conn.Reply{Code: -1}
	}
	enter := func(code int64, room int64) conn.Reply {
		f.raise(field, arg[1], now)
		delete(f.readers, entry)
		delete(f.turn, entry)
		if code == 4 {
			return conn.Reply{Code: 4, Vals: []conn.Value{{Int: 4}, {}, {Int: room}}}
		}
		return code1(code)
	}
	refuse := func() conn.Reply {
		if _, in := f.turn[entry]; in {
			f.turn[entry] = now.Add(ms(arg[5]))
		} else if arg[5] != "0" {
			f.readers[entry] = now.Add(ms(arg[5]))
		}
		return f.refusal(now)
	}
	if _, mine := f.fields[field]; mine {
		return enter(2, 0)
	}
	if w, _ := f.writer(); w != "" {
		if arg[3] == w {
			return enter(1, 0)
		}
		return refuse()
	}
	if arg[4] != "1" && len(f.writers) > 0 {
		if _, in := f.turn[entry]; in {
			return enter(3, 0)
		}
		came := now.UnixMicro()
		if arg[2] != "" {
			came = int64(ms(arg[2]) / time.Millisecond)
		}
		if first := f.writers[0].us; first >= came {
			return enter(4, first-came)
		}
		return refuse()
	}
	return enter(1, 0)
}

func (f *fakeRW) write(arg []string, now time.Time) conn.Reply {
	own, field, entry := arg[0], arg[0]+":write", kind.EntryOf(arg[0])
	if _, gone := f.void[own]; gone {
		return conn.Reply{Code: -1}
	}
	if _, mine := f.fields[field]; mine {
		f.raise(field, arg[1], now)
		return code1(2)
	}
	if len(f.fields)+len(f.turn) > 0 {
		if w := f.marked(entry); w != nil {
			w.ends = now.Add(ms(arg[2]))
		} else if arg[2] != "0" {
			f.writers = append(f.writers, waitingWriter{entry, now.UnixMicro(), now.Add(ms(arg[2]))})
		}
		return f.refusal(now)
	}
	f.unmark(entry)
	f.raise(field, arg[1], now)
	return code1(1)
}

// marked is a writer that waits, or nil.
func (f *fakeRW) marked(field string) *waitingWriter {
	for i := range f.writers {
		if f.writers[i].field == field {
			return &f.writers[i]
		}
	}
	return nil
}

// call calls the first writer if the lock is free and nobody's turn. mu is held.
func (f *fakeRW) call(key string) {
	if len(f.fields)+len(f.turn) > 0 || len(f.writers) == 0 {
		return
	}
	client, _, _ := strings.Cut(f.writers[0].field, ":")
	f.publish(luascript.CallChannel(key)+client+":write", strconv.FormatInt(f.writers[0].us, 10))
}

func (f *fakeRW) unmark(field string) {
	f.writers = slices.DeleteFunc(f.writers, func(w waitingWriter) bool { return w.field == field })
}

func (f *fakeRW) exec(cmd conn.Command) conn.Reply {
	f.mu.Lock()
	defer f.mu.Unlock()
	r := f.run(cmd)
	f.hist = append(f.hist, fmt.Sprintf("%v %s %v: %d %v", time.Now().UnixMicro(), cmd.Script.Name, cmd.Args, r.Code, r.Vals))
	return r
}

func (f *fakeRW) run(cmd conn.Command) conn.Reply {
	now, key, arg := time.Now(), cmd.Keys[0], cmd.Args
	f.ended(now)
	switch cmd.Script {
	case luascript.RWRead:
		return f.read(arg, now)
	case luascript.RWWrite:
		return f.write(arg, now)
	case luascript.RWReenter, luascript.Release:
		if _, held := f.fields[arg[0]]; !held {
			return code1(0)
		}
		if cmd.Script == luascript.RWReenter {
			f.raise(arg[0], arg[2], now)
		}
		return code1(1)
	case luascript.RWReadRelease:
		if arg[3] != "0" {
			f.void[arg[0]] = now.Add(ms(arg[3]))
		}
		_, held := f.fields[arg[0]]
		delete(f.fields, arg[0])
		delete(f.readers, kind.EntryOf(arg[0]))
		_, inTurn := f.turn[kind.EntryOf(arg[0])]
		delete(f.turn, kind.EntryOf(arg[0]))
		if held && len(f.fields) == 0 || inTurn && len(f.turn) == 0 {
			f.publish(luascript.RWChannel(key), "0")
		}
		f.call(key)
		if !held {
			return code1(0)
		}
		return code1(1)
	case luascript.RWWriteRelease:
		if arg[3] != "0" {
			f.void[arg[0]] = now.Add(ms(arg[3]))
		}
		_, held := f.fields[arg[0]+":write"]
		delete(f.fields, arg[0]+":write")
		marked := f.marked(kind.EntryOf(arg[0])) != nil
		f.unmark(kind.EntryOf(arg[0]))
		if held {
			for r, ends := range f.readers {
				f.turn[r] = ends
			}
			clear(f.readers)
		}
		if held || marked {
			f.publish(luascript.RWChannel(key), "1")
		}
		f.call(key)
		if !held {
			return code1(0)
		}
		return code1(1)
	case luascript.RWRenew:
		var r conn.Reply
		for i := 0; i < len(arg); i += 2 {
			_, held := f.fields[arg[i]]
			if held {
				f.raise(arg[i], arg[i+1], now)
				r.Vals = append(r.Vals, conn.Value{Int: 1})
			} else {
				r.Vals = append(r.Vals, conn.Value{})
			}
		}
		r.Code = r.Vals[0].Int
		return r
	case luascript.RWRefresh:
		var r conn.Reply
		_, last := f.writer()
		pttl := int64(-2)
		if !last.IsZero() {
			pttl = last.Sub(now).Milliseconds()
		}
		each := 2
		if arg[0] == "r" {
			each = 3
		}
		for i := 1; i < len(arg); i += each {
			state, ends := int64(0), now.Add(ms(arg[i+1]))
			if _, in := f.turn[arg[i]]; in {
				state, f.turn[arg[i]] = 2, ends
			} else if _, in := f.readers[arg[i]]; in {
				state, f.readers[arg[i]] = 1, ends
			} else if w := f.marked(arg[i]); w != nil {
				state, w.ends = 1, ends
			}
			r.Vals = append(r.Vals, conn.Value{Int: state}, conn.Value{Int: pttl})
		}
		r.Code = r.Vals[0].Int
		return r
	}
	panic("no script " + cmd.Script.Name)
}

// String is what is on the server.
func (f *fakeRW) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.ended(time.Now())
	if len(f.fields)+len(f.writers)+len(f.readers)+len(f.turn) == 0 {
		return ""
	}
	last := f.hist[max(0, len(f.hist)-200):]
	return fmt.Sprintf("held %v, writers %v, readers %v, turn %v, after\n%s", f.fields, f.writers, f.readers, f.turn, strings.Join(last, "\n"))
}
