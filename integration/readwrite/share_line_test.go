package readwrite

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Readers that wait for a writer, of this process or of
// another one, cost the server one place, and one command when it has left. They enter before
// the next writer, who waited longer than they; who reads later stands back for that one.
func TestShareLineCostsOneCommand(t *testing.T) {
	for _, own := range []bool{false, true} {
		s := bed.Loaded(t)
		// Nobody asks what has become of its place meanwhile.
		l := sharer(t, s, 50*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads(), told())
		other := client(t, s, 0).ReadWriteLock("n", told())
		writer := other.WriteLock()
		if own {
			writer = l.WriteLock()
		}
		inside := bed.Lock(t, t.Context(), writer)
		next := bed.Async(t.Context(), writer)
		waiting(t, s, "writers", 1)
		s.AwaitQuiet(t)
		var got []<-chan bed.Attempt
		// Once more when it listens, and after each second that it must wait for that; so may the next
		// writer still.
		testbed.AtMost(t, scripts(t, s, func() { got = follow(t, s, l.ReadLock(), 40) }), 6, "own", own, "commands of 41 readers that wait")
		var holds []redlatch.Hold
		n := scripts(t, s, func() {
			bed.Unlock(t, inside)
			holds = bed.Holds(t, got)
		})
		// The unlock, the grant, and the next writer's looks.
		t.Logf("own %v: %d commands", own, n)
		testbed.AtMost(t, n, 6, "own", own, "commands for 41 readers")
		waiting(t, s, "turn", 0)
		blocked(t, "the next writer", next)
		testbed.Equal(t, s.Int(t, "HLEN", "n"), 2, "mode, and one field")
		busy(t, t.Context(), l.ReadLock()) // behind that writer
		later := bed.Async(t.Context(), l.ReadLock())
		waiting(t, s, "readers", 1)
		bed.Unlock(t, holds...)
		w := bed.HoldWithin(t, 10*time.Second, next)
		blocked(t, "a reader that came after the writer", later)
		bed.Unlock(t, w)
		bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, later))
		empty(t, s)
	}
}

// A writer that gives up lets in the readers of a process
// that came before the next writer's mark, and no other.
func TestShareLineKeepsWritersTurn(t *testing.T) {
	s := bed.Loaded(t)
	// Each has a client of its own: writers of one client stand in one line.
	l := sharer(t, s, 10*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	reader := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n").ReadLock())
	first, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	w1, w2 := client(t, s, 0).ReadWriteLock("n").WriteLock(), client(t, s, 0).ReadWriteLock("n").WriteLock()
	go func() { _, err := w1.Lock(first); gone <- err }()
	waiting(t, s, "writers", 1)
	before := follow(t, s, l, 5)
	second := bed.Async(t.Context(), w2)
	waiting(t, s, "writers", 2)
	time.Sleep(50 * time.Millisecond) // so much later they come
	after := []<-chan bed.Attempt{bed.Async(t.Context(), l), bed.Async(t.Context(), l)}
	inLine(t, 5+len(after))
	giveUp()
	bed.Want(t, <-gone, redlatch.ErrNotAcquired)
	holds := bed.Holds(t, before)
	for _, ch := range after {
		blocked(t, "a reader that came after the second writer", ch)
	}
	bed.Unlock(t, append(holds, reader)...)
	bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, second))
	bed.Unlock(t, bed.Holds(t, after)...)
	empty(t, s)
}

// When the one that asks for all gives up, the next asks, and
// nothing of either stays on the server.
func TestShareLineLeaderLeaves(t *testing.T) {
	s := bed.Loaded(t)
	l := sharer(t, s, 10*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	w := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n").WriteLock())
	errs := make(chan error, 9)
	var leave []context.CancelFunc
	for i := range cap(errs) { // each leads once the one before it has left
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave = append(leave, cancel)
		go func() { _, err := l.Lock(ctx); errs <- err }()
		if i == 0 {
			waiting(t, s, "readers", 1)
		}
		inLine(t, i)
	}
	stays := bed.Async(t.Context(), l)
	inLine(t, len(leave))
	for i, cancel := range leave {
		if i%3 == 2 {
			cancel() // one that follows
			continue
		}
		cancel()
		waiting(t, s, "readers", 1)
	}
	for range leave {
		var e *redlatch.NotAcquiredError
		if err := <-errs; !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Holder == "" {
			t.Error(err)
		}
	}
	bed.Unlock(t, w)
	h := bed.HoldWithin(t, 10*time.Second, stays)
	// One who left with a command on its way got a field of its own, and gives it back.
	bed.Eventually(t, "the one field of the reader that stays", func() bool { return s.Int(t, "HLEN", "n") == 2 })
	bed.Unlock(t, h)
	empty(t, s)
}

// An owner that follows in several calls enters in all of them,
// and has one session.
func TestShareLineOfOneOwner(t *testing.T) {
	s := bed.Loaded(t)
	l := sharer(t, s, 10*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads())
	w := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n").WriteLock())
	got := follow(t, s, l.ReadLock(), 3)
	owner := redlatch.WithOwner(t.Context(), "one")
	for range 4 {
		got = append(got, bed.Async(owner, l.ReadLock()))
	}
	fixed := make(chan redlatch.Hold, 1)
	go func() {
		h, err := l.ReadLock().TryLock(owner, 20*time.Second, 20*time.Second)
		bed.Want(t, err, nil)
		fixed <- h
	}()
	inLine(t, len(got)-1)
	waiting(t, s, "readers", 2) // the first one, and the one with a lease of its own
	bed.Unlock(t, w)
	holds := append(bed.Holds(t, got), <-fixed)
	bed.Want(t, failure(l.WriteLock().TryLock(owner, 0, 0)), redlatch.ErrUpgrade)
	bed.Unlock(t, holds...)
	empty(t, s)
}

// Who follows is told when its owner got the lock in
// another call, and re-enters.
func TestShareLineOwnerGotInElsewhere(t *testing.T) {
	s := bed.Loaded(t)
	c := sharer(t, s, 10*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	other := client(t, s, 0).ReadWriteLock("n")
	inside := bed.Lock(t, t.Context(), other.ReadLock())
	writer := bed.Async(t.Context(), other.WriteLock())
	waiting(t, s, "writers", 1)
	got := follow(t, s, l, 3)
	owner := redlatch.WithOwner(t.Context(), "one")
	follows := bed.Async(owner, l)
	inLine(t, len(got)) // all but the first, and this one
	past := bed.Lock(t, owner, c.ReadWriteLock("n", redlatch.PreferReaders()).ReadLock())
	again := bed.HoldWithin(t, 10*time.Second, follows)
	blocked(t, "a reader of another owner", got[1])
	bed.Unlock(t, again, past, inside)
	bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, writer))
	bed.Unlock(t, bed.Holds(t, got)...)
	empty(t, s)
}

// Who follows a reader whose command has no answer is told at once that the client shuts down or is closed, and what
// the server refuses that reader for good; who does not wait follows it, and hears who holds the lock.
func TestShareLineBehindAStalledReader(t *testing.T) {
	for name, tc := range map[string]struct {
		before func(t *testing.T, s *testbed.Server)
		try    bool                     // the followers don't wait
		end    func(c *redlatch.Client) // else the answer comes
		want   error
	}{
		"Shutdown": {end: func(c *redlatch.Client) { go func() { _ = c.Shutdown(context.Background()) }() }, want: redlatch.ErrClosed},
		"Close":    {end: func(c *redlatch.Client) { go c.Close() }, want: redlatch.ErrClosed},
		"refused":  {before: func(t *testing.T, s *testbed.Server) { t.Helper(); s.Do(t, "SET", "n", "x") }, want: redlatch.ErrInvalidName},
		"busy": {before: func(t *testing.T, s *testbed.Server) {
			t.Helper()
			bed.Lock(t, t.Context(), client(t, s, time.Hour).ReadWriteLock("n").WriteLock())
		}, try: true, want: redlatch.ErrNotAcquired},
	} {
		t.Run(name, func(t *testing.T) {
			s := bed.Loaded(t)
			c, proxy := proxied(t, s, 30*time.Second, 10*time.Millisecond)
			l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
			bed.Lock(t, t.Context(), c.RLock("kept")) // Shutdown waits for it
			if tc.before != nil {
				tc.before(t, s)
			}
			trap := proxy.StallReply(testbed.Contains("EVALSHA"))
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			lead := bed.Async(ctx, l)
			trap.Wait(t)
			var got []<-chan bed.Attempt
			for range 5 {
				got = append(got, bed.Run(func() (redlatch.Hold, error) {
					if tc.try {
						return l.TryLock(t.Context(), 0, 0)
					}
					return l.Lock(t.Context())
				}))
			}
			inLine(t, len(got))
			if tc.end != nil {
				tc.end(c)
			} else {
				trap.Release()
			}
			began := time.Now()
			for _, from := range got {
				if a := bed.Get(t, from); !errors.Is(a.Err, tc.want) || a.At.Sub(began) > soon {
					t.Errorf("after %v: %v, want %v", a.At.Sub(began), a.Err, tc.want)
				}
			}
			trap.Release()
			leave()
			bed.Get(t, lead)
			c.Close()
			s.Do(t, "FLUSHALL")
		})
	}
}
