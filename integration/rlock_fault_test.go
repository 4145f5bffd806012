package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// rlSection records who is inside. A holder that is cut off may be inside its
// section still when the next one enters, but never before its own local
// deadline: that is what a lease promises.
type rlSection struct {
	mu      sync.Mutex
	inside  redlatch.Hold // guarded by mu; nil once its Unlock began
	token   uint64        // guarded by mu; the largest one seen
	entered int           // guarded by mu
}

func (s *rlSection) enter(t *testing.T, h redlatch.Hold) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	if rlOver(h, now) {
		return // it came here so late that its lease has ended, and others have had theirs meanwhile
	}
	if before := s.inside; before != nil && !rlOver(before, now) {
		t.Errorf("entered %v before the other's deadline (its context: %v)",
			before.ValidUntil().Sub(now), context.Cause(before.Context()))
	}
	if h.Token() <= s.token {
		t.Errorf("token %d after %d", h.Token(), s.token)
	}
	s.inside, s.token = h, h.Token()
	s.entered++
}

// rlOver reports whether the hold's deadline has passed, or has passed before and its holder was told. (The
// answer to a renewal may come after that and move the deadline on; the lock is given back then.)
func rlOver(h redlatch.Hold, now time.Time) bool {
	var lost *redlatch.LeaseLostError
	return !now.Before(h.ValidUntil()) ||
		errors.As(context.Cause(h.Context()), &lost) && lost.Reason == redlatch.LossExpired
}

func (s *rlSection) leave(h redlatch.Hold) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.inside == h {
		s.inside = nil
	}
}

// Clients behind networks that fail at random, on a server that stands still now
// and then: exclusion and tokens hold, every call returns what it may, everybody
// goes on afterwards, and nothing is left behind.
func TestRLockRandomFaults(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	const lease = 800 * time.Millisecond
	var clients []*redlatch.Client
	var proxies []*testbed.Proxy
	for range 5 {
		p := testbed.NewProxy(t, s.Addr())
		proxies = append(proxies, p)
		clients = append(clients, rlClient(t, p.Addr(), rlLease(lease), rlUnlockTimeout(time.Second)))
	}
	var section rlSection
	var lost, given, unsure atomic.Int32
	ctx, stop := context.WithCancel(t.Context())
	var workers, faults sync.WaitGroup
	for i := range 15 {
		c := clients[i%len(clients)]
		workers.Go(func() {
			for ctx.Err() == nil {
				lctx, cancel := context.WithTimeout(ctx, time.Duration(rand.Int64N(int64(2*time.Second))))
				h, err := c.RLock("l", redlatch.Fenced()).Lock(lctx)
				if err != nil {
					rlOneOf(t, err, redlatch.ErrNotAcquired, redlatch.ErrUnavailable)
					given.Add(1)
					cancel()
					continue
				}
				section.enter(t, h)
				if rand.IntN(3) == 0 {
					if nested, err := c.RLock("l").Lock(h.Context()); err == nil {
						rlReleased(t, nested, &lost, &unsure)
					}
				}
				select {
				case <-h.Context().Done():
				case <-time.After(time.Duration(rand.Int64N(int64(20 * time.Millisecond)))):
				}
				section.leave(h)
				rlReleased(t, h, &lost, &unsure)
				cancel()
			}
		})
	}
	for _, p := range proxies {
		faults.Go(func() {
			for ctx.Err() == nil {
				time.Sleep(time.Duration(rand.Int64N(int64(1500 * time.Millisecond))))
				pause := time.Duration(rand.Int64N(int64(2 * lease)))
				switch d := testbed.Direction(rand.IntN(2)); rand.IntN(6) {
				case 0, 1:
					p.Cut()
				case 2:
					p.Pause(d)
					time.Sleep(pause)
					p.Resume(d)
				case 3:
					p.Pause(d)
					time.Sleep(pause / 4)
					p.Cut()
					p.Resume(d)
				case 4:
					p.Refuse()
					p.Cut()
					time.Sleep(pause)
					p.Admit(t)
				case 5:
					p.Delay(d, time.Duration(rand.IntN(20))*time.Millisecond)
				}
			}
		})
	}
	faults.Go(func() {
		for ctx.Err() == nil {
			time.Sleep(time.Duration(rand.Int64N(int64(3 * time.Second))))
			switch rand.IntN(4) {
			case 0:
				s.Do(t, "SCRIPT", "FLUSH")
			case 1:
				s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
			case 2:
				s.Do(t, "CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")
			case 3:
				s.Freeze(t)
				time.Sleep(time.Duration(rand.Int64N(int64(2 * lease))))
				s.Thaw(t)
			}
		}
	})
	enough := func() bool { // on a loaded machine it takes longer
		section.mu.Lock()
		defer section.mu.Unlock()
		return section.entered >= 100 && given.Load() > 0
	}
	for begin := time.Now(); time.Since(begin) < 8*time.Second || !enough() && time.Since(begin) < time.Minute; {
		time.Sleep(100 * time.Millisecond)
	}
	stop()
	faults.Wait()
	for _, p := range proxies {
		p.Delay(testbed.Requests, 0)
		p.Delay(testbed.Replies, 0)
	}
	workers.Wait()
	section.mu.Lock()
	t.Logf("%d sections, %d waits given up, %d holds lost, %d releases unsure", section.entered, given.Load(), lost.Load(), unsure.Load())
	if section.entered < 20 || given.Load() == 0 {
		t.Error("hardly anything happened")
	}
	section.mu.Unlock()
	rlUntil(t, "the end of what could not be released", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
	for _, c := range clients {
		h := rlLock(t, t.Context(), c.RLock("l", redlatch.Fenced()), redlatch.WithLease(rlPatience))
		var err error
		rlUntil(t, "an answer within UnlockTimeout", func() bool {
			err = h.Unlock(context.Background())
			return !errors.Is(err, redlatch.ErrUnavailable)
		})
		if err != nil {
			t.Errorf("Unlock afterwards: %v", err)
		}
	}
}

// rlReleased unlocks and checks that the answer is one that can be.
func rlReleased(t *testing.T, h redlatch.Hold, lost, unsure *atomic.Int32) {
	t.Helper()
	switch err := h.Unlock(context.Background()); {
	case err == nil:
	case errors.Is(err, redlatch.ErrLeaseLost):
		lost.Add(1)
	case errors.Is(err, redlatch.ErrUnavailable):
		unsure.Add(1)
	default:
		t.Errorf("Unlock: %v", err)
	}
}
