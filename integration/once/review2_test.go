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
			const period = 100 * time.Millisecond
			begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 1)
			go func() {
				_, err := c.Once(job).Do(ctx, period, func(context.Context) error {
					close(begun)
					<-end
					return nil
				})
				done <- err
			}()
			<-begun
			deadline := time.Now().Add(patience)
			for s.Int(t, "EXISTS", luascript.OnceKey(job)) == 1 && time.Now().Before(deadline) {
				time.Sleep(5 * time.Millisecond)
			}
			ran, err := c.Once(job).Do(ctx, period, func(context.Context) error {
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

// A fenced lock's token is never 0, and later holders' are larger: also where the owner holds the
// lock already by an object that is not fenced.
func TestFencedReentryHasAToken(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := dial(t, s.Addr())
	plain, err := c.RLock("stock").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fenced, err := c.RLock("stock", redlatch.Fenced()).Lock(plain.Context())
	if err != nil {
		t.Fatal(err)
	}
	if fenced.Token() == 0 {
		t.Error("a hold of a fenced lock has no token")
	}
	for _, h := range []redlatch.Hold{fenced, plain} {
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// At most one run begins in a period, also if the lock of the run before was asked for late: a
// claim that is a period old is worth nothing.
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
	if !must(t, b.Once("report"), period) {
		t.Fatal("the next period has no run: the test tests nothing")
	}
	second := time.Now()
	trap.Release()
	if err := <-done; err != nil && !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	if !began.IsZero() && began.Sub(second).Abs() < period*9/10 {
		t.Errorf("two runs began within %v; a period is %v", began.Sub(second).Abs(), period)
	}
}
