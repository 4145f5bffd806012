package fair

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/testbed"
)

// 500 waiters from 8 processes enter in the order in which the server saw them
// arrive: the queue as it stood, against the record made inside the sections.
func TestFIFOOverEightProcesses(t *testing.T) {
	s := bed.Server(t, recordKey)
	l := dial(t, s.Addr()).FairLock(name)
	first := lockIt(t, l)
	procs := make([]*testbed.Process, 8)
	for i := range procs {
		procs[i] = spawn(t, s, 30*time.Second, 5*time.Second)
	}
	const waiters = 500
	for i := range waiters {
		procs[i%len(procs)].Send(t, "run %d 0", i)
	}
	queued(t, s, waiters)
	want := s.List(t, "LRANGE", queueKey, "0", "-1")
	wants, last := s.Hash(t, "HGETALL", wantsKey), ""
	for _, f := range want { // the time of arrival stands in the second word
		if place := strings.Fields(wants[f])[1]; place <= last {
			t.Errorf("%s came at %s and stands behind one that came at %s", f, place, last)
		} else {
			last = place
		}
	}
	bed.Unlock(t, first)
	eventually(t, 30*time.Second, "all served", func() bool { return s.Int(t, "LLEN", recordKey) == waiters })
	got := s.List(t, "LRANGE", recordKey, "0", "-1")
	for i, f := range got { // a hold's field also tells for how long it had waited
		got[i] = kind.EntryOf(f)
	}
	if !slices.Equal(got, want) {
		t.Errorf("order of the sections:\n%v\norder of arrival:\n%v", got, want)
	}
	for _, p := range procs {
		p.Send(t, "close")
		p.Expect(t, "closed")
		p.CloseInput(t)
		if err := p.Wait(t); err != nil {
			t.Error(err)
		}
	}
}

// A re-entry passes the queue, which is served after the last unlock.
func TestReentryPassesTheQueue(t *testing.T) {
	s := bed.Server(t)
	c := dial(t, s.Addr())
	outer := lockIt(t, c.FairLock(name))
	got := inLine(t, s, 1, c.FairLock(name))
	inner, err := c.FairLock(name).TryLock(outer.Context(), 0, 0)
	if err != nil {
		t.Fatalf("re-entry: %v", err)
	}
	bed.Unlock(t, outer)
	if n := s.Int(t, "LLEN", queueKey); n != 1 {
		t.Errorf("queue of %d after the first of two unlocks", n)
	}
	bed.Unlock(t, inner)
	bed.Unlock(t, receive(t, got, 5*time.Second).hold)
	nothingLeft(t, s)
}

// A TryLock that does not wait leaves no place, and does not take a free lock
// that somebody waits for.
func TestTryLockWithoutWait(t *testing.T) {
	s := testbed.Standalone(t)
	c := dial(t, s.Addr())
	l := c.FairLock(name)
	hold := lockIt(t, l)
	var busy *redlatch.NotAcquiredError
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.As(err, &busy) || busy.Holder == "" || busy.Remaining <= 0 {
		t.Errorf("busy: %v", err)
	}
	if n := s.CommandStats(t).Calls["rpush"]; n != 0 {
		t.Error("a TryLock with wait 0 stood in the queue")
	}
	p := spawn(t, s, 30*time.Second, 20*time.Second)
	p.Send(t, "lock a")
	queued(t, s, 1)
	p.Freeze(t)
	// As if the holder's lease had run out: free, and nobody has noticed.
	s.Do(t, "DEL", name)
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Errorf("free, but somebody waits: %v", err)
	}
	if n := s.Int(t, "EXISTS", name); n != 1 {
		t.Error("the free lock was not handed to the one who waits for it")
	}
	p.Thaw(t)
	p.Expect(t, "got a")
	_ = hold.Unlock(t.Context())
	p.Send(t, "unlock a")
	p.Expect(t, "unlocked a")
	bed.Unlock(t, lockIt(t, l))
}

// One script and one message per turn: nobody but the next one is woken, and what
// it receives is the lock.
func TestOneCommandAndOneMessagePerTurn(t *testing.T) {
	s := bed.Server(t)
	locks := []*fairlock.FairLock{}
	for range 3 {
		// so long that no refresh falls into the test
		locks = append(locks, dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(10*time.Minute)))
	}
	hold := lockIt(t, locks[0])
	const waiters = 30
	got := make(chan result, waiters)
	for i := range waiters {
		wait(t.Context(), locks[i%len(locks)], i, got)
		queued(t, s, int64(i+1))
	}
	calm(t, s)
	before := s.CommandStats(t)
	for i := range waiters {
		bed.Unlock(t, hold)
		r := inTurn(t, got, 5*time.Second, i)
		hold = r.hold
	}
	diff := s.CommandStats(t).Sub(before)
	if diff.Calls["evalsha"] != waiters || diff.Calls["publish"] != waiters {
		t.Errorf("%d turns took %d scripts and %d messages", waiters, diff.Calls["evalsha"], diff.Calls["publish"])
	}
	bed.Unlock(t, hold)
	nothingLeft(t, s)
}

// calm waits until no script has run for a while: in many looks one after another, since a pause
// of this process's own says nothing.
func calm(t *testing.T, s *testbed.Server) {
	t.Helper()
	s.AwaitQuiet(t)
}

// refreshed waits until the places have just been refreshed.
func refreshed(t *testing.T, s *testbed.Server) {
	t.Helper()
	calm(t, s)
	before := s.CommandStats(t).Calls["evalsha"]
	eventually(t, 30*time.Second, "a refresh", func() bool { return s.CommandStats(t).Calls["evalsha"] > before })
}

// State shows who holds the lock and who waits, in order.
func TestStateShowsTheQueue(t *testing.T) {
	s := testbed.Standalone(t)
	c := dial(t, s.Addr())
	l := c.FairLock(name, redlatch.Fenced())
	if st, err := l.State(t.Context()); err != nil || st.Held || st.QueueLength != 0 {
		t.Errorf("free: %+v, %v", st, err)
	}
	if forced, err := l.ForceUnlock(t.Context()); forced || err != nil {
		t.Errorf("ForceUnlock of a free lock: %v, %v", forced, err)
	}
	hold := lockIt(t, l)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan result, 3)
	for i := range 3 {
		wait(ctx, l, i, got)
		queued(t, s, int64(i+1))
	}
	st, err := l.State(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var queue []string
	for _, o := range st.Queue {
		queue = append(queue, o.Owner)
	}
	if want := s.List(t, "LRANGE", queueKey, "0", "-1"); !slices.Equal(queue, want) || st.QueueLength != 3 {
		t.Errorf("queue of %d: %v, not %v", st.QueueLength, queue, want)
	}
	if !st.Held || st.Mode != redlatch.ModeLock || len(st.Holders) != 1 || st.Holders[0].Count != 1 ||
		st.Token != hold.Token() || st.Remaining <= 0 {
		t.Errorf("held: %+v", st)
	}
	cancel()
	for range 3 {
		receive(t, got, 5*time.Second)
	}
	bed.Unlock(t, hold)
	eventually(t, 5*time.Second, "an empty queue", func() bool { return s.Int(t, "LLEN", queueKey) == 0 })
}

// Two waits of one owner are two places; when the owner has the lock by one of them, the other
// re-enters and leaves the queue.
func TestTwoWaitsOfOneOwnerAreTwoPlaces(t *testing.T) {
	s := bed.Server(t)
	c := dial(t, s.Addr())
	l := c.FairLock(name)
	hold := lockIt(t, l)
	owner := redlatch.WithOwner(t.Context(), "job")
	got := make(chan result, 3)
	wait(owner, l, 1, got)
	queued(t, s, 1)
	wait(t.Context(), l, 2, got)
	queued(t, s, 2)
	wait(owner, l, 3, got)
	queued(t, s, 3)
	bed.Unlock(t, hold)
	a, b := receive(t, got, 5*time.Second), receive(t, got, 5*time.Second)
	if ids := fmt.Sprint(min(a.id, b.id), max(a.id, b.id)); a.err != nil || b.err != nil || ids != "1 3" {
		t.Fatalf("entered: %d %v and %d %v", a.id, a.err, b.id, b.err)
	}
	queued(t, s, 1)
	bed.Unlock(t, a.hold)
	select {
	case r := <-got:
		t.Fatalf("waiter %d entered a lock that is still held once", r.id)
	case <-time.After(50 * time.Millisecond):
	}
	bed.Unlock(t, b.hold)
	bed.Unlock(t, receive(t, got, 5*time.Second).hold)
	nothingLeft(t, s)
}
