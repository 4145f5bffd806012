package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// The bubble's clock makes these exact: a deadline that is a microsecond off fails.

const leaseTime = 30 * time.Second

// A failed renewal is retried until the deadline, which is that of the last
// successful one.
func TestFailedRenewalsAreRetriedUntilTheDeadline(t *testing.T) {
	for _, lost := range []error{errLost, errUnsent} {
		onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
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
			if want := lease.LocalDeadline(last, leaseTime); !at.Equal(want) {
				t.Errorf("lost %v off the deadline", at.Sub(want))
			}
			if n := tries.Load(); n < 15 || n > 25 {
				t.Errorf("%d tries in two thirds of a lease", n)
			}
			detail, _ := errors.AsType[*lock.LeaseLostError](context.Cause(h.Context()))
			wants(t, detail.Err, lost)
		})
	}
}

// What Extend asks for beyond LeaseTime is that hold's alone: the others of its owner end when the watchdog's lease does.
// Until then renewals are tried at the usual pace.
func TestAnExtensionIsOfOneHold(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		ctx := engine.WithOwner(t.Context(), "both")
		outer, inner := take(t, ctx, core, "l"), take(t, ctx, core, "l")
		time.Sleep(leaseTime / 2)
		var tries atomic.Int32
		testbed.Must(t, inner.Extend(t.Context(), 3*leaseTime))
		extended := time.Now()
		f.onBefore(func(conn.Command) error { tries.Add(1); return errLost })
		for _, c := range []struct {
			h    lock.Hold
			ends time.Duration
		}{{outer, leaseTime}, {inner, 3 * leaseTime}} {
			want := lease.LocalDeadline(extended, c.ends)
			testbed.Equal(t, c.h.ValidUntil(), want, "valid until")
			if at := lostAt(t, c.h, lock.LossExpired); !at.Equal(want) {
				t.Errorf("lost %v off the deadline", at.Sub(want))
			}
		}
		testbed.AtMost(t, tries.Load(), 3*31, "tries in three leases")
	})
}

// The answer to a renewal may come after the next one was due: the server was slow, or
// the process stood still. The next one follows at once: the lease has run since the
// sending, and little of it may be left.
func TestARenewalFollowsALateAnswerAtOnce(t *testing.T) {
	for _, silent := range []time.Duration{leaseTime * 2 / 5, leaseTime / 2, leaseTime * 13 / 20} {
		onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
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
			free(t, h)
		})
	}
}

// The deadline counts from before the first byte was sent, also when the answer
// was slow, and a slow renewal moves it on by no more.
func TestDeadlineCountsFromTheSending(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		f.latency = 600 * time.Millisecond
		h := take(t, t.Context(), core, "l")
		for range 200 {
			time.Sleep(250 * time.Millisecond)
			f.covers(t, h)
		}
		free(t, h)
	})
}

// A short lease, and a gate that is taken: the watchdog looks again later, it
// does not spin.
func TestWatchdogDoesNotSpinAtATakenGate(t *testing.T) {
	for _, lease := range []time.Duration{50 * time.Millisecond, 100 * time.Millisecond, 150 * time.Millisecond, time.Second} {
		synctest.Test(t, func(t *testing.T) {
			f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime = lease })
			h := take(t, t.Context(), core, "l", lock.WithLease(time.Hour))
			f.onBefore(fault{script: luascript.Reenter, pause: 3 * lease}.hook())
			testbed.Must(t, h.Extend(t.Context(), time.Hour))
			free(t, h)
		})
	}
}

// Renewals that fall due together travel together, within the bound of a
// command, and on a cluster never across slots.
func TestRenewalsTravelTogether(t *testing.T) {
	for _, cluster := range []bool{false, true} {
		bubble(t, fmt.Sprintf("cluster %v", cluster), func(t *testing.T) {
			f, core := newFakeWith(t, func(f *fakeRedis, _ *engine.Config) { f.topo.Cluster = cluster })
			const n = 2000
			least, name := 20, "l%d"
			if cluster {
				least, name = 4, "{%[2]d}%[1]d"
			}
			for i := range n {
				take(t, t.Context(), core, fmt.Sprintf(name, i, i%4))
			}
			time.Sleep(10 * leaseTime)
			keys, most := 0, 0
			renewals := f.scripts("renew")
			for _, r := range renewals {
				keys, most = keys+r.keys, max(most, r.keys)
			}
			testbed.AtLeast(t, keys, 29*n, "renewals of so many holds in 10 leases:", n)
			testbed.AtMost(t, keys, 34*n, "renewals of so many holds in 10 leases:", n)
			testbed.AtMost(t, most, 128, "keys in one command")
			testbed.AtLeast(t, keys/len(renewals), least, "keys in a command on average")
			testbed.Equal(t, core.Holding(), n, "are held")
		})
	}
}

// What was acquired in one burst is not renewed in one: no half second has more than twice
// the mean.
func TestRenewalsOfABurstAreSpread(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
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
		testbed.AtMost(t, slices.Max(bins), 2*(sum/len(bins)), "renewals in one half second")
	})
}

// A bubble's times have one clock: the following run on the machine's.

// hasEnded fails the test if the hold goes on.
func hasEnded(t *testing.T, h lock.Hold) {
	t.Helper()
	select {
	case <-h.Context().Done():
	case <-time.After(20 * time.Second):
		t.Fatal("the hold goes on")
	}
}

// TestSleepingMachineLosesItsHolds: the watchdog sees that the monotonic clock stood still.
func TestSleepingMachineLosesItsHolds(t *testing.T) {
	_, core := newFake(t)
	h := take(t, t.Context(), core, "l")
	core.Look(testbed.WallAt(t, time.Now(), leaseTime/2))
	if h.Context().Err() != nil {
		t.Fatal("lost after half a lease")
	}
	core.Look(testbed.WallAt(t, time.Now(), leaseTime))
	hasEnded(t, h)
	lostAt(t, h, lock.LossExpired)
}

// TestDeadlineAfterASleepComesByTheWallClock: what the machine slept of a lease is gone, though no timer has
// seen it pass.
func TestDeadlineAfterASleepComesByTheWallClock(t *testing.T) {
	t.Parallel()
	const lease, slept = 8 * time.Second, 6 * time.Second
	f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime = lease })
	h := take(t, t.Context(), core, "l")
	want := h.ValidUntil().Add(-slept)
	f.onBefore(func(conn.Command) error { return errUnsent })
	core.Look(testbed.WallAt(t, time.Now(), slept))
	hasEnded(t, h)
	at := lostAt(t, h, lock.LossExpired)
	// A busy machine may be late; without the wall clock it is later by what was slept.
	if off := at.Sub(want); off < -10*time.Millisecond || off > slept/2 {
		t.Errorf("it ended %v off its deadline", off)
	}
}
