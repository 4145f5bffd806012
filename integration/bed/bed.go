// Package bed is what the tests of the promises stand on: servers behind proxies, a client
// behind them and one beside them, and the table of all kinds of lock. A new kind joins
// every table of promises by one line of [Kinds].
package bed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Patience bounds the wait for what a healthy machine does at once. It is far below the
// leases of [Site], so that who sleeps until a lease ends fails the test.
const Patience = 15 * time.Second

// Lease is LeaseTime of the clients of a [Site].
const Lease = time.Minute

// Kind is one kind of lock, as the tables of promises see it.
type Kind struct {
	Name string
	// Servers is how many independent servers the lock stands on.
	Servers int
	// Shared says that several holders may be inside at a time.
	Shared bool
	// New makes the lock from one client per server.
	New Make
	// Other makes the lock that this kind excludes, where it is not the same one.
	Other Make
	// Queues says that who waits has a place on the server, which ends after a time if he doesn't come back.
	Queues bool
	// Parts are the names of the locks on each server that it consists of, as endings of its name.
	Parts []string
}

// Make makes a lock from one client per server.
type Make func(clients []*redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker

// Lasting makes a lock whose waiters' places outlast a test, if they are left behind.
func (k Kind) Lasting(clients []*redlatch.Client, name string) redlatch.Locker {
	if k.Queues {
		return k.New(clients, name, redlatch.WithSkipAfter(10*time.Minute))
	}
	return k.New(clients, name)
}

// Excluded is a lock that nobody can have while this kind is held.
func (k Kind) Excluded(clients []*redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
	if k.Other != nil {
		return k.Other(clients, name, opts...)
	}
	return k.New(clients, name, opts...)
}

// Names are the keys on each server without which the lock is not held.
func (k Kind) Names(name string) []string {
	if k.Parts == nil {
		return []string{name}
	}
	names := make([]string, len(k.Parts))
	for i, part := range k.Parts {
		names[i] = name + part
	}
	return names
}

// Kinds are all kinds of lock.
func Kinds() []Kind {
	one := func(of func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker) Make {
		return func(c []*redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return of(c[0], name, opts...)
		}
	}
	plain := func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
		return c.RLock(name, opts...)
	}
	write := one(func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
		return c.ReadWriteLock(name, opts...).WriteLock()
	})
	return []Kind{
		{Name: "plain", Servers: 1, New: one(plain)},
		{Name: "fenced", Servers: 1, New: one(func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return c.RLock(name, append(opts, redlatch.Fenced())...)
		})},
		{Name: "fair", Servers: 1, Queues: true, New: one(func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return c.FairLock(name, opts...)
		})},
		{Name: "write", Servers: 1, Queues: true, New: write},
		{Name: "read", Servers: 1, Shared: true, Queues: true, Other: write, New: one(func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return c.ReadWriteLock(name, opts...).ReadLock()
		})},
		{Name: "sharing", Servers: 1, Shared: true, Queues: true, Other: write, New: one(func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return c.ReadWriteLock(name, append(opts, redlatch.ShareReads())...).ReadLock()
		})},
		{Name: "multi", Servers: 2, New: func(c []*redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return redlatch.MultiLock(c[0].RLock(name, opts...), c[1].RLock(name, opts...))
		}},
		{Name: "group", Servers: 1, Parts: []string{"{1}", "{2}"}, New: one(func(c *redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return redlatch.MultiLock(c.RLock(name+"{1}", opts...), c.RLock(name+"{2}", opts...))
		})},
		{Name: "quorum", Servers: 3, New: func(c []*redlatch.Client, name string, opts ...redlatch.Option) redlatch.Locker {
			return redlatch.QuorumLock(c[0].RLock(name, opts...), c[1].RLock(name, opts...), c[2].RLock(name, opts...))
		}},
	}
}

// KindOf finds a kind by its name.
func KindOf(name string) (Kind, error) {
	for _, k := range Kinds() {
		if k.Name == name {
			return k, nil
		}
	}
	return Kind{}, fmt.Errorf("no kind %q", name)
}

// Site is the servers of one kind of lock, each behind a proxy, with two clients of each: one
// goes through the proxies, where faults happen, the other straight.
type Site struct {
	Kind    Kind
	Servers []*testbed.Server
	Proxies []*testbed.Proxy
	Through []*redlatch.Client
	Direct  []*redlatch.Client

	change  []func(*redlatch.Config)
	watches sync.Map // of testbed.Match by *atomic.Bool: the requests that Asked waits for
}

// saw is asked of every request before any trap, and takes none.
func (x *Site) saw(args []string) bool {
	x.watches.Range(func(seen, of any) bool {
		if of.(testbed.Match)(args) {
			seen.(*atomic.Bool).Store(true)
		}
		return true
	})
	return false
}

// NewSite starts the servers and clients of a kind. At the end of the test nothing may be left
// of them but what outlives a lock on purpose.
func NewSite(t *testing.T, k Kind, change ...func(*redlatch.Config)) *Site {
	t.Helper()
	x := &Site{Kind: k, change: change}
	for range k.Servers {
		s := Server(t)
		x.Servers = append(x.Servers, s)
		p := testbed.NewProxy(t, s.Addr())
		p.CopyRequest(x.saw)
		x.Proxies = append(x.Proxies, p)
	}
	for i, s := range x.Servers {
		x.Through = append(x.Through, Client(t, x.Proxies[i].Addr(), change...))
		x.Direct = append(x.Direct, Client(t, s.Addr(), change...))
	}
	// The scripts are known to the servers then, and each request comes once.
	for _, c := range [][]*redlatch.Client{x.Through, x.Direct} {
		for _, l := range []redlatch.Locker{k.New(c, "warm"), k.Excluded(c, "warm")} {
			outer := Lock(t, t.Context(), l)
			Unlock(t, Lock(t, outer.Context(), l, redlatch.WithLease(time.Hour)))
			if err := outer.Extend(t.Context(), time.Hour); err != nil {
				t.Fatalf("Extend: %v", err)
			}
			Unlock(t, outer)
		}
	}
	return x
}

// Main is the TestMain of a package: it fails when a goroutine outlives the tests. The client library's may sleep on,
// whether the client is closed or not: for a moment before it looks at a cluster again, and for five seconds until it
// closes what it no longer needs there.
func Main(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient).redirectOrNew.func1"))
}

// Server starts a server on which nothing may be left at the end of the test but what outlives a lock on purpose,
// and keys that begin with one of the others.
func Server(t *testing.T, others ...string) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t)
	testbed.LeakCheck(t, s, testbed.AllowKeys(append(others, "redisson_lock_token:", "redlatch_void:")...))
	return s
}

// Loaded starts such a server that knows the scripts, so that a trap catches a command that runs, and each once.
func Loaded(t *testing.T, others ...string) *testbed.Server {
	t.Helper()
	s := Server(t, others...)
	for _, script := range []*luascript.Script{
		luascript.Acquire, luascript.Reenter, luascript.Release, luascript.Renew, luascript.State,
		luascript.RWRead, luascript.RWWrite, luascript.RWReenter, luascript.RWRenew, luascript.RWRefresh,
		luascript.RWReadRelease, luascript.RWWriteRelease, luascript.Once, luascript.OnceUndo, luascript.OnceReset,
	} {
		s.Do(t, "SCRIPT", "LOAD", script.Body)
	}
	return s
}

// Fresh makes new clients that go through the proxies.
func (x *Site) Fresh(t *testing.T, change ...func(*redlatch.Config)) []*redlatch.Client {
	t.Helper()
	clients := make([]*redlatch.Client, len(x.Proxies))
	for i, p := range x.Proxies {
		clients[i] = Client(t, p.Addr(), append(slices.Clone(x.change), change...)...)
	}
	return clients
}

// Client makes a Client that is closed with the test.
func Client(t testing.TB, addr string, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	cfg := redlatch.Config{
		Redis:     rueidis.ClientOption{InitAddress: []string{addr}},
		Logger:    slog.New(slog.DiscardHandler),
		LeaseTime: Lease,
	}
	for _, f := range change {
		f(&cfg)
	}
	c, err := open(cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// open connects. A short lease makes the limits of a connection short, too: a busy machine's server may
// give its first answer too late for them.
func open(cfg redlatch.Config) (*redlatch.Client, error) {
	for end := time.Now().Add(Patience); ; time.Sleep(2 * time.Millisecond) {
		c, err := redlatch.New(cfg)
		if !errors.Is(err, redlatch.ErrUnavailable) || time.Now().After(end) {
			return c, err
		}
	}
}

// Lock is the lock of the client behind the proxies.
func (x *Site) Lock(name string) redlatch.Locker { return x.Kind.New(x.Through, name) }

// Beside is the lock of a client that no fault reaches, of the kind that the site's excludes.
func (x *Site) Beside(name string) redlatch.Locker { return x.Kind.Excluded(x.Direct, name) }

// Everywhere locks on every server: a quorum may be had without one whose answer is late, and what
// comes there then finds the lock free. The lock is one of these clients.
func (x *Site) Everywhere(t *testing.T, ctx context.Context, l redlatch.Locker, name string, clients []*redlatch.Client) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	for {
		h := Lock(t, ctx, l)
		names, held := x.Kind.Names(name), 0
		for i, s := range x.Servers {
			ours := func(field string) bool { return strings.HasPrefix(field, clients[i].ID()) }
			for _, key := range names {
				if slices.ContainsFunc(s.List(t, "HKEYS", key), ours) {
					held++
				}
			}
		}
		if held == len(x.Servers)*len(names) {
			return h
		}
		Unlock(t, h)
	}
}

// Keys are the keys of a lock on all servers, without what outlives it on purpose.
func (x *Site) Keys(t *testing.T, name string) []string {
	t.Helper()
	var keys []string
	for _, s := range x.Servers {
		for _, key := range s.List(t, "KEYS", "*"+name+"*") {
			if !strings.HasPrefix(key, "redisson_lock_token:") && !strings.HasPrefix(key, "redlatch_void:") {
				keys = append(keys, key)
			}
		}
	}
	return keys
}

// Left is what is left of the lock's leases on the servers: of the part that ends first, and of the one that
// ends last. It is below 0 of a part that is not held, or has no end.
func (x *Site) Left(t *testing.T, name string) (first, last time.Duration) {
	t.Helper()
	first, last = math.MaxInt64, math.MinInt64
	for _, s := range x.Servers {
		for _, key := range x.Kind.Names(name) {
			left := time.Duration(min(s.Int(t, "PTTL", key), 1<<40)) * time.Millisecond
			first, last = min(first, left), max(last, left)
		}
	}
	return first, last
}

// Attempt is what an acquisition came to.
type Attempt struct {
	Hold redlatch.Hold
	Err  error
	At   time.Time
}

// Async locks in a goroutine of its own.
func Async(ctx context.Context, l redlatch.Locker, opts ...redlatch.AcquireOption) <-chan Attempt {
	return Run(func() (redlatch.Hold, error) { return l.Lock(ctx, opts...) })
}

// Run acquires in a goroutine of its own.
func Run(acquire func() (redlatch.Hold, error)) chan Attempt {
	out := make(chan Attempt, 1)
	go func() {
		h, err := acquire()
		out <- Attempt{h, err, time.Now()}
	}()
	return out
}

// Get waits for what Async came to.
func Get(t *testing.T, from <-chan Attempt) Attempt {
	t.Helper()
	return Receive(t, Patience, from)
}

// Receive waits for what must come, or for the end of a channel, in this time.
func Receive[T any](t *testing.T, limit time.Duration, from <-chan T) (got T) {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case got = <-from:
	case <-timer.C:
		t.Fatalf("nothing came within %v", limit)
	}
	return got
}

// Lock locks within Patience or ends the test.
func Lock(t *testing.T, ctx context.Context, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold { //nolint:revive // t first, as in testing
	t.Helper()
	return Hold(t, Async(ctx, l, opts...))
}

// Hold waits for the hold that Async gets.
func Hold(t *testing.T, from <-chan Attempt) redlatch.Hold {
	t.Helper()
	return HoldWithin(t, Patience, from)
}

// HoldWithin waits for a hold that must come in this time.
func HoldWithin(t *testing.T, limit time.Duration, from <-chan Attempt) redlatch.Hold {
	t.Helper()
	got := Receive(t, limit, from)
	if got.Err != nil {
		t.Fatalf("Lock: %v", got.Err)
	}
	_ = got.Hold.Context() // which exists from now on, as in most sections
	return got.Hold
}

// Unlock unlocks, and fails the test if one of the locks was not held until now.
func Unlock(t *testing.T, holds ...redlatch.Hold) {
	t.Helper()
	for _, h := range holds {
		if err := h.Unlock(context.Background()); err != nil {
			t.Fatalf("Unlock: %v", err)
		}
	}
}

// Holds are those of acquisitions that must succeed.
func Holds(t *testing.T, from []<-chan Attempt) []redlatch.Hold {
	t.Helper()
	holds := make([]redlatch.Hold, len(from))
	for i := range from {
		holds[i] = Hold(t, from[i])
	}
	return holds
}

// Ended waits for the end of a hold's context and returns its cause.
func Ended(t *testing.T, h redlatch.Hold) error {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(Patience):
		t.Fatal("the hold's context does not end")
	}
	return context.Cause(h.Context())
}

// Within is a context for what must end in a test.
func Within(t testing.TB, d time.Duration) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), d)
	t.Cleanup(cancel)
	return ctx
}

// Alive fails if the hold's context has ended.
func Alive(t *testing.T, h redlatch.Hold) {
	t.Helper()
	if h.Context().Err() != nil {
		t.Fatalf("the hold's context has ended: %v", context.Cause(h.Context()))
	}
}

// Want fails unless err is one of these; it may be called in any goroutine.
func Want(t *testing.T, err error, sentinels ...error) {
	t.Helper()
	if !slices.ContainsFunc(sentinels, func(want error) bool { return errors.Is(err, want) }) {
		t.Errorf("error %v, want one of %v", err, sentinels)
	}
}

// As ends the test unless err is, or wraps, an error of this type, which it returns.
func As[E error](t *testing.T, err error) E {
	t.Helper()
	e, is := errors.AsType[E](err)
	if !is {
		t.Fatalf("error %v, want a %T", err, e)
	}
	return e
}

// Eventually waits for a state that nobody announces.
func Eventually(t *testing.T, what string, ok func() bool) {
	t.Helper()
	for end := time.Now().Add(Patience); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", Patience, what)
		}
	}
}

// Listeners waits until so many clients are to be called on each server when the lock is free. A subscription lingers
// for half a second.
func Listeners(t *testing.T, n int, name string, on ...*testbed.Server) {
	t.Helper()
	for _, s := range on {
		Eventually(t, fmt.Sprintf("%d subscriptions of %s", n, name), func() bool {
			return len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel(name)+"*")) == n
		})
	}
}

// Of matches the scripts that name the lock in a key or an argument.
func Of(name string) testbed.Match {
	names := testbed.Contains(name)
	return func(args []string) bool { return strings.HasPrefix(args[0], "EVAL") && names(args) }
}

// Nth matches the n-th of the requests that match, from 0.
func Nth(n int64, match testbed.Match) testbed.Match { return From(n, 1, match) }

// From matches so many of the requests that match, from the n-th on.
func From(n, many int64, match testbed.Match) testbed.Match {
	var seen atomic.Int64
	return func(args []string) bool {
		if !match(args) {
			return false
		}
		at := seen.Add(1) - 1
		return n <= at && at < n+many
	}
}

// Asked returns what waits until a script of this lock has come to one of the proxies. Call it
// before the lock is asked for.
func (x *Site) Asked(t *testing.T, name string) func() {
	t.Helper()
	asked := new(atomic.Bool)
	x.watches.Store(asked, Of(name))
	t.Cleanup(func() { x.watches.Delete(asked) })
	return func() { t.Helper(); Eventually(t, "a command of the waiter", asked.Load) }
}

// Name makes a lock's name that no other case has.
func Name(parts ...any) string {
	return "p:" + strings.Join(strings.Fields(strings.TrimSuffix(fmt.Sprintln(parts...), "\n")), "-") + ":"
}
