package readwrite

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Tests of readers that share a hold.

// Readers that come while another one is inside cost no command,
// and the server keeps the lock until the last of them leaves, whoever that is.
func TestShareIsOneHold(t *testing.T) {
	s := server(t)
	l := sharer(t, s, 9*time.Second).ReadWriteLock("n", redlatch.ShareReads())
	other := client(t, s, 0).ReadWriteLock("n")
	unlock(t, bed.Lock(t, t.Context(), l.ReadLock()), bed.Lock(t, t.Context(), other.ReadLock())) // loads the scripts
	holds := make([]redlatch.Hold, 0, 20)
	if n := scripts(t, s, func() {
		for range cap(holds) {
			holds = append(holds, bed.Lock(t, t.Context(), l.ReadLock()))
		}
		again := bed.Lock(t, holds[7].Context(), l.ReadLock())
		unlock(t, again, holds[0], holds[5]) // the first one, too
	}); n != 2 { // the first reader's, and the re-entry
		t.Errorf("%d commands", n)
	}
	busy(t, t.Context(), other.WriteLock())
	if errors.Is(holds[0].Unlock(t.Context()), redlatch.ErrNotHeld) != true {
		t.Error("a second unlock")
	}
	if holds[1].Context().Err() != nil || !errors.Is(context.Cause(holds[5].Context()), redlatch.ErrUnlocked) {
		t.Error("contexts", holds[1].Context().Err(), context.Cause(holds[5].Context()))
	}
	left := slices.Concat(holds[1:5], holds[6:])
	if n := scripts(t, s, func() { unlock(t, left[:len(left)-1]...) }); n != 0 {
		t.Errorf("%d commands to leave while one stays", n)
	}
	busy(t, t.Context(), other.WriteLock())
	unlock(t, left[len(left)-1])
	w, err := other.WriteLock().TryLock(t.Context(), 0, 0)
	if err != nil {
		t.Fatal("not free after the last reader:", err)
	}
	unlock(t, w)
	empty(t, s)
}

// Readers that come at once cost one acquisition, and those
// whose wait ends leave nothing behind.
func TestShareWhoComesTogether(t *testing.T) {
	for name, tc := range map[string]struct {
		leaves bool // the first one; of the 20 that stay another one asks
		tenure time.Duration
		most   int64
	}{
		"the first stays":                         {false, 9 * time.Second, 1},
		"the first leaves":                        {true, 9 * time.Second, 3},
		"the answer takes longer than the tenure": {false, 500 * time.Millisecond, 1},
	} {
		t.Run(name, func(t *testing.T) {
			s := server(t)
			c, proxy := proxied(t, s, 30*time.Second, tc.tenure)
			l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
			unlock(t, bed.Lock(t, t.Context(), l))
			lead, leave := context.WithCancel(t.Context())
			defer leave()
			var stay, leaves []<-chan bed.Attempt
			n := scripts(t, s, func() {
				trap := proxy.StallReply(testbed.Contains("EVALSHA"))
				leaves = append(leaves, bed.Async(lead, l))
				trap.Wait(t)
				for range 20 {
					stay, leaves = append(stay, bed.Async(t.Context(), l)), append(leaves, bed.Async(lead, l))
				}
				inLine(t, 40)
				if tc.leaves {
					leave()
					inLine(t, 19)
				}
				if tc.tenure < time.Second {
					time.Sleep(tc.tenure + tc.tenure/2)
				}
				trap.Release()
				unlock(t, allGot(t, stay)...)
				for _, from := range leaves {
					if a := bed.Get(t, from); a.Err == nil {
						unlock(t, a.Hold)
					} else if !tc.leaves || !errors.Is(a.Err, redlatch.ErrNotAcquired) {
						t.Error(a.Err)
					}
				}
				bed.Eventually(t, "nothing is left", func() bool { return s.Int(t, "EXISTS", "n") == 0 })
			})
			if n > tc.most+1 { // and the release
				t.Errorf("%d commands for 41 readers", n)
			}
		})
	}
}

// Readers enter beside others for as long as the tenure, and
// then stand back behind a writer elsewhere; a writer of their own process they see at
// once.
func TestShareEndsForWriters(t *testing.T) {
	s := server(t)
	const tenure = 100 * time.Millisecond
	c := sharer(t, s, tenure)
	l := c.ReadWriteLock("n", redlatch.ShareReads())
	other := client(t, s, 0).ReadWriteLock("n")
	for name, writer := range map[string]redlatch.Locker{"elsewhere": other.WriteLock(), "here": l.WriteLock()} {
		first := bed.Lock(t, t.Context(), l.ReadLock())
		w := bed.Async(t.Context(), writer)
		waiting(t, s, "writers", 1)
		if name == "here" {
			bed.Eventually(t, "the writer stands in line", func() bool {
				h, err := l.ReadLock().TryLock(t.Context(), 0, 0)
				if err == nil {
					unlock(t, h)
				}
				return errors.Is(err, redlatch.ErrNotAcquired)
			})
		} else {
			time.Sleep(tenure)
		}
		busy(t, t.Context(), l.ReadLock())
		unlock(t, bed.Lock(t, first.Context(), l.ReadLock()), first)
		unlock(t, within(t, 10*time.Second, w))
	}
	empty(t, s)
}

// A writer that also reads admits nobody, and a
// reader that joined is refused as a writer.
func TestShareNobodyReadsBesideAWriter(t *testing.T) {
	s := server(t)
	l := sharer(t, s, 9*time.Second).ReadWriteLock("n", redlatch.ShareReads())
	w := bed.Lock(t, t.Context(), l.WriteLock())
	r := bed.Lock(t, w.Context(), l.ReadLock())
	busy(t, t.Context(), l.ReadLock())
	unlock(t, w) // downgrades
	in := bed.Lock(t, t.Context(), l.ReadLock())
	joined := bed.Lock(t, t.Context(), l.ReadLock())
	if _, err := l.WriteLock().TryLock(joined.Context(), 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Error(err)
	}
	unlock(t, in, joined, r)
	empty(t, s)

	// A writer's read hold that it takes while others share one is its own.
	first := bed.Lock(t, t.Context(), l.ReadLock())
	busy(t, t.Context(), l.WriteLock())
	unlock(t, first)
	unlock(t, bed.Lock(t, t.Context(), l.WriteLock()))
	empty(t, s)
}

// Fixed leases, readers of another wish, and locks without the
// option have fields of their own.
func TestShareWhoDoesNot(t *testing.T) {
	s := server(t)
	c := sharer(t, s, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	prefer := c.ReadWriteLock("n", redlatch.ShareReads(), redlatch.PreferReaders()).ReadLock()
	holds := []redlatch.Hold{
		bed.Lock(t, t.Context(), l), bed.Lock(t, t.Context(), l, redlatch.WithLease(time.Minute)), bed.Lock(t, t.Context(), prefer),
		bed.Lock(t, t.Context(), c.ReadWriteLock("n").ReadLock()), bed.Lock(t, t.Context(), l), bed.Lock(t, t.Context(), prefer),
	}
	if n := s.Int(t, "HLEN", "n"); n != 5 { // mode, and four fields
		t.Errorf("%d fields", n)
	}
	unlock(t, holds...)
	empty(t, s)
	if _, err := c.RLock("x", redlatch.ShareReads()).Lock(t.Context()); !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Error(err)
	}
}

// All who share a hold are told that it is lost.
func TestShareIsLostTogether(t *testing.T) {
	s := server(t)
	c, _ := proxied(t, s, 9*time.Second, 3*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	first := bed.Lock(t, t.Context(), l)
	second := bed.Lock(t, redlatch.WithOwner(t.Context(), "named"), l)
	unlock(t, first)
	third := bed.Lock(t, second.Context(), l)
	s.Do(t, "DEL", "n")
	for _, h := range []redlatch.Hold{second, third} {
		select {
		case <-h.Context().Done():
		case <-time.After(10 * time.Second):
			t.Fatal("not told")
		}
		if err := context.Cause(h.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Error(err)
		}
		if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Error(err)
		}
	}
	unlock(t, bed.Lock(t, redlatch.WithOwner(t.Context(), "named"), l))
}

// Readers that wait for a writer, of this process or of
// another one, cost the server one place, and one command when it has left. They enter before
// the next writer, who waited longer than they; who reads later stands back for that one.
func TestShareLineCostsOneCommand(t *testing.T) {
	for _, own := range []bool{false, true} {
		s := server(t)
		// Nobody asks what has become of its place meanwhile.
		l := sharer(t, s, 50*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads(), told())
		other := client(t, s, 0).ReadWriteLock("n", told())
		writer := other.WriteLock()
		if own {
			writer = l.WriteLock()
		}
		unlock(t, bed.Lock(t, t.Context(), l.ReadLock()), bed.Lock(t, t.Context(), other.ReadLock())) // loads the scripts
		inside := bed.Lock(t, t.Context(), writer)
		next := bed.Async(t.Context(), writer)
		waiting(t, s, "writers", 1)
		s.AwaitQuiet(t)
		var got []<-chan bed.Attempt
		// Once more when it listens, and after each second that it must wait for that; so may the next
		// writer still.
		if n := scripts(t, s, func() { got = follow(t, s, l.ReadLock(), 40) }); n > 6 {
			t.Errorf("own %v: %d commands of 41 readers that wait", own, n)
		}
		var holds []redlatch.Hold
		n := scripts(t, s, func() {
			unlock(t, inside)
			holds = allGot(t, got)
		})
		// The unlock, the grant, and the next writer's looks.
		if t.Logf("own %v: %d commands", own, n); n > 6 {
			t.Errorf("own %v: %d commands for 41 readers", own, n)
		}
		waiting(t, s, "turn", 0)
		blocked(t, "the next writer", next)
		if m := s.Int(t, "HLEN", "n"); m != 2 { // mode, and one field
			t.Errorf("%d fields", m)
		}
		busy(t, t.Context(), l.ReadLock()) // behind that writer
		later := bed.Async(t.Context(), l.ReadLock())
		waiting(t, s, "readers", 1)
		unlock(t, holds...)
		w := within(t, 10*time.Second, next)
		blocked(t, "a reader that came after the writer", later)
		unlock(t, w)
		unlock(t, within(t, 10*time.Second, later))
		empty(t, s)
	}
}

// A writer that gives up lets in the readers of a process
// that came before the next writer's mark, and no other.
func TestShareLineKeepsWritersTurn(t *testing.T) {
	s := server(t)
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
	if err := <-gone; !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	holds := allGot(t, before)
	for _, ch := range after {
		blocked(t, "a reader that came after the second writer", ch)
	}
	unlock(t, append(holds, reader)...)
	unlock(t, within(t, 10*time.Second, second))
	unlock(t, allGot(t, after)...)
	empty(t, s)
}

// When the one that asks for all gives up, the next asks, and
// nothing of either stays on the server.
func TestShareLineLeaderLeaves(t *testing.T) {
	s := server(t)
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
	unlock(t, w)
	h := within(t, 10*time.Second, stays)
	// One who left with a command on its way got a field of its own, and gives it back.
	bed.Eventually(t, "the one field of the reader that stays", func() bool { return s.Int(t, "HLEN", "n") == 2 })
	unlock(t, h)
	empty(t, s)
}

// An owner that follows in several calls enters in all of them,
// and has one session.
func TestShareLineOfOneOwner(t *testing.T) {
	s := server(t)
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
		if err != nil {
			t.Error(err)
		}
		fixed <- h
	}()
	inLine(t, len(got)-1)
	waiting(t, s, "readers", 2) // the first one, and the one with a lease of its own
	unlock(t, w)
	holds := append(allGot(t, got), <-fixed)
	if _, err := l.WriteLock().TryLock(owner, 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Error(err)
	}
	unlock(t, holds...)
	empty(t, s)
}

// Who follows is told when its owner got the lock in
// another call, and re-enters.
func TestShareLineOwnerGotInElsewhere(t *testing.T) {
	s := server(t)
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
	again := within(t, 10*time.Second, follows)
	blocked(t, "a reader of another owner", got[1])
	unlock(t, again, past, inside)
	unlock(t, within(t, 10*time.Second, writer))
	unlock(t, allGot(t, got)...)
	empty(t, s)
}

// A re-entry beside the last release by another owner of the same session, which pass different
// gates, has a hold that excludes, or hears that it is lost.
func TestShareReentryBesideFinalRelease(t *testing.T) {
	s := server(t)
	c, proxy := proxied(t, s, 30*time.Second, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	w := client(t, s, 0).ReadWriteLock("n").WriteLock()
	unlock(t, bed.Lock(t, t.Context(), l))
	unlock(t, bed.Lock(t, t.Context(), w))

	asB := redlatch.WithOwner(t.Context(), "b")
	a := bed.Lock(t, t.Context(), l)
	b := bed.Lock(t, asB, l)                                        // joins
	short := bed.Lock(t, asB, l, redlatch.WithLease(2*time.Second)) // over before the first renewal
	unlock(t, b)
	slow := proxy.StallReply(testbed.Contains("EVALSHA"))
	again := bed.Async(asB, l) // re-enters: the owner holds short
	slow.Wait(t)
	<-short.Context().Done()
	last := proxy.StallReply(testbed.Contains("EVALSHA"))
	unlocked := make(chan error, 1)
	go func() { unlocked <- a.Unlock(context.Background()) }()
	bed.Eventually(t, "released on the server", func() bool { return s.Int(t, "EXISTS", "n") == 0 })
	slow.Release()
	last.Wait(t)
	var b3 redlatch.Hold
	select {
	case a := <-again:
		b3 = a.Hold
	case <-time.After(500 * time.Millisecond):
		// It is no hold of the ended session, but acquires anew.
	}
	last.Release()
	if err := <-unlocked; err != nil {
		t.Error("a.Unlock:", err)
	}
	if b3 == nil {
		b3 = within(t, 10*time.Second, again)
	}
	hw, err := w.TryLock(t.Context(), 0, 0)
	if err != nil {
		unlock(t, b3)
		return // it is held
	}
	select {
	case <-b3.Context().Done():
	case <-time.After(90 * time.Second): // three leases
		t.Errorf("a reader is inside beside a writer, and is not told for three leases; its ValidUntil was %v ago; Extend: %v",
			time.Since(b3.ValidUntil()), b3.Extend(t.Context(), time.Minute))
	}
	unlock(t, hw)
	t.Log("b3.Unlock:", b3.Unlock(t.Context()), c.Held())
}

// A fenced reader gets the session of one that is not.
func TestShareFencedJoinsUnfenced(t *testing.T) {
	s := server(t)
	c := sharer(t, s, 9*time.Second)
	fenced := c.ReadWriteLock("n", redlatch.ShareReads(), redlatch.Fenced())
	unlock(t, bed.Lock(t, t.Context(), fenced.WriteLock()))
	h := bed.Lock(t, t.Context(), fenced.ReadLock())
	want := h.Token()
	unlock(t, h)
	plain := bed.Lock(t, t.Context(), c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock())
	h = bed.Lock(t, t.Context(), fenced.ReadLock())
	if got := h.Token(); got != want || got == 0 {
		t.Errorf("a fenced reader of its own owner has token %d, not %d", got, want)
	}
	unlock(t, h, plain)
}

// A re-entry outlives its owner's only hold of a shared session, which ends while the re-entry is
// under way: it re-enters although a writer waits, and is refused the write lock.
func TestShareReentryOutlivesFixedHold(t *testing.T) {
	s := server(t)
	c, proxy := proxied(t, s, 30*time.Second, 900*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads())
	writer := client(t, s, 0).ReadWriteLock("n").WriteLock()
	unlock(t, bed.Lock(t, t.Context(), l.ReadLock()))

	asB := redlatch.WithOwner(t.Context(), "b")
	a := bed.Lock(t, t.Context(), l.ReadLock())
	b := bed.Lock(t, asB, l.ReadLock())                                        // joins
	short := bed.Lock(t, asB, l.ReadLock(), redlatch.WithLease(2*time.Second)) // far beyond the tenure
	unlock(t, b)
	slow := proxy.StallReply(testbed.Contains("EVALSHA"))
	again := bed.Async(asB, l.ReadLock())
	slow.Wait(t)
	<-short.Context().Done()
	slow.Release()
	h := within(t, 10*time.Second, again)

	// Nobody joins the session any more.
	w := bed.Async(t.Context(), writer)
	waiting(t, s, "writers", 1)
	nested, err := l.ReadLock().TryLock(h.Context(), 10*time.Second, 0)
	if err != nil {
		t.Errorf("a reader that is inside waits for the writer that waits for it: %v", err)
	} else {
		unlock(t, nested)
	}
	if _, err := l.WriteLock().TryLock(h.Context(), 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Errorf("a reader that asks to write: %v", err)
	}
	unlock(t, h, a)
	unlock(t, within(t, 10*time.Second, w))
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
			s := server(t)
			c, proxy := proxied(t, s, 30*time.Second, 10*time.Millisecond)
			l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
			unlock(t, bed.Lock(t, t.Context(), l))
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
