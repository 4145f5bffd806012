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

// 20 readers of 4 processes are all inside before one of
// them leaves, although writers wait, too. Nobody looks by itself for ten minutes: the writer's
// unlock wakes them.
func TestReadersEnterTogetherAfterAWrite(t *testing.T) {
	t.Parallel()
	const procs, each, skip = 4, 5, 10 * time.Minute
	s := server(t)
	w := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n", rwlock.WithSkipAfter(skip)).WriteLock(), redlatch.WithLease(skip))
	type waiter struct {
		p  *bed.Worker
		id int
	}
	var readers []waiter
	writers := map[*bed.Worker]int{}
	for range procs {
		p := spawn(t, s, 0)
		p.Start(t, ask("write", skip))
		writers[p] = 1
		for range each {
			readers = append(readers, waiter{p, p.Start(t, ask("read", skip))})
		}
	}
	waiting(t, s, "readers", procs*each)
	waiting(t, s, "writers", procs)
	begin := time.Now()
	unlock(t, w)
	for _, r := range readers {
		r.p.Await(t, r.id, "locked")
	}
	t.Logf("all %d inside after %v", len(readers), time.Since(begin))
	for _, r := range readers {
		r.p.Unlock(t, r.id)
	}
	serve(t, writers)
}

// serve unlocks the holds that the commands of several processes get, one
// after the other, until each process has had as many as told.
func serve(t *testing.T, left map[*bed.Worker]int) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for ; len(left) > 0; time.Sleep(2 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("some were not served: %v", left)
		}
		for p := range left {
			if a, ok := p.Take(t, "locked"); ok {
				p.Unlock(t, a.ID)
				if left[p]--; left[p] == 0 {
					delete(left, p)
				}
			}
		}
	}
}

// The last read unlock calls one writer, however many wait.
func TestLastReadUnlockCallsOneWriter(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := client(t, s, time.Hour)
	r1 := bed.Lock(t, t.Context(), c.ReadWriteLock("n").ReadLock())
	r2 := bed.Lock(t, t.Context(), c.ReadWriteLock("n").ReadLock())
	const procs, each = 8, 5
	left := map[*bed.Worker]int{}
	before := s.CommandStats(t)
	scripts := func() int64 { return s.CommandStats(t).Sub(before).Calls["evalsha"] }
	for range procs {
		// Without refreshes of places and renewals nothing else sends commands, but a look each second.
		p := spawn(t, s, time.Hour)
		p.Start(t, ask("write", time.Hour))
		left[p] = each
	}
	waiting(t, s, "writers", procs)
	listening(t, s, procs)
	for p := range left {
		for range each - 1 {
			p.Start(t, ask("write", time.Hour))
		}
	}

	before = s.CommandStats(t)
	began := time.Now()
	unlock(t, r1)
	unlock(t, r2)
	bed.Eventually(t, "a writer enters", func() bool { return s.Hash(t, "HGETALL", "n")["mode"] == "write" })
	took := time.Since(began)
	looks := int64(procs) * int64(1+took/time.Second) / 2
	if n := scripts(); n > 3+looks {
		t.Errorf("%d commands for two read unlocks within %v, want their own and one attempt", n, took)
	}
	serve(t, left)
}

// 32 readers of 4 processes loop without a pause; a
// writer enters as soon as those inside have left. With PreferReaders it does not.
func TestWriterIsNotStarved(t *testing.T) {
	t.Parallel()
	const procs, each, hold = 4, 8, 250 * time.Millisecond
	for _, prefer := range []bool{false, true} {
		s := server(t)
		c := client(t, s, 0)
		var ps []*bed.Worker
		for range procs {
			p := spawn(t, s, 0)
			p.Start(t, bed.Command{ID: 1, Do: "loop", Kind: "read", Name: "n", Prefer: prefer, Count: each, Hold: hold})
			ps = append(ps, p)
		}
		for _, p := range ps {
			p.Await(t, 1, "looping")
		}
		l := c.ReadWriteLock("n").WriteLock()
		if prefer {
			// The way to see that the rest of this test could fail. A server that stands still for longer
			// than they hold finds the unlocks of all of them then, and may serve the writer next.
			kept := false
			for range 5 {
				h, err := l.TryLock(t.Context(), 8*hold, 0)
				if kept = errors.Is(err, redlatch.ErrNotAcquired); kept {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				unlock(t, h)
			}
			if !kept {
				t.Error("writers entered among readers that prefer themselves: they do not overlap, the test shows nothing")
			}
		} else {
			for range 5 {
				start := time.Now()
				h, err := l.TryLock(t.Context(), 10*time.Second, 0)
				if err != nil {
					t.Fatal(err)
				}
				took := time.Since(start)
				t.Logf("a writer among %d looping readers waited %v", procs*each, took)
				if took > hold+4*time.Second { // readers one after the other would never leave a gap
					t.Errorf("a writer waited %v for readers that hold for %v", took, hold)
				}
				unlock(t, h)
				time.Sleep(hold / 2) // let the readers mix again
			}
		}
		for _, p := range ps {
			p.Start(t, bed.Command{ID: 1, Do: "cancel"})
			if n := p.Await(t, 1, "looped").Count; n < each*5 && !prefer {
				t.Errorf("only %d read locks in a process: the readers starved", n)
			}
		}
		bed.End(t, ps...)
	}
}

// Writers of 4 processes loop without a pause; a
// reader that waits enters after the phase that was under way, not later.
func TestReadersAreNotStarved(t *testing.T) {
	t.Parallel()
	s := server(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for range 4 {
		c := client(t, s, 0)
		l := c.ReadWriteLock("n").WriteLock()
		for range 2 {
			wg.Go(func() {
				for ctx.Err() == nil {
					h, err := l.Lock(ctx)
					if err != nil {
						return
					}
					s.Do(t, "INCR", "phases")
					time.Sleep(2 * time.Millisecond)
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				}
			})
		}
	}
	c, proxy := proxied(t, s, 0, 0)
	reader := c.ReadWriteLock("n").ReadLock()
	bed.Eventually(t, "writers at work", func() bool { return s.Int(t, "EXISTS", "phases") == 1 })
	worst := int64(0)
	for range 100 {
		asks := proxy.StallReply(testbed.Contains("EVALSHA", luascript.RWRead.SHA))
		got := bed.Async(t.Context(), reader)
		asks.Wait(t) // not before the server knows of it: how long that takes is the machine's affair
		before := s.Int(t, "GET", "phases")
		asks.Release()
		h := within(t, 30*time.Second, got)
		after := s.Int(t, "GET", "phases")
		worst = max(worst, after-before)
		unlock(t, h)
	}
	cancel()
	wg.Wait()
	s.Do(t, "DEL", "phases")
	t.Logf("most write phases that began while a reader waited: %d", worst)
	// One may have been under way when the reader asked, and have counted itself later.
	if worst > 1 {
		t.Errorf("%d write phases began while a reader waited", worst)
	}
}

// Readers stand back for a waiting writer, but not who is inside or prefers readers.
func TestReadersStandBackForAWaitingWriter(t *testing.T) {
	s := server(t)
	c1, c2 := client(t, s, 0), client(t, s, 0)
	l1, l2 := c1.ReadWriteLock("n", told()), c2.ReadWriteLock("n", told())
	r := bed.Lock(t, t.Context(), l1.ReadLock())
	wctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	failed := make(chan error, 1)
	go func() { _, err := l2.WriteLock().Lock(wctx); failed <- err }()
	waiting(t, s, "writers", 1)

	busy(t, t.Context(), l1.ReadLock())
	busy(t, t.Context(), l2.ReadLock())
	again := bed.Lock(t, r.Context(), l1.ReadLock()) // inside already
	unlock(t, again)
	preferring := bed.Lock(t, t.Context(), c2.ReadWriteLock("n", rwlock.PreferReaders()).ReadLock())
	unlock(t, preferring)

	// A writer that gives up lets them in at once.
	back := bed.Async(t.Context(), l1.ReadLock())
	waiting(t, s, "readers", 1)
	start := time.Now()
	giveUp()
	if err := <-failed; !errors.Is(err, context.Canceled) || !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	h := within(t, soon, back)
	t.Logf("entered %v after the writer gave up", time.Since(start))
	unlock(t, h, r)
}

// Marks of writers that come after
// a reader do not hold it back.
func TestReadersOutliveAFloodOfWritersThatGiveUp(t *testing.T) {
	t.Parallel()
	s := server(t)
	inside := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n").ReadLock())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	var tries atomic.Int64
	const writers = 4 // their waits overlap: there is always a mark
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
		reader := client(t, s, 0).ReadWriteLock("n").ReadLock()
		start, before := time.Now(), tries.Load()
		h, err := reader.TryLock(t.Context(), 30*time.Second, 0)
		if err != nil {
			cancel()
			wg.Wait()
			t.Fatal(err)
		}
		came := tries.Load() - before
		t.Logf("entered after %v, while writers came %d times", time.Since(start), came)
		// It waits for those that came before it. What they leave is undone in the background. They come
		// five times a second, also while the reader stands still; one that they hold back never enters.
		if came > 20*writers {
			t.Errorf("a reader waited while %d writers came and went that came after it", came)
		}
		unlock(t, h)
	}
	cancel()
	wg.Wait()
	unlock(t, inside)
}

// A waiting writer, and a waiting reader whose turn it is, are passed over when they die without a
// word.
func TestDeadWaitersArePassedOver(t *testing.T) {
	t.Parallel()
	const skip = 5 * time.Second // a living waiter that stands still for four fifths of it is passed over, rightly
	start := func(t *testing.T) (*testbed.Server, *rwlock.ReadWriteLock) {
		t.Helper()
		t.Parallel()
		s := server(t)
		return s, client(t, s, 0).ReadWriteLock("n", rwlock.WithSkipAfter(skip))
	}
	for name, more := range map[string]int64{"writer": 0, "writer, with a living one that came later": 1} {
		t.Run(name, func(t *testing.T) {
			s, l := start(t)
			r := bed.Lock(t, t.Context(), l.ReadLock())
			p := spawn(t, s, 0)
			p.Start(t, ask("write", skip))
			waiting(t, s, "writers", 1)
			back := bed.Async(t.Context(), l.ReadLock())
			waiting(t, s, "readers", 1)
			var later []<-chan bed.Attempt
			for range more { // which keeps the sets of marks alive
				later = append(later, bed.Async(t.Context(), l.WriteLock()))
			}
			waiting(t, s, "writers", 1+more)
			select { // it is refreshed: longer than its first life time
			case <-back:
				t.Fatal("entered before a living writer")
			case <-time.After(skip + skip/2):
			}
			p.Kill(t)
			began := time.Now()
			h := within(t, skip+soon, back)
			t.Logf("entered %v after the waiting writer was killed", time.Since(began))
			unlock(t, h, r)
			unlock(t, allGot(t, later)...)
		})
	}
	t.Run("reader", func(t *testing.T) {
		s, l := start(t)
		w := bed.Lock(t, t.Context(), l.WriteLock())
		p := spawn(t, s, 0)
		p.Start(t, ask("read", skip))
		waiting(t, s, "readers", 1)
		next := bed.Async(t.Context(), l.WriteLock())
		waiting(t, s, "writers", 1)
		p.Kill(t)
		began := time.Now()
		unlock(t, w)
		h := within(t, skip+soon, next)
		t.Logf("entered %v after the unlock, behind a dead reader", time.Since(began))
		unlock(t, h)
	})
	t.Run("frozen writer comes back", func(t *testing.T) {
		s, l := start(t)
		r := bed.Lock(t, t.Context(), l.ReadLock())
		p := spawn(t, s, 0)
		id := p.Start(t, ask("write", skip))
		waiting(t, s, "writers", 1)
		p.Freeze(t)
		h := within(t, skip+soon, bed.Async(t.Context(), l.ReadLock()))
		p.Thaw(t)
		waiting(t, s, "writers", 1) // it takes a new place
		unlock(t, h, r)
		p.Await(t, id, "locked")
		p.Unlock(t, id)
		bed.End(t, p)
	})
}

// The turn is kept for a reader that is slow to take it, and given up by one that leaves: a writer
// enters then, not after the skip time.
func TestTurnIsKeptForAReader(t *testing.T) {
	t.Parallel()
	s := server(t)
	c, proxy := proxied(t, s, 0, 0)
	reader := c.ReadWriteLock("n", rwlock.WithSkipAfter(time.Minute)).ReadLock()
	l := client(t, s, 0).ReadWriteLock("n", rwlock.WithSkipAfter(time.Minute))
	for _, leaves := range []bool{false, true} {
		w := bed.Lock(t, t.Context(), l.WriteLock())
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		got := bed.Async(ctx, reader)
		waiting(t, s, "readers", 1)
		next := bed.Async(t.Context(), l.WriteLock())
		waiting(t, s, "writers", 1)
		s.AwaitQuiet(t)
		proxy.Pause(testbed.Replies) // it hears nothing, but is heard
		unlock(t, w)
		select {
		case <-next:
			t.Fatal("a writer entered before a reader whose turn it was")
		case <-time.After(300 * time.Millisecond):
		}
		if leaves {
			cancel()
			unlock(t, within(t, soon, next))
			proxy.Resume(testbed.Replies)
		} else {
			proxy.Resume(testbed.Replies)
			unlock(t, within(t, soon, got))
			unlock(t, within(t, soon, next))
		}
	}
}

// Writers of several processes enter in the order in which they were refused
// first, whoever held the lock. One that nobody hears yet when it is called loses its place, so all listen first.
func TestWritersEnterInTheirOrder(t *testing.T) {
	t.Parallel()
	s := server(t)
	const writers, rounds = 6, 5
	locks := make([]*rwlock.WriteLock, writers)
	for i := range locks {
		locks[i] = client(t, s, 30*time.Second).ReadWriteLock("n").WriteLock()
	}
	other := client(t, s, 30*time.Second).ReadWriteLock("n")
	for round := range rounds {
		var first redlatch.Locker = other.ReadLock()
		if round%2 == 1 {
			first = other.WriteLock()
		}
		h, err := first.Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		came := make(chan int, writers)
		var wg sync.WaitGroup
		for i, l := range locks {
			wg.Go(func() {
				h, err := l.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				came <- i
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			})
			waiting(t, s, "writers", int64(i)+1)
			bed.Eventually(t, "it listens", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel("n")+"*:write")) > i })
		}
		if err := h.Unlock(context.Background()); err != nil {
			t.Fatal(err)
		}
		wg.Wait()
		close(came)
		want := 0
		for got := range came {
			if got != want {
				t.Fatalf("round %d: writer %d entered as number %d", round, got, want)
			}
			want++
		}
	}
}

// A writer that is first and does not take the free lock, since it stands still,
// holds up the next one for a moment only, however long its mark would live.
func TestFirstWriterThatDoesNotCome(t *testing.T) {
	t.Parallel()
	s := server(t)
	w := client(t, s, 30*time.Second).ReadWriteLock("n", told()).WriteLock()
	hears(t, s, stranger)
	mark(t, s, stranger)
	if h, err := w.TryLock(t.Context(), 0, 0); err == nil {
		t.Error("an attempt passed a writer whose turn it was")
		unlock(t, h)
	}
	began := time.Now()
	h, err := w.TryLock(t.Context(), soon, 0)
	if err != nil {
		t.Fatalf("after %v: %v", time.Since(began), err)
	}
	t.Logf("entered after %v", time.Since(began))
	unlock(t, h)
}
