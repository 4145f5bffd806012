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
	s := bed.Loaded(t)
	l := sharer(t, s, 9*time.Second).ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	other := client(t, s, 0).ReadWriteLock("n").WriteLock()
	var holds []redlatch.Hold
	testbed.Equal(t, scripts(t, s, func() {
		for range 20 {
			holds = append(holds, bed.Lock(t, t.Context(), l))
		}
		bed.Unlock(t, bed.Lock(t, holds[7].Context(), l), holds[0], holds[5]) // the first one, too
	}), 2, "commands: the first reader's, and the re-entry")
	busy(t, t.Context(), other)
	bed.Want(t, holds[0].Unlock(t.Context()), redlatch.ErrNotHeld)
	left := slices.Concat(holds[1:5], holds[6:])
	testbed.Equal(t, scripts(t, s, func() { bed.Unlock(t, left[1:]...) }), 0, "commands to leave while one stays")
	busy(t, t.Context(), other)
	bed.Alive(t, left[0])
	bed.Unlock(t, left[0])
	w, err := other.TryLock(t.Context(), 0, 0)
	testbed.Must(t, err)
	bed.Unlock(t, w)
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
			s := bed.Loaded(t)
			c, proxy := proxied(t, s, 30*time.Second, tc.tenure)
			l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
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
				bed.Unlock(t, bed.Holds(t, stay)...)
				for _, from := range leaves {
					if a := bed.Get(t, from); a.Err == nil {
						bed.Unlock(t, a.Hold)
					} else if !tc.leaves || !errors.Is(a.Err, redlatch.ErrNotAcquired) {
						t.Error(a.Err)
					}
				}
				bed.Eventually(t, "nothing is left", func() bool { return s.Int(t, "EXISTS", "n") == 0 })
			})
			testbed.AtMost(t, n, tc.most+1, "commands for 41 readers, with the release")
		})
	}
}

// Readers enter beside others for as long as the tenure, and
// then stand back behind a writer elsewhere; a writer of their own process they see at
// once.
func TestShareEndsForWriters(t *testing.T) {
	s := bed.Loaded(t)
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
					bed.Unlock(t, h)
				}
				return errors.Is(err, redlatch.ErrNotAcquired)
			})
		} else {
			time.Sleep(tenure)
		}
		busy(t, t.Context(), l.ReadLock())
		bed.Unlock(t, bed.Lock(t, first.Context(), l.ReadLock()), first)
		bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, w))
	}
	empty(t, s)
}

// A writer that also reads admits nobody, and a
// reader that joined is refused as a writer.
func TestShareNobodyReadsBesideAWriter(t *testing.T) {
	s := bed.Loaded(t)
	l := sharer(t, s, 9*time.Second).ReadWriteLock("n", redlatch.ShareReads())
	w := bed.Lock(t, t.Context(), l.WriteLock())
	r := bed.Lock(t, w.Context(), l.ReadLock())
	busy(t, t.Context(), l.ReadLock())
	bed.Unlock(t, w) // downgrades
	in := bed.Lock(t, t.Context(), l.ReadLock())
	joined := bed.Lock(t, t.Context(), l.ReadLock())
	bed.Want(t, failure(l.WriteLock().TryLock(joined.Context(), 0, 0)), redlatch.ErrUpgrade)
	bed.Unlock(t, in, joined, r)
	empty(t, s)

	// A writer's read hold that it takes while others share one is its own.
	first := bed.Lock(t, t.Context(), l.ReadLock())
	busy(t, t.Context(), l.WriteLock())
	bed.Unlock(t, first)
	bed.Unlock(t, bed.Lock(t, t.Context(), l.WriteLock()))
	empty(t, s)
}

// Fixed leases, readers of another wish, and locks without the
// option have fields of their own.
func TestShareWhoDoesNot(t *testing.T) {
	s := bed.Loaded(t)
	c := sharer(t, s, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	prefer := c.ReadWriteLock("n", redlatch.ShareReads(), redlatch.PreferReaders()).ReadLock()
	holds := []redlatch.Hold{
		bed.Lock(t, t.Context(), l), bed.Lock(t, t.Context(), l, redlatch.WithLease(time.Minute)), bed.Lock(t, t.Context(), prefer),
		bed.Lock(t, t.Context(), c.ReadWriteLock("n").ReadLock()), bed.Lock(t, t.Context(), l), bed.Lock(t, t.Context(), prefer),
	}
	testbed.Equal(t, s.Int(t, "HLEN", "n"), 5, "mode, and four fields")
	bed.Unlock(t, holds...)
	empty(t, s)
	bed.Want(t, failure(c.RLock("x", redlatch.ShareReads()).Lock(t.Context())), redlatch.ErrInvalidOption)
}

// A re-entry beside the last release by another owner of the same session, which pass different
// gates, has a hold that excludes, or hears that it is lost.
func TestShareReentryBesideFinalRelease(t *testing.T) {
	s := bed.Loaded(t)
	c, proxy := proxied(t, s, 30*time.Second, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	w := client(t, s, 0).ReadWriteLock("n").WriteLock()
	asB := redlatch.WithOwner(t.Context(), "b")
	a, b := bed.Lock(t, t.Context(), l), bed.Lock(t, asB, l)        // which joins
	short := bed.Lock(t, asB, l, redlatch.WithLease(2*time.Second)) // over before the first renewal
	bed.Unlock(t, b)
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
	for end := time.Now().Add(500 * time.Millisecond); len(again) == 0 && time.Now().Before(end); {
		time.Sleep(5 * time.Millisecond) // else it is no hold of the ended session, but acquires anew
	}
	last.Release()
	bed.Want(t, <-unlocked, nil)
	h := bed.Hold(t, again)
	hw, err := w.TryLock(t.Context(), 0, 0)
	if err != nil {
		bed.Unlock(t, h)
		return // it is held
	}
	select {
	case <-h.Context().Done():
	case <-time.After(90 * time.Second): // three leases
		t.Errorf("a reader is inside beside a writer, and is not told for three leases; its ValidUntil was %v ago", time.Since(h.ValidUntil()))
	}
	bed.Unlock(t, hw)
}

// A fenced reader gets the session of one that is not.
func TestShareFencedJoinsUnfenced(t *testing.T) {
	s := bed.Loaded(t)
	c := sharer(t, s, 9*time.Second)
	fenced := c.ReadWriteLock("n", redlatch.ShareReads(), redlatch.Fenced())
	bed.Unlock(t, bed.Lock(t, t.Context(), fenced.WriteLock()))
	h := bed.Lock(t, t.Context(), fenced.ReadLock())
	want := h.Token()
	bed.Unlock(t, h)
	plain := bed.Lock(t, t.Context(), c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock())
	h = bed.Lock(t, t.Context(), fenced.ReadLock())
	if got := h.Token(); got != want || got == 0 {
		t.Errorf("a fenced reader of its own owner has token %d, not %d", got, want)
	}
	bed.Unlock(t, h, plain)
}

// A re-entry outlives its owner's only hold of a shared session, which ends while the re-entry is
// under way: it re-enters although a writer waits, and is refused the write lock.
func TestShareReentryOutlivesFixedHold(t *testing.T) {
	s := bed.Loaded(t)
	c, proxy := proxied(t, s, 30*time.Second, 900*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads())
	writer := client(t, s, 0).ReadWriteLock("n").WriteLock()
	asB := redlatch.WithOwner(t.Context(), "b")
	a := bed.Lock(t, t.Context(), l.ReadLock())
	b := bed.Lock(t, asB, l.ReadLock())                                        // joins
	short := bed.Lock(t, asB, l.ReadLock(), redlatch.WithLease(2*time.Second)) // far beyond the tenure
	bed.Unlock(t, b)
	slow := proxy.StallReply(testbed.Contains("EVALSHA"))
	again := bed.Async(asB, l.ReadLock())
	slow.Wait(t)
	<-short.Context().Done()
	slow.Release()
	h := bed.HoldWithin(t, 10*time.Second, again)

	// Nobody joins the session any more.
	w := bed.Async(t.Context(), writer)
	waiting(t, s, "writers", 1)
	nested, err := l.ReadLock().TryLock(h.Context(), 10*time.Second, 0) // the writer waits for it
	testbed.Must(t, err)
	bed.Unlock(t, nested)
	bed.Want(t, failure(l.WriteLock().TryLock(h.Context(), 0, 0)), redlatch.ErrUpgrade)
	bed.Unlock(t, h, a)
	bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, w))
	empty(t, s)
}
