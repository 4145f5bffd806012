package versions

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// outage is a wait that is long enough for a busy server to say that it refuses writes.
const outage = 1500 * time.Millisecond

// promises are what is tried on a standalone server of each version, by two Clients.
var promises = []struct {
	name string
	try  func(t *testing.T, s *testbed.Server, a, b *redlatch.Client)
}{
	{"exclusion", exclusion},
	{"waiting", func(t *testing.T, _ *testbed.Server, a, b *redlatch.Client) {
		t.Helper()
		handOver(t, a.RLock("w"), b.RLock("w"))
	}},
	{"re-entry, extension, tokens", reentry},
	{"fair", fair},
	{"read-write", readWrite},
	{"state and force", state},
	{"a key that is no lock", wrongType},
	{"fields that have ended", overdue},
	{"out of memory", outOfMemory},
	{"read-only for a while", readOnly},
	{"too few replicas for a while", tooFewReplicas},
}

// Every version of the server that is supported keeps the promises, as far as it was fetched.
func TestEveryVersion(t *testing.T) {
	fetched, err := testbed.FetchedServers()
	if err != nil {
		t.Fatal(err)
	}
	if len(fetched) == 0 {
		const text = "scripts/ensure-servers.sh has fetched no server: only the one on PATH is tested"
		if os.Getenv("REDLATCH_VERSIONS") == "require" {
			t.Fatal(text)
		}
		testbed.Untested(t, "%s", text)
		program, err := testbed.Find()
		if err != nil {
			t.Fatal(err)
		}
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
			a, b := dial(t, s.Addr()), dial(t, s.Addr())
			for _, p := range promises {
				if !t.Run(p.name, func(t *testing.T) { testbed.UseServer(t, f.Program); p.try(t, s, a, b) }) {
					return // what is left behind would fail the others too
				}
			}
			t.Run("cluster", func(t *testing.T) { testbed.UseServer(t, f.Program); cluster(t) })
		})
	}
}

func dial(t *testing.T, addrs ...string) *redlatch.Client {
	t.Helper()
	return bed.Client(t, addrs[0], func(c *redlatch.Config) { c.Redis.InitAddress = addrs })
}

func lock(t *testing.T, l redlatch.Locker) redlatch.Hold {
	t.Helper()
	return bed.Lock(t, t.Context(), l)
}

func wait(t *testing.T, l redlatch.Locker) <-chan bed.Attempt { return bed.Async(t.Context(), l) }

func busy(t *testing.T, l redlatch.Locker) {
	t.Helper()
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
		t.Fatalf("%v, want busy", err)
	}
}

// handOver shows that a busy lock is busy, and that its unlock wakes who waits.
func handOver(t *testing.T, mine, other redlatch.Locker) {
	t.Helper()
	h := lock(t, mine)
	busy(t, other)
	got := wait(t, other)
	select {
	case r := <-got:
		t.Fatalf("not excluded: %v", r.Err)
	case <-time.After(100 * time.Millisecond):
	}
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Hold(t, got))
}

func exclusion(t *testing.T, _ *testbed.Server, a, b *redlatch.Client) {
	const owners, turns = 8, 25
	inside, total := 0, 0
	var all sync.WaitGroup
	for i := range owners {
		l := []*redlatch.Client{a, b}[i%2].RLock("x")
		all.Go(func() {
			for range turns {
				ctx, cancel := context.WithTimeout(t.Context(), 2*bed.Patience)
				err := l.Do(ctx, func(context.Context) error {
					inside++ // the race detector looks on as well
					if inside != 1 {
						return fmt.Errorf("%d inside", inside)
					}
					total++
					inside--
					return nil
				})
				cancel()
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	all.Wait()
	if total != owners*turns {
		t.Errorf("%d turns, want %d", total, owners*turns)
	}
}

func reentry(t *testing.T, s *testbed.Server, a, b *redlatch.Client) {
	l := a.RLock("r", redlatch.Fenced())
	outer := lock(t, l)
	inner := bed.Lock(t, outer.Context(), l)
	if outer.Token() == 0 || inner.Token() != outer.Token() {
		t.Errorf("tokens %d and %d", outer.Token(), inner.Token())
	}
	if err := inner.Extend(t.Context(), 5*time.Minute); err != nil {
		t.Error(err)
	}
	if left := s.Int(t, "PTTL", "r"); left < 4*time.Minute.Milliseconds() {
		t.Errorf("%d ms left", left)
	}
	bed.Unlock(t, inner)
	busy(t, b.RLock("r"))
	bed.Unlock(t, outer)
	next := lock(t, b.RLock("r", redlatch.Fenced()))
	if next.Token() <= outer.Token() {
		t.Errorf("token %d after %d", next.Token(), outer.Token())
	}
	bed.Unlock(t, next)
}

func fair(t *testing.T, s *testbed.Server, a, b *redlatch.Client) {
	h := lock(t, a.FairLock("f"))
	var queue []<-chan bed.Attempt
	for i := range 4 {
		queue = append(queue, wait(t, []*redlatch.Client{b, a}[i%2].FairLock("f")))
		bed.Eventually(t, "place in the queue", func() bool { return s.Int(t, "LLEN", "redisson_lock_queue:{f}") == int64(i+1) })
	}
	for i, got := range queue {
		bed.Unlock(t, h)
		h = bed.Hold(t, got)
		for _, later := range queue[i+1:] {
			select {
			case <-later:
				t.Fatal("out of turn")
			default:
			}
		}
	}
	bed.Unlock(t, h)
}

func readWrite(t *testing.T, _ *testbed.Server, a, b *redlatch.Client) {
	one, other := a.ReadWriteLock("rw"), b.ReadWriteLock("rw")
	r1, r2 := lock(t, one.ReadLock()), lock(t, other.ReadLock())
	if _, err := one.WriteLock().TryLock(r1.Context(), 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Errorf("%v, want ErrUpgrade", err)
	}
	writer := wait(t, one.WriteLock())
	bed.Unlock(t, r1)
	select {
	case <-writer:
		t.Fatal("a writer beside a reader")
	case <-time.After(50 * time.Millisecond):
	}
	bed.Unlock(t, r2)
	w := bed.Hold(t, writer)
	busy(t, other.ReadLock())
	down := bed.Lock(t, w.Context(), one.ReadLock())
	reader := wait(t, other.ReadLock())
	bed.Unlock(t, w) // a downgrade
	r := bed.Hold(t, reader)
	busy(t, other.WriteLock())
	bed.Unlock(t, down)
	bed.Unlock(t, r)
}

func state(t *testing.T, _ *testbed.Server, a, b *redlatch.Client) {
	h := lock(t, a.RLock("s"))
	st, err := b.RLock("s").State(t.Context())
	if err != nil || !st.Held || len(st.Holders) != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if ok, err := b.RLock("s").ForceUnlock(t.Context()); !ok || err != nil {
		t.Errorf("force: %t, %v", ok, err)
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Errorf("%v, want ErrLeaseLost", err)
	}
}

func wrongType(t *testing.T, s *testbed.Server, a, _ *redlatch.Client) {
	s.Do(t, "SET", "text", "data")
	for _, l := range []redlatch.Locker{a.RLock("text"), a.FairLock("text"), a.ReadWriteLock("text").ReadLock(), a.ReadWriteLock("text").WriteLock()} {
		_, err := l.TryLock(t.Context(), 0, 0)
		var answer *redlatch.ServerError
		if errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("%v", err)
		}
		if errors.As(err, &answer) && answer.ErrorType() != "wrongtype" {
			t.Errorf("%s: %v", answer.ErrorType(), err)
		}
	}
	if got := s.Text(t, "GET", "text"); got != "data" {
		t.Errorf("%q is left", got)
	}
}

// overdue: the only field of a hash has ended, and the server has not removed it yet. Such a
// hash is no lock; the next look may find that it is gone.
func overdue(t *testing.T, s *testbed.Server, a, b *redlatch.Client) {
	if _, err := s.Try("HPEXPIRE", "none", "1", "FIELDS", "1", "f"); err != nil {
		return // fields have no TTLs here
	}
	locks := []redlatch.Locker{a.RLock("o"), b.RLock("o", redlatch.Fenced()), a.FairLock("o"), b.ReadWriteLock("o").ReadLock(), a.ReadWriteLock("o").WriteLock()}
	for i := range 50 {
		s.Do(t, "HSET", "o", "f", "v")
		s.Do(t, "HPEXPIRE", "o", "1", "FIELDS", "1", "f")
		time.Sleep(2 * time.Millisecond)
		switch h, err := locks[i%len(locks)].TryLock(t.Context(), 0, 0); {
		case err == nil:
			bed.Unlock(t, h)
		case !errors.Is(err, redlatch.ErrInvalidName):
			t.Errorf("%T: %v", locks[i%len(locks)], err)
		}
		s.Do(t, "DEL", "o")
	}
}

// outOfMemory: who holds can unlock, who asks is told.
func outOfMemory(t *testing.T, s *testbed.Server, a, b *redlatch.Client) {
	h, f, w := lock(t, a.RLock("m")), lock(t, a.FairLock("mf")), lock(t, a.ReadWriteLock("mw").WriteLock())
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	_, err := b.RLock("n").TryLock(t.Context(), 0, 0)
	var answer *redlatch.ServerError
	if !errors.As(err, &answer) || answer.ErrorType() != "oom" {
		t.Errorf("%v, want OOM", err)
	}
	for _, hold := range []redlatch.Hold{h, f, w} {
		if err := hold.Unlock(t.Context()); err != nil {
			t.Errorf("%s: %v", hold.Name(), err)
		}
	}
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
}

// readOnly: a server that is a replica for a while is no reason to give up.
func readOnly(t *testing.T, s *testbed.Server, a, _ *redlatch.Client) {
	s.Do(t, "REPLICAOF", "127.0.0.1", "1")
	_, err := a.RLock("ro").TryLock(t.Context(), outage, 0)
	var answer *redlatch.ServerError
	if errors.As(err, &answer) || !errors.Is(err, redlatch.ErrUnavailable) {
		t.Errorf("%v, want an outage", err)
	}
	got := wait(t, a.RLock("ro"))
	select {
	case r := <-got:
		t.Errorf("%v", r.Err)
	case <-time.After(100 * time.Millisecond):
	}
	s.Do(t, "REPLICAOF", "NO", "ONE")
	bed.Unlock(t, bed.Hold(t, got))
}

// tooFewReplicas: min-replicas-to-write holds for scripts too, but not on Redis 6.0.
func tooFewReplicas(t *testing.T, s *testbed.Server, a, _ *redlatch.Client) {
	rw := a.ReadWriteLock("few")
	lockers := []redlatch.Locker{a.RLock("few1"), a.FairLock("few2"), a.ReadWriteLock("few3").WriteLock(), rw.ReadLock()}
	h := lock(t, rw.ReadLock())
	s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "1")
	defer s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	if !testbed.ServerVersion(t).AtLeast(6, 2) {
		bed.Unlock(t, lock(t, lockers[0])) // as docs/SERVERS.md says
		bed.Unlock(t, h)
		return
	}
	for _, l := range lockers {
		_, err := l.TryLock(t.Context(), outage, 0)
		var answer *redlatch.ServerError
		if errors.As(err, &answer) || !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("%v, want an outage", err)
		}
	}
	done := make(chan error, 1)
	go func() { done <- h.Unlock(t.Context()) }() // ends with UnlockTimeout
	select {
	case err := <-done:
		t.Errorf("unlocked without a write: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
	if err := <-done; err != nil {
		t.Error(err)
	}
	for _, l := range lockers {
		bed.Unlock(t, lock(t, l))
	}
}

// cluster shows each kind on several nodes, with messages on sharded channels where
// there are any.
func cluster(t *testing.T) {
	c := testbed.Cluster(t)
	a, b := dial(t, c.Addrs()...), dial(t, c.Addrs()...)
	for i, name := range []string{"a", "b", "c", "{x}y"} { // slots of all three masters
		for kind, l := range map[string][2]redlatch.Locker{
			"rlock": {a.RLock(name + "1"), b.RLock(name + "1")},
			"fair":  {a.FairLock(name + "2"), b.FairLock(name + "2")},
			"write": {a.ReadWriteLock(name + "3").WriteLock(), b.ReadWriteLock(name + "3").WriteLock()},
		} {
			if i > 0 && kind != "rlock" {
				continue
			}
			h := lock(t, l[0])
			busy(t, l[1])
			got := wait(t, l[1])
			bed.Eventually(t, "listener for "+kind, func() bool {
				for _, s := range c.Nodes() {
					if len(s.LockChannels(t, "*"+name+"*")) > 0 {
						return true
					}
				}
				return false
			})
			bed.Unlock(t, h)
			bed.Unlock(t, bed.Hold(t, got))
		}
	}
	both := redlatch.MultiLock(a.RLock("a4"), a.RLock("b4"))
	h := lock(t, both)
	busy(t, b.RLock("b4"))
	bed.Unlock(t, h)
	handOver(t, both, b.RLock("a4"))
}
