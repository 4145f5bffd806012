package versions

import (
	"context"
	"errors"
	"os"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// outage is a wait that is long enough for a busy server to say that it refuses writes.
const outage = 1500 * time.Millisecond

// site is a standalone server of one version, with two Clients.
type site struct {
	*testing.T
	*testbed.Server

	a, b []*redlatch.Client
}

// kinds are those of one server.
func kinds() []bed.Kind {
	return slices.DeleteFunc(bed.Kinds(), func(k bed.Kind) bool { return k.Servers > 1 })
}

// alike are promises of all kinds.
var alike = []struct {
	name string
	try  func(x site, k bed.Kind, name string)
}{
	{"exclusion", exclusion},
	{"waiting", func(x site, k bed.Kind, name string) {
		handOver(x.T, k.New(x.a, name), k.Excluded(x.b, name), func() {})
	}},
	{"re-entry, extension, tokens", reentry},
	{"state and force", force},
	{"a key that is no lock", wrongType},
	{"fields that have ended", overdue},
}

// promises are tried on a server of each version.
var promises = []struct {
	name string
	try  func(x site)
}{
	{"fair", fair},
	{"read-write", readWrite},
	{"out of memory", outOfMemory},
	{"read-only for a while", func(x site) {
		refused(x, []string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"})
	}},
	{"too few replicas for a while", func(x site) {
		set, back := []string{"CONFIG", "SET", "min-replicas-to-write", "1"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}
		if testbed.ServerVersion(x.T).AtLeast(6, 2) {
			refused(x, set, back)
			return
		}
		x.Do(x.T, set...) // holds for scripts, too, but not on Redis 6.0, as docs/SERVERS.md says
		defer x.Do(x.T, back...)
		bed.Unlock(x.T, bed.Lock(x.T, x.Context(), x.a[0].RLock("few")))
	}},
}

// Every version of the server that is supported keeps the promises, as far as it was fetched.
func TestEveryVersion(t *testing.T) {
	fetched, err := testbed.FetchedServers()
	testbed.Must(t, err)
	if len(fetched) == 0 {
		const text = "scripts/ensure-servers.sh has fetched no server: only the one on PATH is tested"
		if os.Getenv("REDLATCH_VERSIONS") == "require" {
			t.Fatal(text)
		}
		testbed.Untested(t, "%s", text)
		program, err := testbed.Find()
		testbed.Must(t, err)
		fetched = []testbed.Fetched{{Version: testbed.ServerVersion(t), Program: program}}
	}
	places := make(chan struct{}, 2) // versions under test at a time
	for _, f := range fetched {
		t.Run(f.String(), func(t *testing.T) {
			t.Parallel()
			places <- struct{}{}
			defer func() { <-places }()
			testbed.UseServer(t, f.Program)
			s := testbed.Standalone(t)
			a, b := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
			run := func(name string, try func(x site)) bool {
				return t.Run(name, func(t *testing.T) {
					testbed.UseServer(t, f.Program)
					try(site{t, s, []*redlatch.Client{a}, []*redlatch.Client{b}})
				})
			}
			ok := true // what is left behind would fail the others too
			for _, p := range alike {
				for _, k := range kinds() {
					ok = ok && run(k.Name+"/"+p.name, func(x site) { p.try(x, k, bed.Name(k.Name, p.name)) })
				}
			}
			for _, p := range promises {
				ok = ok && run(p.name, p.try)
			}
			_ = ok && run("cluster", cluster)
		})
	}
}

func busy(t *testing.T, l redlatch.Locker) {
	t.Helper()
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
		t.Fatalf("%v, want busy", err)
	}
}

// answer is what the server has refused with; "" if it has not.
func answer(err error) string {
	if refused, ok := errors.AsType[*redlatch.ServerError](err); ok {
		return refused.ErrorType()
	}
	return ""
}

// silent shows that who waits has heard nothing, after a while.
func silent(t *testing.T, after time.Duration, waits ...<-chan bed.Attempt) {
	t.Helper()
	time.Sleep(after)
	for _, got := range waits {
		select {
		case r := <-got:
			t.Fatalf("the wait is over: %v", r.Err)
		default:
		}
	}
}

// handOver shows that a busy lock is busy, and that its unlock wakes who waits.
func handOver(t *testing.T, mine, other redlatch.Locker, waiting func()) {
	t.Helper()
	h := bed.Lock(t, t.Context(), mine)
	busy(t, other)
	got := bed.Async(t.Context(), other)
	waiting()
	silent(t, 100*time.Millisecond, got)
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Hold(t, got))
}

func exclusion(x site, k bed.Kind, name string) {
	const owners, turns = 8, 10
	total := 0
	var all []<-chan bed.Attempt
	for i := range owners {
		l := k.Excluded([][]*redlatch.Client{x.a, x.b}[i%2], name)
		all = append(all, bed.Run(func() (h redlatch.Hold, err error) {
			for n := 0; n < turns && err == nil; n++ {
				if h, err = l.Lock(x.Context()); err == nil {
					seen := total // the race detector looks on as well
					runtime.Gosched()
					total = seen + 1
					err = h.Unlock(x.Context())
				}
			}
			return h, err
		}))
	}
	for _, one := range all {
		bed.Want(x.T, bed.Get(x.T, one).Err, nil)
	}
	if total != owners*turns {
		x.Errorf("%d turns, want %d", total, owners*turns)
	}
}

func reentry(x site, k bed.Kind, name string) {
	l := k.New(x.a, name)
	outer := bed.Lock(x.T, x.Context(), l)
	inner := bed.Lock(x.T, outer.Context(), l)
	if inner.Token() != outer.Token() || k.Name == "fenced" && outer.Token() == 0 {
		x.Errorf("tokens %d and %d", outer.Token(), inner.Token())
	}
	bed.Want(x.T, inner.Extend(x.Context(), 5*time.Minute), nil)
	for _, key := range k.Names(name) {
		if left := x.Int(x.T, "PTTL", key); left < 4*time.Minute.Milliseconds() {
			x.Errorf("%d ms left of %s", left, key)
		}
	}
	bed.Unlock(x.T, inner)
	busy(x.T, k.Excluded(x.b, name))
	bed.Unlock(x.T, outer)
	next := bed.Lock(x.T, x.Context(), k.New(x.b, name))
	if k.Name == "fenced" && next.Token() <= outer.Token() {
		x.Errorf("token %d after %d", next.Token(), outer.Token())
	}
	bed.Unlock(x.T, next)
}

// force: the lock and its Client tell who has it, and take it away; the holder learns of it.
func force(x site, k bed.Kind, name string) {
	l := k.New(x.b, name).(interface { // as each kind is
		State(ctx context.Context) (redlatch.State, error)
		ForceUnlock(ctx context.Context) (bool, error)
		Do(ctx context.Context, fn func(ctx context.Context) error, opts ...redlatch.AcquireOption) error
	})
	for _, force := range []func() (bool, error){
		func() (bool, error) { return l.ForceUnlock(x.Context()) },
		func() (ok bool, err error) {
			for _, key := range k.Names(name) {
				if found, err := x.b[0].Inspect(x.Context(), key); err != nil || len(found.Holders) != 1 {
					x.Errorf("%+v, %v", found, err)
				}
				ok, err = x.b[0].ForceUnlock(x.Context(), key)
			}
			return ok, err
		},
	} {
		h := bed.Lock(x.T, x.Context(), k.New(x.a, name))
		st, err := l.State(x.Context())
		forced, failed := force()
		lost := h.Unlock(x.Context())
		if len(st.Holders) != len(k.Names(name)) || !forced || errors.Join(err, failed) != nil || !errors.Is(lost, redlatch.ErrLeaseLost) {
			x.Errorf("%+v, %v; %t, %v; Unlock: %v", st, err, forced, failed, lost)
		}
	}
	bed.Want(x.T, l.Do(x.Context(), func(context.Context) error { return nil }), nil)
}

func wrongType(x site, k bed.Kind, name string) {
	for _, key := range k.Names(name) {
		x.Do(x.T, "SET", key, "data")
	}
	_, err := k.New(x.a, name).TryLock(x.Context(), 0, 0)
	if code := answer(err); code != "wrongtype" && (code != "" || !errors.Is(err, redlatch.ErrInvalidName)) {
		x.Errorf("%v", err)
	}
	for _, key := range k.Names(name) {
		if got := x.Text(x.T, "GET", key); got != "data" {
			x.Errorf("%q is left", got)
		}
	}
}

// overdue: the only field of a hash has ended, and the server has not removed it yet. Such a
// hash is no lock; the next look may find that it is gone.
func overdue(x site, k bed.Kind, name string) {
	if _, err := x.Try("HPEXPIRE", "none", "1", "FIELDS", "1", "f"); err != nil {
		return // fields have no TTLs here
	}
	for range 10 {
		for _, key := range k.Names(name) {
			x.Do(x.T, "HSET", key, "f", "v")
			x.Do(x.T, "HPEXPIRE", key, "1", "FIELDS", "1", "f")
		}
		time.Sleep(2 * time.Millisecond)
		switch h, err := k.New(x.a, name).TryLock(x.Context(), 0, 0); {
		case err == nil:
			bed.Unlock(x.T, h)
		case !errors.Is(err, redlatch.ErrInvalidName):
			x.Error(err)
		}
		x.Do(x.T, append([]string{"DEL"}, k.Names(name)...)...)
	}
}

func fair(x site) {
	h := bed.Lock(x.T, x.Context(), x.a[0].FairLock("f"))
	var queue []<-chan bed.Attempt
	for i := range 4 {
		queue = append(queue, bed.Async(x.Context(), []*redlatch.Client{x.b[0], x.a[0]}[i%2].FairLock("f")))
		bed.Eventually(x.T, "place in the queue", func() bool { return x.Int(x.T, "LLEN", "redisson_lock_queue:{f}") == int64(i+1) })
	}
	for i, got := range queue {
		bed.Unlock(x.T, h)
		h = bed.Hold(x.T, got)
		silent(x.T, 0, queue[i+1:]...)
	}
	bed.Unlock(x.T, h)
}

func readWrite(x site) {
	t, one, other := x.T, x.a[0].ReadWriteLock("rw"), x.b[0].ReadWriteLock("rw")
	r1, r2 := bed.Lock(t, t.Context(), one.ReadLock()), bed.Lock(t, t.Context(), other.ReadLock())
	if _, err := one.WriteLock().TryLock(r1.Context(), 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Errorf("%v, want ErrUpgrade", err)
	}
	writer := bed.Async(t.Context(), one.WriteLock())
	bed.Unlock(t, r1)
	silent(t, 50*time.Millisecond, writer)
	bed.Unlock(t, r2)
	w := bed.Hold(t, writer)
	busy(t, other.ReadLock())
	down := bed.Lock(t, w.Context(), one.ReadLock())
	reader := bed.Async(t.Context(), other.ReadLock())
	bed.Unlock(t, w) // a downgrade
	r := bed.Hold(t, reader)
	busy(t, other.WriteLock())
	bed.Unlock(t, down)
	bed.Unlock(t, r)
}

// outOfMemory: who holds can unlock, who asks is told.
func outOfMemory(x site) {
	var holds []redlatch.Hold
	for _, k := range kinds() {
		holds = append(holds, bed.Lock(x.T, x.Context(), k.New(x.a, bed.Name(k.Name, "held"))))
	}
	x.Do(x.T, "CONFIG", "SET", "maxmemory", "1")
	for i, k := range kinds() {
		_, err := k.New(x.b, bed.Name(k.Name, "free")).TryLock(x.Context(), 0, 0)
		if answer(err) != "oom" {
			x.Errorf("%s: %v, want OOM", k.Name, err)
		}
		if err := holds[i].Unlock(x.Context()); err != nil {
			x.Errorf("%s: %v", k.Name, err)
		}
	}
	x.Do(x.T, "CONFIG", "SET", "maxmemory", "0")
}

// refused: that a server refuses writes for a while is no reason to give up, and nothing is unlocked without one.
func refused(x site, set, back []string) {
	var holds []redlatch.Hold
	var tries, waits, unlocks []<-chan bed.Attempt
	for _, k := range kinds() {
		holds = append(holds, bed.Lock(x.T, x.Context(), k.New(x.a, bed.Name(k.Name, "held"))))
	}
	x.Do(x.T, set...)
	for i, k := range kinds() {
		tries = append(tries, bed.Run(func() (redlatch.Hold, error) {
			return k.New(x.a, bed.Name(k.Name, "tried")).TryLock(x.Context(), outage, 0)
		}))
		waits = append(waits, bed.Async(x.Context(), k.New(x.b, bed.Name(k.Name, "free"))))
		unlocks = append(unlocks, bed.Run(func() (redlatch.Hold, error) { return nil, holds[i].Unlock(x.Context()) }))
	}
	for i, try := range tries {
		err := bed.Get(x.T, try).Err
		if answer(err) != "" || !errors.Is(err, redlatch.ErrUnavailable) {
			x.Errorf("%s: %v, want an outage", kinds()[i].Name, err)
		}
	}
	silent(x.T, 0, append(waits, unlocks...)...)
	x.Do(x.T, back...)
	for i, wait := range waits {
		bed.Unlock(x.T, bed.Hold(x.T, wait))
		if err := bed.Get(x.T, unlocks[i]).Err; err != nil {
			x.Errorf("%s: %v", kinds()[i].Name, err)
		}
	}
}

// cluster shows each kind on several nodes, with messages on sharded channels where
// there are any.
func cluster(x site) {
	c := testbed.Cluster(x.T)
	clients := func() []*redlatch.Client {
		return []*redlatch.Client{bed.Client(x.T, "", func(cfg *redlatch.Config) { cfg.Redis.InitAddress = c.Addrs() })}
	}
	a, b := clients(), clients()
	for _, k := range kinds() {
		for _, slot := range []string{"a", "b", "c"} { // of all three masters
			name := slot + ":" + k.Name
			handOver(x.T, k.New(a, name), k.Excluded(b, name), func() {
				bed.Eventually(x.T, "listener for "+name, func() bool {
					return slices.ContainsFunc(c.Nodes(), func(s *testbed.Server) bool { return len(s.LockChannels(x.T, "*"+name+"*")) > 0 })
				})
			})
		}
	}
}
