package readwrite

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests of who comes next: readers and writers over several processes.

// 20 readers of 4 clients are all inside before one of them leaves, although writers wait, too. Nobody looks by itself
// for ten minutes: the writer's unlock wakes them.
func TestReadersEnterTogetherAfterAWrite(t *testing.T) {
	t.Parallel()
	const clients, each = 4, 5
	s := bed.Loaded(t)
	w := bed.Lock(t, t.Context(), client(t, s, time.Hour).ReadWriteLock("n", told()).WriteLock())
	var readers, writers []<-chan bed.Attempt
	for i := range clients {
		l := client(t, s, time.Hour).ReadWriteLock("n", told())
		writers = append(writers, bed.Async(t.Context(), l.WriteLock()))
		waiting(t, s, "writers", int64(i+1))
		for range each {
			readers = append(readers, bed.Async(t.Context(), l.ReadLock()))
		}
	}
	waiting(t, s, "readers", clients*each)
	bed.Unlock(t, w)
	bed.Unlock(t, bed.Holds(t, readers)...)
	for _, from := range writers {
		bed.Unlock(t, bed.Hold(t, from))
	}
}

// The last read unlock calls one writer, however many wait.
func TestLastReadUnlockCallsOneWriter(t *testing.T) {
	t.Parallel()
	const clients, each = 8, 5
	s := bed.Loaded(t)
	l := client(t, s, time.Hour).ReadWriteLock("n").ReadLock()
	r1, r2 := bed.Lock(t, t.Context(), l), bed.Lock(t, t.Context(), l)
	got := make(chan bed.Attempt, clients*each)
	enter := func(l redlatch.Locker) {
		h, err := l.Lock(t.Context())
		got <- bed.Attempt{Hold: h, Err: err}
	}
	var locks []redlatch.Locker
	for range clients {
		// Without refreshes of places and renewals nothing else sends commands, but a look each second.
		locks = append(locks, client(t, s, time.Hour).ReadWriteLock("n", rwlock.WithSkipAfter(time.Hour)).WriteLock())
		go enter(locks[len(locks)-1])
	}
	waiting(t, s, "writers", clients)
	listening(t, s, clients)
	for i := range clients * (each - 1) {
		go enter(locks[i%clients]) // behind the first of its client
	}
	s.AwaitQuiet(t)
	before, began := s.CommandStats(t), time.Now()
	bed.Unlock(t, r1, r2)
	h := bed.Hold(t, got)
	looks := clients * int64(1+time.Since(began)/time.Second) / 2
	testbed.AtMost(t, s.CommandStats(t).Sub(before).Calls["evalsha"], 3+looks, "commands for two read unlocks, their own and one attempt")
	bed.Unlock(t, h)
	for range clients*each - 1 {
		bed.Unlock(t, bed.Hold(t, got))
	}
}

// 32 readers of 4 processes loop without a pause; a
// writer enters as soon as those inside have left. With PreferReaders it does not.
func TestWriterIsNotStarved(t *testing.T) {
	const procs, each, hold, tries = 4, 8, 250 * time.Millisecond, 5
	for _, prefer := range []bool{false, true} {
		t.Run(map[bool]string{false: "readers stand back", true: "PreferReaders"}[prefer], func(t *testing.T) {
			t.Parallel()
			s := bed.Loaded(t)
			var ps []*bed.Worker
			for range procs {
				p := spawn(t, s, 0)
				p.Start(t, bed.Command{ID: 1, Do: "loop", Kind: "read", Name: "n", Prefer: prefer, Count: each, Hold: hold})
				p.Await(t, 1, "looping")
				ps = append(ps, p)
			}
			// Readers one after the other would never leave a gap. A server that stands still for longer than they hold
			// finds the unlocks of all of them then, and may serve the writer also where readers prefer themselves.
			l, entered, wait := client(t, s, 0).ReadWriteLock("n").WriteLock(), 0, hold+4*time.Second
			if prefer {
				wait = 8 * hold
			}
			for range tries {
				h, err := l.TryLock(t.Context(), wait, 0)
				if err == nil {
					entered++
					bed.Unlock(t, h)
				} else if !errors.Is(err, redlatch.ErrNotAcquired) {
					t.Fatal(err)
				}
				time.Sleep(hold / 2) // let the readers mix again
			}
			if prefer && entered == tries || !prefer && entered < tries {
				t.Errorf("a writer entered %d times of %d, with a wait of %v", entered, tries, wait)
			}
			for _, p := range ps {
				p.Start(t, bed.Command{ID: 1, Do: "cancel"})
				if n := p.Await(t, 1, "looped").Count; n < each*tries && !prefer {
					t.Errorf("only %d read locks in a process: the readers starved", n)
				}
			}
			bed.End(t, ps...)
		})
	}
}

// Writers of 4 processes loop without a pause; a
// reader that waits enters after the phase that was under way, not later.
func TestReadersAreNotStarved(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	for range 4 {
		l := client(t, s, 0).ReadWriteLock("n").WriteLock()
		for range 2 {
			wg.Go(func() {
				for {
					h, err := l.Lock(ctx)
					if err != nil {
						return
					}
					s.Do(t, "INCR", "phases")
					time.Sleep(2 * time.Millisecond)
					bed.Unlock(t, h)
				}
			})
		}
	}
	c, proxy := proxied(t, s, 0, 0)
	reader := c.ReadWriteLock("n").ReadLock()
	bed.Eventually(t, "writers at work", func() bool { return s.Int(t, "EXISTS", "phases") == 1 })
	for range 100 {
		asks := proxy.StallReply(testbed.Contains("EVALSHA", luascript.RWRead.SHA))
		got := bed.Async(t.Context(), reader)
		asks.Wait(t) // not before the server knows of it: how long that takes is the machine's affair
		before := s.Int(t, "GET", "phases")
		asks.Release()
		h := bed.Hold(t, got)
		// One may have been under way when the reader asked, and have counted itself later.
		testbed.AtMost(t, s.Int(t, "GET", "phases")-before, 1, "write phases that began while a reader waited")
		bed.Unlock(t, h)
	}
	cancel()
	wg.Wait()
	s.Do(t, "DEL", "phases")
}

// Readers stand back for a waiting writer, but not who is inside or prefers readers.
func TestReadersStandBackForAWaitingWriter(t *testing.T) {
	s := bed.Loaded(t)
	c1, c2 := client(t, s, 0), client(t, s, 0)
	l1, l2 := c1.ReadWriteLock("n", told()), c2.ReadWriteLock("n", told())
	r := bed.Lock(t, t.Context(), l1.ReadLock())
	wctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	writer := bed.Async(wctx, l2.WriteLock())
	waiting(t, s, "writers", 1)
	busy(t, t.Context(), l1.ReadLock())
	busy(t, t.Context(), l2.ReadLock())
	bed.Unlock(t, bed.Lock(t, r.Context(), l1.ReadLock())) // inside already
	bed.Unlock(t, bed.Lock(t, t.Context(), c2.ReadWriteLock("n", rwlock.PreferReaders()).ReadLock()))

	// A writer that gives up lets them in at once.
	back := bed.Async(t.Context(), l1.ReadLock())
	waiting(t, s, "readers", 1)
	giveUp()
	gaveUp := bed.Get(t, writer).Err
	bed.Want(t, gaveUp, context.Canceled)
	bed.Want(t, gaveUp, redlatch.ErrNotAcquired)
	bed.Unlock(t, bed.HoldWithin(t, soon, back), r)
}

// Marks of writers that come after
// a reader do not hold it back.
func TestReadersOutliveAFloodOfWritersThatGiveUp(t *testing.T) {
	t.Parallel()
	const writers = 4 // their waits overlap: there is always a mark
	s := bed.Loaded(t)
	inside := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n").ReadLock())
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	var tries atomic.Int64
	defer wg.Wait()
	defer cancel()
	for range writers {
		l := client(t, s, 0).ReadWriteLock("n").WriteLock()
		wg.Go(func() {
			for ctx.Err() == nil {
				tries.Add(1)
				if h, err := l.TryLock(ctx, 200*time.Millisecond, 0); err == nil {
					t.Error("a writer beside a reader")
					_ = h.Unlock(context.Background())
				}
			}
		})
	}
	waiting(t, s, "writers", writers)
	for range 5 {
		before := tries.Load()
		h := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n").ReadLock())
		// It waits for those that came before it. What they leave is undone in the background. They come
		// five times a second, also while the reader stands still; one that they hold back never enters.
		testbed.AtMost(t, tries.Load()-before, 20*writers, "writers that came and went while a reader waited that had come before")
		bed.Unlock(t, h)
	}
	cancel()
	wg.Wait()
	bed.Unlock(t, inside)
}

// A waiting writer, and a waiting reader whose turn it is, are passed over when they die without a
// word.
func TestDeadWaitersArePassedOver(t *testing.T) {
	const skip = 5 * time.Second // a living waiter that stands still for four fifths of it is passed over, rightly
	start := func(t *testing.T) (*testbed.Server, *bed.Worker, *rwlock.ReadWriteLock) {
		t.Helper()
		t.Parallel()
		s := bed.Loaded(t)
		return s, spawn(t, s, 0), client(t, s, 0).ReadWriteLock("n", rwlock.WithSkipAfter(skip))
	}
	for name, more := range map[string]int64{"writer": 0, "writer, with a living one that came later": 1} {
		t.Run(name, func(t *testing.T) {
			s, p, l := start(t)
			r := bed.Lock(t, t.Context(), l.ReadLock())
			p.Start(t, ask("write", skip))
			waiting(t, s, "writers", 1)
			back := bed.Async(t.Context(), l.ReadLock())
			waiting(t, s, "readers", 1)
			var later []<-chan bed.Attempt
			for range more { // which keeps the sets of marks alive
				later = append(later, bed.Async(t.Context(), l.WriteLock()))
			}
			waiting(t, s, "writers", 1+more)
			time.Sleep(skip + skip/2) // it is refreshed: longer than its first life time
			blocked(t, "the reader", back)
			p.Kill(t)
			bed.Unlock(t, bed.HoldWithin(t, skip+soon, back), r)
			bed.Unlock(t, bed.Holds(t, later)...)
		})
	}
	t.Run("reader", func(t *testing.T) {
		s, p, l := start(t)
		w := bed.Lock(t, t.Context(), l.WriteLock())
		p.Start(t, ask("read", skip))
		waiting(t, s, "readers", 1)
		next := bed.Async(t.Context(), l.WriteLock())
		waiting(t, s, "writers", 1)
		p.Kill(t)
		bed.Unlock(t, w)
		bed.Unlock(t, bed.HoldWithin(t, skip+soon, next))
	})
	t.Run("frozen writer comes back", func(t *testing.T) {
		s, p, l := start(t)
		r := bed.Lock(t, t.Context(), l.ReadLock())
		id := p.Start(t, ask("write", skip))
		waiting(t, s, "writers", 1)
		p.Freeze(t)
		h := bed.HoldWithin(t, skip+soon, bed.Async(t.Context(), l.ReadLock()))
		p.Thaw(t)
		waiting(t, s, "writers", 1) // it takes a new place
		bed.Unlock(t, h, r)
		p.Await(t, id, "locked")
		p.Unlock(t, id)
		bed.End(t, p)
	})
}

// The turn is kept for a reader that is slow to take it, and given up by one that leaves: a writer
// enters then, not after the skip time.
func TestTurnIsKeptForAReader(t *testing.T) {
	for _, leaves := range []bool{false, true} {
		t.Run(map[bool]string{false: "is slow", true: "leaves"}[leaves], func(t *testing.T) {
			t.Parallel()
			s := bed.Loaded(t)
			c, proxy := proxied(t, s, 0, 0)
			l := client(t, s, 0).ReadWriteLock("n", told())
			w := bed.Lock(t, t.Context(), l.WriteLock())
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			got := bed.Async(ctx, c.ReadWriteLock("n", told()).ReadLock())
			waiting(t, s, "readers", 1)
			next := bed.Async(t.Context(), l.WriteLock())
			waiting(t, s, "writers", 1)
			s.AwaitQuiet(t)
			proxy.Pause(testbed.Replies) // it hears nothing, but is heard
			began := time.Now()
			bed.Unlock(t, w)
			blocked(t, "a writer, before a reader whose turn it is,", next)
			if leaves {
				cancel()
				bed.Unlock(t, bed.HoldWithin(t, soon, next))
			}
			proxy.Resume(testbed.Replies)
			if leaves {
				return
			}
			select {
			case a := <-got:
				bed.Unlock(t, a.Hold)
				bed.Unlock(t, bed.HoldWithin(t, soon, next))
			case a := <-next:
				if time.Since(began) < time.Second { // else the machine stood still
					t.Error("the turn of a living reader did not last for a second")
				}
				bed.Unlock(t, a.Hold)
				bed.Unlock(t, bed.HoldWithin(t, soon, got))
			}
		})
	}
}

// Writers of several processes enter in the order in which they were refused
// first, whoever held the lock. One that nobody hears yet when it is called loses its place, so all listen first.
func TestWritersEnterInTheirOrder(t *testing.T) {
	t.Parallel()
	const writers, rounds = 6, 5
	s := bed.Loaded(t)
	var locks []redlatch.Locker
	for range writers {
		locks = append(locks, client(t, s, 30*time.Second).ReadWriteLock("n").WriteLock())
	}
	other := client(t, s, 30*time.Second).ReadWriteLock("n")
	for round := range rounds {
		h := bed.Lock(t, t.Context(), []redlatch.Locker{other.ReadLock(), other.WriteLock()}[round%2])
		var got []<-chan bed.Attempt
		for i, l := range locks {
			got = append(got, bed.Async(t.Context(), l))
			waiting(t, s, "writers", int64(i)+1)
			bed.Eventually(t, "it listens", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel("n")+"*:write")) > i })
		}
		bed.Unlock(t, h)
		for i := range got {
			h := bed.Hold(t, got[i])
			for later, from := range got[i+1:] {
				if len(from) > 0 {
					t.Fatalf("round %d: writer %d entered beside number %d", round, i+1+later, i)
				}
			}
			bed.Unlock(t, h)
		}
	}
}
