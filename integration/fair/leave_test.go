package fair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Close ends its waits and takes their places out of the queue before it returns.
func TestCloseLeavesTheQueues(t *testing.T) {
	s := bed.Server(t)
	l := dial(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	closing := dial(t, s.Addr())
	got := make(chan result, 20)
	for i := range 20 {
		wait(t.Context(), closing.FairLock(name), i, got)
	}
	queued(t, s, 20)
	closing.Close()
	for range 20 {
		if r := receive(t, got, time.Second); !errors.Is(r.err, redlatch.ErrClosed) {
			t.Errorf("%v", r.err)
		}
	}
	if n := s.Int(t, "EXISTS", queueKey, scoresKey, wantsKey); n != 0 {
		t.Errorf("%d keys of the queue are left after Close", n)
	}
	bed.Unlock(t, hold)
	nothingLeft(t, s)
}

// In a long queue those who leave from the middle leave their entry behind,
// marked: it counts for nothing and costs nobody anything.
func TestALongQueueEmptiesInAnyOrder(t *testing.T) {
	s := bed.Server(t)
	l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Minute))
	hold := lockIt(t, l)
	const waiters = 600
	got := make(chan result, waiters)
	cancels := make([]context.CancelFunc, waiters)
	for i := range cancels {
		var ctx context.Context
		ctx, cancels[i] = context.WithCancel(t.Context())
		defer cancels[i]()
		wait(ctx, l, i, got)
		queued(t, s, int64(i+1))
	}
	leave := func(ids ...int) {
		for _, id := range ids {
			cancels[id]()
		}
		for range ids {
			if r := receive(t, got, 5*time.Second); !slices.Contains(ids, r.id) || r.err == nil {
				t.Fatalf("waiter %d: %v", r.id, r.err)
			}
		}
	}
	length := func(want int) {
		t.Helper()
		eventually(t, 5*time.Second, fmt.Sprintf("%d waiters in State", want), func() bool {
			st, err := l.State(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			return st.QueueLength == want && len(st.Queue) == want
		})
	}
	// from the middle: the list keeps most of them for the time being
	var some []int
	for i := 100; i < 200; i++ {
		some = append(some, i)
	}
	leave(some...)
	length(500)
	if n := s.Int(t, "LLEN", queueKey); n != waiters {
		t.Errorf("list of %d: the entries were searched for", n)
	}
	// the last ones: the list never ends with a marked entry
	leave(596, 597, 598)
	leave(599)
	length(496)
	if score := s.Int(t, "ZSCORE", scoresKey, s.Text(t, "LINDEX", queueKey, "-1")); score == 0 {
		t.Error("the list ends with a marked entry")
	}
	// more than half of it: the list is made anew
	some = some[:0]
	for i := 200; i < 590; i++ {
		some = append(some, i)
	}
	leave(some...)
	length(106)
	if n := s.Int(t, "LLEN", queueKey); n >= 2*106+64 {
		t.Errorf("list of %d for 106 waiters", n)
	}
	bed.Unlock(t, hold)
	for i := range waiters {
		if (i >= 100 && i < 590) || i >= 596 {
			continue
		}
		bed.Unlock(t, inTurn(t, got, 5*time.Second, i).hold)
	}
	nothingLeft(t, s)
}

// The lock is handed to a waiter that gives up in the same moment: it passes it
// on, and the next one enters at once.
func TestALateGrantIsPassedOn(t *testing.T) {
	s := bed.Server(t)
	proxy := testbed.NewProxy(t, s.Addr())
	slow := fairlock.WithSkipAfter(time.Minute) // no refresh helps
	l := dial(t, s.Addr()).FairLock(name, slow)
	hold := lockIt(t, l)
	got := make(chan result, 2)
	ctx, cancel := context.WithCancel(t.Context())
	wait(ctx, dial(t, proxy.Addr()).FairLock(name, slow), 1, got)
	queued(t, s, 1)
	calm(t, s)
	wait(t.Context(), l, 2, got)
	queued(t, s, 2)
	calm(t, s)
	proxy.Pause(testbed.Replies) // the grant is on its way
	bed.Unlock(t, hold)
	cancel()
	r, left := receive(t, got, time.Second), receive(t, got, time.Second)
	if r.id == 1 { // it looks for a moment whether it is rid of the grant
		r, left = left, r
	}
	if !errors.Is(left.err, context.Canceled) {
		t.Fatalf("waiter %d: %v", left.id, left.err)
	}
	if r.err != nil {
		t.Fatalf("waiter %d: %v", r.id, r.err)
	}
	proxy.Resume(testbed.Replies)
	bed.Unlock(t, r.hold)
	nothingLeft(t, s)
}

// A waiter whose key is no lock any more returns at once with its error, and its
// place goes with it: it would hold up those who wait once the key is a lock again.
func TestWhoIsRefusedForGoodLeavesTheQueue(t *testing.T) {
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	got := make(chan result, 1)
	wait(t.Context(), l, 0, got)
	queued(t, s, 1)
	s.Do(t, "SET", name, "data")
	if r := receive(t, got, 20*time.Second); !errors.Is(r.err, redlatch.ErrInvalidName) {
		t.Fatalf("the waiter: %v", r.err)
	}
	eventually(t, 5*time.Second, "an empty queue", func() bool { return s.Int(t, "EXISTS", queueKey, scoresKey, wantsKey) == 0 })
	if err := hold.Unlock(context.Background()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Errorf("Unlock: %v", err)
	}
}
