package fair

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

const name = "orders:42"

// The keys of the lock on the wire.
const (
	queueKey  = "redisson_lock_queue:{" + name + "}"
	scoresKey = "redisson_lock_timeout:{" + name + "}"
	wantsKey  = "redlatch_fair:{" + name + "}"
)

// dial makes a client that is closed with the test, with the lease of those who set none.
func dial(t *testing.T, addr string, opts ...redlatch.ConfigOption) *redlatch.Client {
	t.Helper()
	change := []func(*redlatch.Config){func(c *redlatch.Config) { c.LeaseTime = 30 * time.Second }}
	for _, o := range opts {
		change = append(change, o)
	}
	return bed.Client(t, addr, change...)
}

// eventually waits until ok is true, for at most limit.
func eventually(t *testing.T, limit time.Duration, what string, ok func() bool) {
	t.Helper()
	end := time.Now().Add(limit)
	for !ok() {
		if time.Now().After(end) {
			t.Fatalf("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// queued waits until n waiters stand in the queue.
func queued(t *testing.T, s *testbed.Server, n int64) {
	t.Helper()
	eventually(t, time.Minute, fmt.Sprintf("%d waiters in the queue", n), func() bool {
		return s.Int(t, "LLEN", queueKey) == n
	})
}

// lockIt locks or ends the test.
func lockIt(t *testing.T, l redlatch.Locker, opts ...redlatch.AcquireOption) redlatch.Hold {
	t.Helper()
	h, err := l.Lock(t.Context(), opts...)
	if err != nil {
		t.Fatal(err)
	}
	return h
}

// nothingLeft checks that neither lock nor queue left a key behind.
func nothingLeft(t *testing.T, s *testbed.Server) {
	t.Helper()
	eventually(t, 5*time.Second, "no keys: "+strings.Join(s.List(t, "KEYS", "*"), " "), func() bool {
		return len(s.List(t, "KEYS", "*")) == 0
	})
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

func receive(t *testing.T, from <-chan result, limit time.Duration) result {
	t.Helper()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	select {
	case r := <-from:
		return r
	case <-timer.C:
		t.Fatalf("nothing within %v", limit)
		return result{}
	}
}

// inLine lets so many wait for a lock that nobody else waits for, one behind the other; their ids begin with 0.
func inLine(t *testing.T, s *testbed.Server, n int, l redlatch.Locker) chan result {
	t.Helper()
	got := make(chan result, n)
	for i := range n {
		wait(t.Context(), l, i, got)
		queued(t, s, int64(i+1))
	}
	return got
}

// entered receives from a waiter that has the lock.
func entered(t *testing.T, from <-chan result, limit time.Duration) result {
	t.Helper()
	r := receive(t, from, limit)
	if r.err != nil {
		t.Fatalf("waiter %d: %v", r.id, r.err)
	}
	return r
}

// inTurn receives from a waiter that has the lock, and is this one.
func inTurn(t *testing.T, from <-chan result, limit time.Duration, id int) result {
	t.Helper()
	r := entered(t, from, limit)
	if r.id != id {
		t.Fatalf("waiter %d in the turn of %d", r.id, id)
	}
	return r
}

// seeded is a random source whose seed is told when the test fails.
func seeded(t *testing.T) *rand.Rand {
	t.Helper()
	seed := rand.Uint64()
	if text := os.Getenv("FAIR_SEED"); text != "" {
		var err error
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(func() {
		if t.Failed() {
			t.Logf("repeat with FAIR_SEED=%d", seed)
		}
	})
	return source(seed)
}

func source(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// meter measures how long this process was kept from running: the tests of time
// limits allow for that, and for nothing more than slack besides.
type meter struct{ lost atomic.Int64 }

func newMeter(t *testing.T) *meter {
	t.Helper()
	m, stop, done := &meter{}, make(chan struct{}), make(chan struct{})
	go func() { // ends with the test
		defer close(done)
		const step = 5 * time.Millisecond
		timer := time.NewTimer(step)
		defer timer.Stop()
		for last := time.Now(); ; {
			select {
			case <-stop:
				return
			case <-timer.C:
			}
			now := time.Now()
			if over := now.Sub(last) - step; over > step {
				m.lost.Add(int64(over))
			}
			last = now
			timer.Reset(step)
		}
	}()
	t.Cleanup(func() {
		close(stop)
		<-done
	})
	return m
}

// slack is what a time limit may be passed by.
func (m *meter) slack() time.Duration { return slack + 2*time.Duration(m.lost.Load()) }
