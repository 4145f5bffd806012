package fair

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

const name = "orders:42"

// The keys of the lock on the wire.
const (
	queueKey  = "redisson_lock_queue:{" + name + "}"
	scoresKey = "redisson_lock_timeout:{" + name + "}"
	wantsKey  = "redlatch_fair:{" + name + "}"
)

const (
	skip = fairlock.DefaultSkipAfter
	// slack is what a busy machine may add to a limit of the lock's.
	slack = 3 * time.Second
)

// patient makes a lock of a client of its own whose waiters refresh their places after the test only.
func patient(t *testing.T, addr string, opts ...redlatch.Option) redlatch.Locker {
	t.Helper()
	return bed.Client(t, addr).FairLock(name, append(opts, fairlock.WithSkipAfter(10*time.Minute))...)
}

// queued waits until n waiters stand in the queue.
func queued(t *testing.T, s *testbed.Server, n int64) {
	t.Helper()
	bed.Eventually(t, fmt.Sprintf("%d waiters in the queue", n), func() bool { return s.Int(t, "LLEN", queueKey) == n })
}

// lockIt locks or ends the test.
func lockIt(t *testing.T, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold {
	t.Helper()
	return bed.Lock(t, t.Context(), l, opts...)
}

// nothingLeft checks that neither lock nor queue left a key behind.
func nothingLeft(t *testing.T, s *testbed.Server) {
	t.Helper()
	bed.Eventually(t, "no keys", func() bool { return s.Int(t, "DBSIZE") == 0 })
}

// result is what a waiting goroutine came to.
type result struct {
	id   int
	hold redlatch.Hold
	err  error
	at   time.Time
}

// wait locks in a goroutine; the result comes on the channel.
func wait(ctx context.Context, l redlatch.Locker, id int, to chan<- result, opts ...redlatch.AcquireOption) {
	go func() {
		h, err := l.Lock(ctx, opts...)
		to <- result{id, h, err, time.Now()}
	}()
}

// inLine lets so many wait for a lock that nobody else waits for, one behind the other; their ids begin with 0.
func inLine(t *testing.T, s *testbed.Server, n int, l redlatch.Locker, opts ...redlatch.AcquireOption) chan result {
	t.Helper()
	got := make(chan result, n)
	for i := range n {
		wait(t.Context(), l, i, got, opts...)
		queued(t, s, int64(i+1))
	}
	return got
}

// entered receives from a waiter that has the lock.
func entered(t *testing.T, from <-chan result, limit time.Duration) result {
	t.Helper()
	r := bed.Receive(t, limit, from)
	if r.err != nil {
		t.Fatalf("waiter %d: %v", r.id, r.err)
	}
	return r
}

// inTurn receives from a waiter that has the lock, and is this one.
func inTurn(t *testing.T, from <-chan result, id int) redlatch.Hold {
	t.Helper()
	r := entered(t, from, bed.Patience)
	if r.id != id {
		t.Fatalf("waiter %d in the turn of %d", r.id, id)
	}
	return r.hold
}

// refreshed waits until the places have just been refreshed.
func refreshed(t *testing.T, s *testbed.Server) {
	t.Helper()
	s.AwaitQuiet(t)
	before := s.CommandStats(t).Calls["evalsha"]
	bed.Eventually(t, "a refresh", func() bool { return s.CommandStats(t).Calls["evalsha"] > before })
}

// spawn starts a process whose holds have this lease.
func spawn(t *testing.T, s *testbed.Server, lease time.Duration) *bed.Worker {
	t.Helper()
	return bed.Spawn(t, bed.Setup{Addrs: []string{s.Addr()}, Lease: lease})
}

// ask asks for the lock in such a process.
func ask(skip time.Duration) bed.Command {
	return bed.Command{Do: "lock", Kind: "fair", Name: name, Skip: skip}
}
