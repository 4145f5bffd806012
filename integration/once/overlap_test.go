package once

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Two runs never overlap, though one is longer than its period, and though both calls come with the context of one and the
// same lock, as the ticks of a leader do, or with one owner's id; what is refused meanwhile uses up nothing.
func TestRunsDoNotOverlap(t *testing.T) {
	for _, with := range []string{"nothing", "one lock", "one owner"} {
		t.Run("with "+with, func(t *testing.T) {
			x := newScene(t)
			ctx, second := t.Context(), x.other
			switch with {
			case "one lock":
				leader := bed.Lock(t, ctx, x.c.RLock("leader"))
				defer bed.Unlock(t, leader)
				ctx, second = leader.Context(), x.c
			case "one owner":
				ctx, second = redlatch.WithOwner(ctx, "cron"), x.c
			}
			end := running(t, x.Server, ctx, x.c)
			ran, err := second.Once("report").Do(ctx, hour, never(t)) // its answer may take as long as a short period
			isBusy(t, err, second == x.c)
			testbed.Equal(t, ran, false, "ran during a long run")
			testbed.Equal(t, records(t, x.Server), 0, "periods that the refused call used up")
			bed.Want(t, end(), nil)
			testbed.Equal(t, must(t, second.Once("report"), short), true, "the first call after the long run ran")
		})
	}
}

// Holding the job's lock keeps it from running, also for the owner that holds it: a run is no re-entry.
func TestALockByHandKeepsItsOwnersJobFromRunning(t *testing.T) {
	x := newScene(t)
	h := bed.Lock(t, t.Context(), x.c.RLock("report"))
	for range 2 { // the first call uses up nothing
		_, err := x.c.Once("report").Do(h.Context(), hour, never(t))
		isBusy(t, err, true)
	}
	bed.Unlock(t, h)
	testbed.Equal(t, must(t, x.c.Once("report"), hour), true, "ran after the unlock")
}

// A run whose owner takes the lock between the claim and the run is refused: what it holds stays held, and the period is
// given back.
func TestARunThatWouldReenterIsRefused(t *testing.T) {
	x := newScene(t)
	ctx := redlatch.WithOwner(t.Context(), "cron")
	trap := x.proxy.StallReply(testbed.Contains("EVALSHA", luascript.Once.SHA))
	done := call(ctx, x.c, hour, never(t))
	trap.Wait(t)
	byHand := bed.Async(ctx, x.c.RLock("report"))
	exists(t, x.Server, "report", 1)
	trap.Release()
	h := bed.Hold(t, byHand)
	isBusy(t, <-done, true)
	testbed.Equal(t, records(t, x.Server), 0, "periods that were not given back")
	if st, err := x.c.RLock("report").State(t.Context()); err != nil || !st.Held || st.Holders[0].Count != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	bed.Unlock(t, h)
}

// At most one run begins in a period, also if the lock of the run before was granted late: a claim that is as old as its
// period is worth nothing.
func TestALateLockIsNoSecondRunInAPeriod(t *testing.T) {
	x := newScene(t)
	const period = 2 * time.Second
	trap := x.proxy.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	var began time.Time
	done := call(t.Context(), x.c, period, func(context.Context) error { began = time.Now(); return nil })
	trap.Wait(t)
	gone(t, x.Server) // the period of that claim is over
	testbed.Equal(t, must(t, x.other.Once("report"), hour), true, "the next period has a run: else this tests nothing")
	second := time.Now()
	trap.Release()
	if err := <-done; !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	if !began.IsZero() && began.Sub(second).Abs() < period*9/10 {
		t.Errorf("two runs began within %v; a period is %v", began.Sub(second).Abs(), period)
	}
	testbed.Equal(t, must(t, x.other.Once("report"), hour), false, "the next period has a second run")
}

// A late lock that nobody has any more when it is given back is told as well, on one line.
func TestALateLockThatIsGone(t *testing.T) {
	x := newScene(t)
	trap := x.proxy.StallReply(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	done := call(t.Context(), x.c, short, never(t))
	trap.Wait(t)
	x.Do(t, "DEL", "report")
	gone(t, x.Server) // the period of the claim is over
	trap.Release()
	err := <-done
	bed.Want(t, err, redlatch.ErrUnavailable)
	bed.Want(t, err, redlatch.ErrLeaseLost)
	oneLine(t, err)
}

// A claim whose lock is granted late, but before anybody else may run, is good.
func TestALateLockInItsPeriodRuns(t *testing.T) {
	x := newScene(t)
	trap := x.proxy.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	ran := false
	done := call(t.Context(), x.c, hour, func(context.Context) error { ran = true; return nil })
	trap.Wait(t)
	testbed.Equal(t, must(t, x.other.Once("report"), hour), false, "ran a second time")
	trap.Release()
	bed.Want(t, <-done, nil)
	testbed.Equal(t, ran, true, "ran")
}
