package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// The bubble's clock makes these exact: a deadline that is a microsecond off fails.

const leaseTime = 30 * time.Second

// drift is what is taken off a lease.
func drift(length time.Duration) time.Duration { return lease.Drift(length) }

// A failed renewal is retried until the deadline, which is that of the last
// successful one.
func TestFailedRenewalsAreRetriedUntilTheDeadline(t *testing.T) {
	for _, lost := range []error{errLost, errUnsent} {
		synctest.Test(t, func(t *testing.T) {
			f, core := newFake(t, leaseTime)
			var failing atomic.Bool
			var tries atomic.Int32
			f.onBefore(func(conn.Command) error {
				if !failing.Load() {
					return nil
				}
				tries.Add(1)
				return lost
			})
			h := take(t, t.Context(), core, "l")
			time.Sleep(95 * time.Second)
			all := f.scripts("renew")
			last := all[len(all)-1].at // no latency: sent at that instant
			failing.Store(true)
			at := lostAt(t, h, lock.LossExpired)
			if want := last.Add(leaseTime - drift(leaseTime)); !at.Equal(want) {
				t.Errorf("lost %v off the deadline", at.Sub(want))
			}
			if n := tries.Load(); n < 15 || n > 25 {
				t.Errorf("%d tries in two thirds of a lease", n)
			}
			var detail *lock.LeaseLostError
			if errors.As(context.Cause(h.Context()), &detail); !errors.Is(detail.Err, lost) {
				t.Errorf("the cause does not say why: %v", detail.Err)
			}
		})
	}
}

// The deadline does not wait for a renewal that has no answer, and a late answer
// does not bring the hold back.
func TestDeadlinePassesWhileARenewalIsUnderWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script == luascript.Renew {
				time.Sleep(time.Minute) // frozen; then it runs
			}
			return nil
		})
		sent := time.Now()
		h := take(t, t.Context(), core, "l")
		at := lostAt(t, h, lock.LossExpired)
		if want := sent.Add(leaseTime - drift(leaseTime)); !at.Equal(want) {
			t.Errorf("lost %v off the deadline", at.Sub(want))
		}
		next := take(t, t.Context(), second(t, f, leaseTime), "l", lock.WithLease(time.Hour))
		time.Sleep(2 * time.Minute)
		if f.count("l") != 1 || next.Context().Err() != nil || core.Holding() != 0 || core.Scheduled() != 0 {
			t.Errorf("the late renewal: count %d, %d held, %d scheduled", f.count("l"), core.Holding(), core.Scheduled())
		}
	})
}

// The answer to a renewal may come after the next one was due: the server was slow, or
// the process stood still. The next one follows at once: the lease has run since the
// sending, and little of it may be left.
func TestARenewalFollowsALateAnswerAtOnce(t *testing.T) {
	for _, silent := range []time.Duration{leaseTime * 2 / 5, leaseTime / 2, leaseTime * 13 / 20} {
		synctest.Test(t, func(t *testing.T) {
			f, core := newFake(t, leaseTime)
			renewals := 0
			f.onAfter(func(cmd conn.Command) error {
				if cmd.Script == luascript.Renew {
					if renewals++; renewals%2 == 1 { // two in a row would pass the deadline
						time.Sleep(silent)
					}
				}
				return nil
			})
			h := take(t, t.Context(), core, "l")
			time.Sleep(20 * leaseTime)
			ran := f.scripts("renew")
			for i := 1; i < len(ran); i += 2 {
				if late := ran[i].at.Sub(ran[i-1].at) - silent; late != 0 {
					t.Fatalf("an answer came after %v, and the next renewal %v after it", silent, late)
				}
			}
			if h.Context().Err() != nil || len(ran) < 20 {
				t.Fatalf("%d renewals; %v", len(ran), context.Cause(h.Context()))
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// The deadline counts from before the first byte was sent, also when the answer
// was slow, and a slow renewal moves it on by no more.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = 600 * time.Millisecond
		h := take(t, t.Context(), core, "l")
		for range 200 {
			time.Sleep(250 * time.Millisecond)
			f.mu.Lock()
			ends := f.find("l").ends
			f.mu.Unlock()
			if !h.ValidUntil().Before(ends) {
				t.Fatalf("valid until %v after the server's end", h.ValidUntil().Sub(ends))
			}
		}
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// A short lease, and a gate that is taken: the watchdog looks again later, it
// does not spin.
func TestWatchdogDoesNotSpinAtATakenGate(t *testing.T) {
	for _, lease := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f, core := newFake(t, lease)
			h := take(t, t.Context(), core, "l", lock.WithLease(time.Hour))
			f.onBefore(func(cmd conn.Command) error {
				if cmd.Script == luascript.Reenter {
					time.Sleep(3 * lease)
				}
				return nil
			})
			if err := h.Extend(t.Context(), time.Hour); err != nil {
				t.Error(err)
			}
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// A log handler that blocks delays neither the end of lost holds nor the renewal
// of the others.
func TestSlowLogStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slowLog{make(chan struct{})}
		_, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.Log = slog.New(log) })
		kept := take(t, t.Context(), core, "kept")
		sent := time.Now()
		var lost []lock.Hold
		for i := range 20 {
			lost = append(lost, take(t, t.Context(), core, fmt.Sprint(i), lock.WithLease(10*time.Second)))
		}
		for _, h := range lost {
			<-h.Context().Done()
			if late := time.Since(sent.Add(10*time.Second - drift(10*time.Second))); late != 0 {
				t.Errorf("ended %v late", late)
			}
		}
		time.Sleep(10 * leaseTime)
		if kept.Context().Err() != nil {
			t.Error("the others were not renewed")
		}
		close(log.released)
	})
}

// Renewals that fall due together travel together, within the bound of a
// command, and on a cluster never across slots.
func TestRenewalsTravelTogether(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		t.Run(fmt.Sprintf("cluster %v", cluster), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, _ := newFake(t, leaseTime)
				f.topo.Cluster = cluster
				core := second(t, f, leaseTime) // reads the topology anew
				const n = 2000
				slots := map[uint16]bool{}
				var holds []lock.Hold
				for i := range n {
					name := fmt.Sprintf("l%d", i)
					if cluster {
						name = fmt.Sprintf("{%d}%d", i%4, i)
					}
					slots[luascript.Slot(name)] = true
					holds = append(holds, take(t, t.Context(), core, name))
				}
				time.Sleep(10 * leaseTime)
				keys, most := 0, 0
				renewals := f.scripts("renew")
				for _, r := range renewals {
					keys, most = keys+r.keys, max(most, r.keys)
				}
				if keys < 29*n || keys > 34*n {
					t.Errorf("%d renewals of %d holds in 10 leases", keys, n)
				}
				if most > 128 {
					t.Errorf("%d keys in one command", most)
				}
				least := 20
				if cluster {
					least = 4
				}
				if per := keys / len(renewals); per < least {
					t.Errorf("%d keys per command", per)
				}
				for _, h := range holds {
					if h.Context().Err() != nil {
						t.Fatal("lost")
					}
				}
			})
		})
	}
}

// What was acquired in one burst is not renewed in one: no half second has more than twice
// the mean.
func TestRenewalsOfABurstAreSpread(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		const n, bin = 5000, 500 * time.Millisecond
		for i := range n {
			take(t, t.Context(), core, fmt.Sprintf("l%d", i))
		}
		began, window := time.Now(), 4*leaseTime
		time.Sleep(window)
		bins := make([]int, window/bin)
		sum := 0
		for _, r := range f.scripts("renew") {
			if at := int(r.at.Sub(began) / bin); at < len(bins) {
				bins[at] += r.keys
				sum += r.keys
			}
		}
		peak, mean := 0.0, float64(sum)/float64(len(bins))
		for _, keys := range bins {
			peak = max(peak, float64(keys))
		}
		if peak > 2*mean {
			t.Errorf("%.0f renewals in one half second, %.0f on average", peak, mean)
		}
		t.Logf("%.2f times the mean", peak/mean)
	})
}
