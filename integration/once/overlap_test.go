package once

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// "Two runs never overlap", also where both calls come with the context of one and the same
// lock, as the ticks of a leader do, or with one owner's id.
func TestRunsOfOneOwnerDoNotOverlap(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := dial(t, s.Addr())
	leader, err := c.RLock("leader").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = leader.Unlock(context.Background()) }()
	for name, ctx := range map[string]context.Context{
		"under a lock":   leader.Context(),
		"with one owner": redlatch.WithOwner(t.Context(), "cron"),
	} {
		t.Run(name, func(t *testing.T) {
			job := "report " + name
			begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := c.Once(job).Do(ctx, short, func(context.Context) error {
					close(begun)
					<-end
					return nil
				})
				done <- err
			}()
			<-begun
			exists(t, s, luascript.OnceKey(job), 0) // the next run is due
			ran, err := c.Once(job).Do(ctx, short, func(context.Context) error {
				t.Error("a second run while the first is under way")
				return nil
			})
			if !errors.Is(err, redlatch.ErrNotAcquired) {
				t.Errorf("a call during a long run: %t, %v", ran, err)
			}
			close(end)
			if err := <-done; err != nil {
				t.Error(err)
			}
		})
	}
}

// Holding the job's lock prevents it from running, also for the owner that holds it: a run is no
// re-entry.
func TestALockByHandKeepsItsOwnersJobFromRunning(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := dial(t, s.Addr())
	h, err := c.RLock("report").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 { // the first call uses up nothing
		ran, err := c.Once("report").Do(h.Context(), hour, nothing)
		var busy *redlatch.NotAcquiredError
		if ran || !errors.As(err, &busy) || busy.Holder == "" || !busy.Own || busy.Remaining <= 0 {
			t.Errorf("%t, %+v", ran, err)
		}
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if !must(t, c.Once("report"), hour) {
		t.Error("did not run after the unlock")
	}
}

// A run is no re-entry, also if the owner takes the lock between the claim and the run: what it
// holds stays held, and the period is given back.
func TestARunThatWouldReenterIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr())
	ctx := redlatch.WithOwner(t.Context(), "cron")
	trap := p.StallReply(testbed.Contains("EVALSHA", luascript.Once.SHA))
	done := make(chan error, 1)
	go func() {
		_, err := c.Once("report").Do(ctx, hour, func(context.Context) error { t.Error("fn ran"); return nil })
		done <- err
	}()
	trap.Wait(t)
	byHand := make(chan redlatch.Hold, 1)
	go func() {
		h, err := c.RLock("report").Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		byHand <- h
	}()
	exists(t, s, "report", 1)
	trap.Release()
	h := <-byHand
	var busy *redlatch.NotAcquiredError
	if err := <-done; !errors.As(err, &busy) || busy.Holder == "" || !busy.Own {
		t.Errorf("%+v", err)
	}
	if _, found := record(t, s, "report"); found {
		t.Error("the period was not given back")
	}
	if h == nil {
		return
	}
	if st, err := c.RLock("report").State(t.Context()); err != nil || !st.Held || st.Owners[0].Count != 1 {
		t.Errorf("%+v, %v", st, err)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// At most one run begins in a period, also if the lock of the run before was granted late: a
// claim that is as old as its period is worth nothing.
func TestALateLockIsNoSecondRunInAPeriod(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	slow, b := dial(t, p.Addr()), dial(t, s.Addr())
	const period = 2 * time.Second
	trap := p.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	var began time.Time
	done := make(chan error, 1)
	go func() {
		_, err := slow.Once("report").Do(t.Context(), period, func(context.Context) error { began = time.Now(); return nil })
		done <- err
	}()
	trap.Wait(t)
	gone(t, s) // the period of that claim is over
	if !must(t, b.Once("report"), hour) {
		t.Fatal("the next period has no run: the test tests nothing")
	}
	second := time.Now()
	trap.Release()
	if err := <-done; !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	if !began.IsZero() && began.Sub(second).Abs() < period*9/10 {
		t.Errorf("two runs began within %v; a period is %v", began.Sub(second).Abs(), period)
	}
	if must(t, b.Once("report"), hour) {
		t.Error("the run of the next period was forgotten")
	}
}

// A call whose lock comes late, and is nobody's any more when it is given back, says that, too, on
// one line.
func TestALateLockThatIsGone(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr())
	trap := p.StallReply(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	done := make(chan error, 1)
	go func() {
		_, err := c.Once("report").Do(t.Context(), short, func(context.Context) error { t.Error("fn ran"); return nil })
		done <- err
	}()
	trap.Wait(t)
	s.Do(t, "DEL", "report")
	gone(t, s) // the period of the claim is over
	trap.Release()
	err := <-done
	if !errors.Is(err, redlatch.ErrUnavailable) || !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	oneLine(t, err)
}

// A claim whose lock is granted late, but before anybody else may run, is good.
func TestALateLockInItsPeriodRuns(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	slow := dial(t, p.Addr())
	trap := p.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	done := make(chan bool, 1)
	go func() {
		ran, err := slow.Once("report").Do(t.Context(), hour, nothing)
		if err != nil {
			t.Error(err)
		}
		done <- ran
	}()
	trap.Wait(t)
	if must(t, dial(t, s.Addr()).Once("report"), hour) {
		t.Error("a second run")
	}
	trap.Release()
	if !<-done {
		t.Error("nobody ran")
	}
}
