package fair

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// 500 waiters from 8 processes enter in the order in which the server saw them
// arrive: the queue as it stood, against the record made inside the sections.
func TestFIFOOverEightProcesses(t *testing.T) {
	const waiters = 500
	s := bed.Server(t, "record")
	first := lockIt(t, bed.Client(t, s.Addr()).FairLock(name))
	procs := make([]*bed.Worker, 8)
	for i := range procs {
		procs[i] = spawn(t, s, bed.Lease)
	}
	turn := bed.Command{Do: "loop", Kind: "fair", Name: name, Count: 1, Rounds: 1, Notes: "record"}
	for range waiters {
		procs[rand.IntN(len(procs))].Start(t, turn)
	}
	queued(t, s, waiters)
	order, wants, last := s.List(t, "LRANGE", queueKey, "0", "-1"), s.Hash(t, "HGETALL", wantsKey), ""
	for _, f := range order { // the time of arrival stands in the second word
		place := strings.Fields(wants[f])[1]
		if place <= last {
			t.Errorf("%s came at %s and stands behind one that came at %s", f, place, last)
		}
		last = place
	}
	bed.Unlock(t, first)
	bed.Eventually(t, "all served", func() bool { return s.Int(t, "LLEN", "record") == waiters })
	for i, note := range s.List(t, "LRANGE", "record", "0", "-1") {
		if client, _, _ := strings.Cut(note, " "); !strings.HasPrefix(order[i], client+":") {
			t.Fatalf("section %d is of %s, place %d is that of %s", i, client, i, order[i])
		}
	}
	bed.End(t, procs...)
}

// A TryLock that does not wait leaves no place, and does not take a free lock
// that somebody waits for.
func TestTryLockWithoutWait(t *testing.T) {
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name)
	try := func() {
		t.Helper()
		_, err := l.TryLock(t.Context(), 0, 0)
		bed.Want(t, err, redlatch.ErrNotAcquired)
	}
	hold := lockIt(t, l)
	try()
	testbed.Equal(t, s.CommandStats(t).Calls["rpush"], 0, "places in the queue that a TryLock with wait 0 took")
	got := inLine(t, s, 1, patient(t, s.Addr()))
	s.AwaitQuiet(t)
	// As if the holder's lease had run out: free, and nobody has noticed.
	s.Do(t, "DEL", name)
	try()
	bed.Unlock(t, inTurn(t, got, 0)) // it was handed to the one who waits for it
	_ = hold.Unlock(t.Context())
	bed.Unlock(t, lockIt(t, l))
}

// One script and one message per turn: nobody but the next one is woken, and what
// it receives is the lock.
func TestOneCommandAndOneMessagePerTurn(t *testing.T) {
	const waiters = 30
	s := bed.Server(t)
	locks := []redlatch.Locker{patient(t, s.Addr()), patient(t, s.Addr()), patient(t, s.Addr())}
	hold := lockIt(t, locks[0])
	got := make(chan result, waiters)
	for i := range waiters {
		wait(t.Context(), locks[i%len(locks)], i, got)
		queued(t, s, int64(i+1))
	}
	s.AwaitQuiet(t)
	before := s.CommandStats(t)
	for i := range waiters {
		bed.Unlock(t, hold)
		hold = inTurn(t, got, i)
	}
	diff := s.CommandStats(t).Sub(before)
	testbed.Equal(t, diff.Calls["evalsha"], waiters, "scripts")
	testbed.Equal(t, diff.Calls["publish"], waiters, "messages")
	bed.Unlock(t, hold)
}

// A turn is one command: where the way to the server is what takes long, a
// hand-over takes two ways, the release there and the grant back. One that calls
// the waiter, which then asks for the lock, takes four, as the plain lock's does.
// So nothing that goes another way is needed: the answer to the release and all that
// the waiter sends are held up, and the waiter has the lock.
func TestAHandOverTakesTwoWays(t *testing.T) {
	s := bed.Server(t)
	giver, taker := testbed.NewProxy(t, s.Addr()), testbed.NewProxy(t, s.Addr())
	l := patient(t, giver.Addr())
	bed.Unlock(t, lockIt(t, l)) // the server knows the scripts
	hold := lockIt(t, l)
	got := inLine(t, s, 1, patient(t, taker.Addr()))
	s.AwaitQuiet(t) // it listens, and has looked again
	giver.Pause(testbed.Replies)
	taker.Pause(testbed.Requests)
	done := make(chan error, 1)
	go func() { done <- hold.Unlock(t.Context()) }()
	next := inTurn(t, got, 0)
	testbed.Equal(t, len(done), 0, "whether Unlock has returned without its answer: then this tells nothing")
	giver.Resume(testbed.Replies)
	taker.Resume(testbed.Requests)
	bed.Want(t, <-done, nil)
	bed.Unlock(t, next)
}

// State shows who holds the lock and who waits, in order.
func TestStateShowsTheQueue(t *testing.T) {
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name, redlatch.Fenced())
	state := func() (st redlatch.State, queue []string) {
		t.Helper()
		st, err := l.State(t.Context())
		if err != nil || st.QueueLength != len(st.Queue) {
			t.Fatalf("%+v, %v", st, err)
		}
		for _, o := range st.Queue {
			queue = append(queue, o.Owner)
		}
		return st, queue
	}
	if st, queue := state(); st.Held || len(queue) > 0 {
		t.Errorf("free: %+v", st)
	}
	if forced, err := l.ForceUnlock(t.Context()); forced || err != nil {
		t.Errorf("ForceUnlock of a free lock: %v, %v", forced, err)
	}
	hold := lockIt(t, l)
	got := inLine(t, s, 3, l)
	st, queue := state()
	testbed.Equal(t, fmt.Sprint(queue), fmt.Sprint(s.List(t, "LRANGE", queueKey, "0", "-1")), "the queue")
	if !st.Held || st.Mode != redlatch.ModeLock || len(st.Holders) != 1 || st.Holders[0].Count != 1 ||
		st.Token != hold.Token() || st.Remaining <= 0 {
		t.Errorf("held: %+v", st)
	}
	bed.Unlock(t, hold)
	for i := range 3 {
		bed.Unlock(t, inTurn(t, got, i))
	}
}

// Two waits of one owner are two places; when the owner has the lock by one of them, the other
// re-enters and leaves the queue.
func TestTwoWaitsOfOneOwnerAreTwoPlaces(t *testing.T) {
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	owner := redlatch.WithOwner(t.Context(), "job")
	got := make(chan result, 3)
	for i, ctx := range []context.Context{owner, t.Context(), owner} {
		wait(ctx, l, i+1, got)
		queued(t, s, int64(i+1))
	}
	bed.Unlock(t, hold)
	a, b := entered(t, got, bed.Patience), entered(t, got, bed.Patience)
	testbed.Equal(t, fmt.Sprint(min(a.id, b.id), max(a.id, b.id)), "1 3", "who entered")
	queued(t, s, 1)
	bed.Unlock(t, a.hold)
	select {
	case r := <-got:
		t.Fatalf("waiter %d entered a lock that is still held once", r.id)
	case <-time.After(50 * time.Millisecond):
	}
	bed.Unlock(t, b.hold)
	bed.Unlock(t, inTurn(t, got, 2))
}
