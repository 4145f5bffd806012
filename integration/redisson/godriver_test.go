//go:build unix

package redisson

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// The Go side of the tests is a process too, which speaks the protocol of the Java
// one: a test then takes both as a Driver, in either role, and can kill either.

func init() { testbed.Role("redisson", goDrive) }

// startGo starts this program as a Go driver and returns when it has connected.
// Watchdog is Config.LeaseTime; FairWait means nothing to it.
func startGo(tb testbed.TB, o Options) *Driver {
	tb.Helper()
	return drive(tb, testbed.Spawn(tb, "redisson", o), "redlatch")
}

// goDrive is the Go driver. Held locks stay to their lease when it ends, as those of a crash would.
func goDrive(_ context.Context, w *testbed.Worker) error {
	g := &goDriver{w: w, owners: map[string]*goOwner{}}
	if err := g.open(); err != nil {
		return err
	}
	g.answer("0", "redlatch", nil, time.Now())
	for line := range w.Lines() {
		f := strings.Fields(line)
		g.dispatch(f[0], f[1], f[2:])
	}
	return nil
}

type goDriver struct {
	w         *testbed.Worker
	clients   []*redlatch.Client
	skipAfter time.Duration
	redis     rueidis.Client // for the record of the loops
	halted    atomic.Bool

	mu     sync.Mutex
	owners map[string]*goOwner // guarded by mu
}

// goOwner is what a thread is in Java: its commands run one after the other, and
// its acquisitions are one owner's.
type goOwner struct {
	name   string
	work   chan func()
	holds  map[string][]redlatch.Hold         // by spec, the latest last; touched by work only
	cancel atomic.Pointer[context.CancelFunc] // ends the command that runs
}

var noCancel context.CancelFunc = func() {}

func (g *goDriver) open() error {
	var o Options
	if err := g.w.Args(&o); err != nil {
		return err
	}
	g.skipAfter = o.SkipAfter
	var groups [][]string
	if len(o.Cluster) > 0 {
		groups = append(groups, o.Cluster)
	}
	for _, a := range o.Addresses {
		groups = append(groups, []string{a})
	}
	for _, addrs := range groups {
		c, err := redlatch.New(redlatch.Config{
			Redis:     rueidis.ClientOption{InitAddress: addrs},
			LeaseTime: o.Watchdog,
			FenceTTL:  -1, // Redisson shares the counters
			Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
		})
		if err != nil {
			return err
		}
		g.clients = append(g.clients, c)
	}
	var err error
	g.redis, err = rueidis.NewClient(rueidis.ClientOption{InitAddress: groups[0], DisableCache: true})
	return err
}

func (g *goDriver) answer(id, value string, err error, start time.Time) {
	now := time.Now()
	if err != nil {
		g.w.Say("%s err %s %s", id, goException(err), url.PathEscape(err.Error()))
		return
	}
	g.w.Say("%s ok %s %d %d", id, value, now.UnixMicro(), now.Sub(start).Microseconds())
}

// goException names an error as the Java side would, where it has a name for it.
func goException(err error) string {
	switch {
	case errors.Is(err, redlatch.ErrLeaseLost), errors.Is(err, redlatch.ErrNotHeld), errors.Is(err, errNoHold):
		return NotHeld
	case errors.Is(err, context.Canceled):
		return "InterruptedException"
	}
	return "GoError"
}

var errNoHold = errors.New("this owner has no hold")

func (g *goDriver) dispatch(id, verb string, args []string) {
	start := time.Now()
	switch verb {
	case "halt":
		g.halted.Store(true)
	case "quit":
		for _, c := range g.clients {
			c.Close()
		}
		g.answer(id, "-", nil, start)
		os.Exit(0)
	case "interrupt":
		(*g.owner(args[0]).cancel.Load())()
	default:
		o := g.owner(args[0])
		o.work <- func() {
			// Not cancelled at the end: the holds' contexts would end with it.
			ctx, cancel := context.WithCancel(context.Background())
			o.cancel.Store(&cancel)
			start := time.Now()
			value, err := g.run(ctx, o, verb, args[1:])
			o.cancel.Store(&noCancel)
			g.answer(id, value, err, start)
		}
		return
	}
	g.answer(id, "-", nil, start)
}

func (g *goDriver) owner(name string) *goOwner {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.owners[name]
	if o == nil {
		o = &goOwner{name: name, work: make(chan func(), 100), holds: map[string][]redlatch.Hold{}}
		o.cancel.Store(&noCancel)
		g.owners[name] = o
		go func() { // until the process ends
			for f := range o.work {
				f()
			}
		}()
	}
	return o
}

func (g *goDriver) run(ctx context.Context, o *goOwner, verb string, a []string) (string, error) {
	if verb == "field" {
		// The acquisition id that follows is new each time.
		return g.clients[0].ID() + ":g=" + o.name + "-", nil
	}
	if verb == "loop" {
		return g.loop(o, a)
	}
	l, err := g.locker(a[0])
	if err != nil {
		return "", err
	}
	switch holds := o.holds[a[0]]; verb {
	case "lock", "trylock", "token", "trytoken":
		return o.acquire(ctx, l, verb, a)
	case "unlock", "lost":
		if len(holds) == 0 {
			return "", errNoHold
		}
		last := holds[len(holds)-1]
		if verb == "lost" { // answers when the latest hold's context has ended, with the reason of the loss
			<-last.Context().Done()
			lost, is := errors.AsType[*redlatch.LeaseLostError](context.Cause(last.Context()))
			if !is {
				return "", fmt.Errorf("the context ended with %w", context.Cause(last.Context()))
			}
			return string(lost.Reason), nil
		}
		o.holds[a[0]] = holds[:len(holds)-1]
		return "-", last.Unlock(ctx)
	case "busy": // what an attempt says of the holder
		h, err := l.TryLock(ctx, 0, 0)
		if busy, is := errors.AsType[*redlatch.NotAcquiredError](err); is {
			return fmt.Sprintf("holder=%s,left=%d", busy.Holder, busy.Remaining.Milliseconds()), nil
		}
		if err == nil {
			err = errors.Join(errors.New("it was free"), h.Unlock(ctx))
		}
		return "", err
	}
	return g.look(ctx, l, o, verb, a)
}

// acquire is lock SPEC LEASE, trylock SPEC WAIT LEASE, and token and trytoken, which answer with the hold's token.
func (o *goOwner) acquire(ctx context.Context, l redlatch.Locker, verb string, a []string) (string, error) {
	lease, tries, token := goMillis(a[len(a)-1]), strings.HasPrefix(verb, "try"), strings.HasSuffix(verb, "token")
	ctx = redlatch.WithOwner(ctx, o.name)
	var h redlatch.Hold
	var err error
	if tries {
		h, err = l.TryLock(ctx, max(goMillis(a[1]), 0), lease)
	} else {
		h, err = l.Lock(ctx, redlatch.WithLease(lease))
	}
	_, busy := errors.AsType[*redlatch.NotAcquiredError](err)
	busy = busy && tries && ctx.Err() == nil
	if err == nil {
		o.holds[a[0]] = append(o.holds[a[0]], h)
	}
	switch {
	case err != nil && !busy:
		return "", err
	case busy && token:
		return "null", nil
	case token:
		return strconv.FormatUint(h.Token(), 10), nil
	case tries:
		return strconv.FormatBool(!busy), nil
	}
	return "-", nil
}

// inspected is what all kinds but the multi-lock have besides Locker.
type inspected interface {
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

func (g *goDriver) look(ctx context.Context, l redlatch.Locker, o *goOwner, verb string, a []string) (string, error) {
	in, ok := l.(inspected)
	if !ok {
		return "", errors.ErrUnsupported
	}
	if verb == "force" {
		done, err := in.ForceUnlock(ctx)
		return strconv.FormatBool(done), err
	}
	s, err := in.State(ctx)
	if err != nil {
		return "", err
	}
	if verb == "lasttoken" {
		return strconv.FormatUint(s.Token, 10), nil
	}
	kind, _, _ := strings.Cut(a[0], ":")
	mode := map[string]lock.Mode{"read": lock.ModeRead, "write": lock.ModeWrite}[kind]
	count, held := 0, s.Held && (mode == lock.ModeNone || s.Mode == mode)
	for _, h := range s.Holders {
		if h.Mode != lock.ModeNone && mode != lock.ModeNone && h.Mode != mode {
			continue
		}
		if strings.HasPrefix(h.Owner, g.clients[0].ID()+":g="+o.name+"-") {
			count += h.Count
		}
	}
	return fmt.Sprintf("locked=%t,count=%d,ttl=%d", held, count, s.Remaining.Milliseconds()), nil
}

// locker finds the lock that a spec stands for.
func (g *goDriver) locker(spec string) (redlatch.Member, error) {
	if list, ok := strings.CutPrefix(spec, "multi:"); ok {
		var members []redlatch.Member
		for part := range strings.SplitSeq(list, "+") {
			l, err := g.locker(part)
			if err != nil {
				return nil, err
			}
			members = append(members, l)
		}
		return redlatch.MultiLock(members...), nil
	}
	kind, rest, _ := strings.Cut(spec, ":")
	kind, number, _ := strings.Cut(kind, "@")
	at, _ := strconv.Atoi(number) // 0 where none is named
	n, err := url.PathUnescape(rest)
	if err != nil {
		return nil, err
	}
	c := g.clients[at]
	switch kind {
	case "rlock":
		return c.RLock(n), nil
	case "fenced":
		return c.RLock(n, redlatch.Fenced()), nil
	case "fair":
		if g.skipAfter > 0 {
			return c.FairLock(n, redlatch.WithSkipAfter(g.skipAfter)), nil
		}
		return c.FairLock(n), nil
	case "read":
		return c.ReadWriteLock(n).ReadLock(), nil
	case "write":
		return c.ReadWriteLock(n).WriteLock(), nil
	}
	return nil, fmt.Errorf("unknown kind in %s", spec)
}

// goMillis reads a duration of the protocol; -1 stays negative.
func goMillis(s string) time.Duration {
	ms, err := strconv.ParseInt(s, 10, 64)
	if err != nil {
		panic(err)
	}
	return time.Duration(ms) * time.Millisecond
}
