//go:build unix

package redisson

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// The Go side of the tests is a process too, which speaks the protocol of the Java
// one: a test then takes both as a Driver, in either role, and can kill either.

// goVariable holds the options of a process that is to be the Go driver.
const goVariable = "REDLATCH_INTEROP_GO"

// startGo starts this program as a Go driver and returns when it has connected.
// Watchdog is Config.LeaseTime; FairWait, Sharded and the credentials mean nothing
// to it.
func startGo(tb testbed.TB, o Options) *Driver {
	tb.Helper()
	program, err := os.Executable()
	if err != nil {
		tb.Fatalf("%v", err)
	}
	encoded, err := json.Marshal(o)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	// No ctx: the process ends with its standard input, as the Java one does.
	cmd := exec.CommandContext(context.Background(), program)
	cmd.Env = append(os.Environ(), goVariable+"="+string(encoded))
	d, hello := Run(tb, cmd)
	if hello != "redlatch" {
		tb.Fatalf("the Go driver says %q", hello)
	}
	return d
}

// beGoDriver turns this process into a Go driver if it was started as one.
func beGoDriver() {
	encoded, ok := os.LookupEnv(goVariable)
	if !ok {
		return
	}
	g := &goDriver{owners: map[string]*goOwner{}, doing: map[string]string{}}
	if err := g.open(encoded); err != nil {
		fmt.Println("0 err OpenFailed " + url.PathEscape(err.Error()))
		os.Exit(1)
	}
	g.answer("0", "redlatch", nil, time.Now())
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if f := strings.Fields(lines.Text()); len(f) >= 2 {
			g.dispatch(f[0], f[1], f[2:])
		}
	}
	os.Exit(0) // as a crash would: held locks stay to their lease
}

type goDriver struct {
	clients   []*redlatch.Client
	skipAfter time.Duration
	redis     rueidis.Client // for the record of the loops
	halted    atomic.Bool

	mu     sync.Mutex
	owners map[string]*goOwner // guarded by mu
	doing  map[string]string   // guarded by mu: what each loop does at the moment, by owner

	out sync.Mutex
}

// goOwner is what a thread is in Java: its commands run one after the other, and
// its acquisitions are one owner's.
type goOwner struct {
	name  string
	work  chan func()
	holds map[string][]redlatch.Hold // by spec, the latest last; touched by work only

	mu     sync.Mutex
	cancel context.CancelFunc // guarded by mu; ends the command that runs
}

func (g *goDriver) open(encoded string) error {
	var o Options
	if err := json.Unmarshal([]byte(encoded), &o); err != nil {
		return err
	}
	g.skipAfter = o.SkipAfter
	groups := make([][]string, 0, len(o.Addresses)+1)
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
	g.out.Lock()
	defer g.out.Unlock()
	if err != nil {
		fmt.Println(id + " err " + goException(err) + " " + url.PathEscape(err.Error()))
		return
	}
	fmt.Println(id, "ok", value, now.UnixMicro(), now.Sub(start).Microseconds())
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
	case "ping", "halt", "quit":
		if verb == "halt" {
			g.halted.Store(true)
		}
		if verb == "quit" {
			for _, c := range g.clients {
				c.Close()
			}
		}
		g.answer(id, "-", nil, start)
		if verb == "quit" {
			os.Exit(0)
		}
	case "doing":
		g.answer(id, g.allDoing(), nil, start)
	case "interrupt":
		o := g.owner(args[0])
		o.mu.Lock()
		if o.cancel != nil {
			o.cancel()
		}
		o.mu.Unlock()
		g.answer(id, "-", nil, start)
	default:
		o := g.owner(args[0])
		o.work <- func() {
			// Not cancelled at the end: the holds' contexts would end with it.
			ctx, cancel := context.WithCancel(context.Background())
			setCancel := func(f context.CancelFunc) {
				o.mu.Lock()
				o.cancel = f
				o.mu.Unlock()
			}
			setCancel(cancel)
			start := time.Now()
			value, err := g.run(ctx, o, verb, args[1:])
			setCancel(nil)
			g.answer(id, value, err, start)
		}
	}
}

func (g *goDriver) owner(name string) *goOwner {
	g.mu.Lock()
	defer g.mu.Unlock()
	o := g.owners[name]
	if o == nil {
		o = &goOwner{name: name, work: make(chan func(), 100), holds: map[string][]redlatch.Hold{}}
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
	acquire := func(wait, lease time.Duration) (redlatch.Hold, error) {
		octx := redlatch.WithOwner(ctx, o.name)
		if wait < 0 {
			return l.Lock(octx, redlatch.WithLease(lease))
		}
		return l.TryLock(octx, wait, lease)
	}
	keep := func(h redlatch.Hold) { o.holds[a[0]] = append(o.holds[a[0]], h) }
	switch verb {
	case "lock":
		h, err := acquire(-1, goMillis(a[1]))
		if err != nil {
			return "", err
		}
		keep(h)
		return "-", nil
	case "trylock":
		h, err := acquire(max(goMillis(a[1]), 0), goMillis(a[2]))
		if _, waited := errors.AsType[*redlatch.NotAcquiredError](err); waited && ctx.Err() == nil {
			return "false", nil
		}
		if err != nil {
			return "", err
		}
		keep(h)
		return "true", nil
	case "token", "trytoken":
		wait, lease := time.Duration(-1), time.Duration(0)
		if verb == "trytoken" {
			wait, lease = goMillis(a[1]), goMillis(a[2])
		}
		h, err := acquire(wait, lease)
		if _, waited := errors.AsType[*redlatch.NotAcquiredError](err); waited && ctx.Err() == nil {
			return "null", nil
		}
		if err != nil {
			return "", err
		}
		keep(h)
		return strconv.FormatUint(h.Token(), 10), nil
	case "unlock":
		holds := o.holds[a[0]]
		if len(holds) == 0 {
			return "", errNoHold
		}
		o.holds[a[0]] = holds[:len(holds)-1]
		return "-", holds[len(holds)-1].Unlock(ctx)
	case "lost":
		// Answers when the latest hold's context has ended, with the reason of the loss.
		holds := o.holds[a[0]]
		if len(holds) == 0 {
			return "", errNoHold
		}
		end := holds[len(holds)-1].Context()
		<-end.Done()
		var lost *redlatch.LeaseLostError
		if !errors.As(context.Cause(end), &lost) {
			return "", fmt.Errorf("the context ended with %w", context.Cause(end))
		}
		return string(lost.Reason), nil
	case "busy":
		// What an attempt says of the holder.
		h, err := acquire(0, 0)
		var busy *redlatch.NotAcquiredError
		if errors.As(err, &busy) {
			return busy.Holder + "," + strconv.FormatInt(busy.Remaining.Milliseconds(), 10), nil
		}
		if err == nil {
			err = errors.Join(errors.New("it was free"), h.Unlock(ctx))
		}
		return "", err
	}
	return g.look(ctx, l, o, verb, a)
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
	at := 0
	if number != "" {
		var err error
		if at, err = strconv.Atoi(number); err != nil {
			return nil, err
		}
	}
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

// busy is what the Go side reads from a refused attempt: the holder's field and
// what remains of its lease.
func (l Lock) busy(t *testing.T) (holder string, remaining time.Duration) {
	t.Helper()
	v := l.owner.driver.Go("busy", l.owner.name, l.spec).Wait(t).Value
	holder, ms, _ := strings.Cut(v, ",")
	return holder, goMillis(ms)
}

// goLost answers with the reason once the hold's context has ended with ErrLeaseLost.
func (l Lock) goLost() *Call { return l.owner.driver.Go("lost", l.owner.name, l.spec) }

// lineup is the two processes of a pair test: what the first does the second sees.
type lineup struct {
	*bed
	kind          string
	first, second *Driver
}

func (p lineup) one(owner, n string) Lock { return p.first.Owner(owner).Lock(p.kind, n) }
func (p lineup) two(owner, n string) Lock { return p.second.Owner(owner).Lock(p.kind, n) }

// exclusive are the kinds that exclude everybody else.
var exclusive = []string{"rlock", "fenced", "fair", "write"}

// eachPair runs a test for both versions of Redisson, each exclusive kind, and both
// directions.
func eachPair(t *testing.T, beds func(t *testing.T, v Version) *bed, f func(t *testing.T, p lineup)) {
	t.Helper()
	eachVersion(t, func(t *testing.T, v Version) {
		b := beds(t, v)
		for _, kind := range exclusive {
			t.Run(kind+"/java-go", func(t *testing.T) { f(t, lineup{b, kind, b.java, b.golang}) })
			t.Run(kind+"/go-java", func(t *testing.T) { f(t, lineup{b, kind, b.golang, b.java}) })
		}
	})
}
