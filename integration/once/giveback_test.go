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

// A call during a run that is longer than its period claims nothing. So another one hears of the
// run, too, and not that the period has its run, though the first has not heard yet; and nothing
// is lost if the first dies.
func TestACallDuringALongRunClaimsNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	a, b, c := dial(t, s.Addr()), dial(t, p.Addr()), dial(t, s.Addr())
	begun, end, done := make(chan struct{}), make(chan struct{}), make(chan error, 2)
	go func() {
		_, err := a.Once("report").Do(t.Context(), short, func(context.Context) error {
			close(begun)
			<-end
			return nil
		})
		done <- err
	}()
	<-begun
	gone(t, s) // the next run is due
	trap := p.StallReply(testbed.Contains("EVALSHA", luascript.Once.SHA))
	go func() {
		_, err := b.Once("report").Do(t.Context(), hour, nothing)
		done <- err
	}()
	trap.Wait(t)
	ran, err := c.Once("report").Do(t.Context(), hour, nothing)
	if ran || !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Errorf("a call behind another one, during a long run: %t, %v", ran, err)
	}
	trap.Release()
	if err := <-done; !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	close(end)
	if err := <-done; err != nil {
		t.Error(err)
	}
}

// taken begins a call of Do through the proxy whose lock is taken by hand between its claim and
// its attempt to get it. The attempt is stalled until the trap is released.
func taken(ctx context.Context, t *testing.T, s *testbed.Server, p *testbed.Proxy, c *redlatch.Client, period time.Duration) (trap *testbed.Trap, done chan error) {
	t.Helper()
	trap = p.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	done = make(chan error, 1)
	go func() {
		_, err := c.Once("report").Do(ctx, period, func(context.Context) error { t.Error("fn ran"); return nil })
		done <- err
	}()
	trap.Wait(t)
	h, err := dial(t, s.Addr()).RLock("report").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return trap, done
}

// What a call gives back that claimed the period and did not get the lock is the record as it was.
func TestGivingBackRestoresTheLastRun(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	const period = 1000 * time.Second
	last := now(t, s) - 950_000 // a call in the last tenth is early
	s.Do(t, "SET", luascript.OnceKey("report"), itoa(last)+" x 0", "PX", "50000")
	trap, done := taken(t.Context(), t, s, p, dial(t, p.Addr()), period)
	if tick, _ := record(t, s, "report"); tick == last {
		t.Error("nothing was claimed: the test tests nothing")
	}
	trap.Release()
	var busy *redlatch.NotAcquiredError
	if err := <-done; !errors.As(err, &busy) || busy.Holder == "" {
		t.Error(err)
	}
	if tick, found := record(t, s, "report"); !found || tick != last {
		t.Errorf("the record says %d (%t), want %d", tick, found, last)
	}
	if ttl := s.Int(t, "PTTL", luascript.OnceKey("report")); ttl <= 0 || ttl > 50_000 {
		t.Errorf("it lives for %d ms", ttl)
	}
}

// A period is given back though the server could not be reached until the caller had left: its
// ctx ended between two tries, or the time for an answer was over.
func TestGivingBackGoesOnWithoutTheCaller(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(cancel func()) (unavailable bool){
		"ctx ended":              func(cancel func()) bool { cancel(); return false },
		"UnlockTimeout was over": func(func()) bool { return true },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := server(t)
			p := testbed.NewProxy(t, s.Addr())
			c := dial(t, p.Addr(), func(c *redlatch.Config) { c.UnlockTimeout = outage })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			trap, done := taken(ctx, t, s, p, c, hour)
			lost := p.DropRequest(testbed.Contains("EVALSHA", luascript.OnceUndo.SHA))
			p.Refuse()
			trap.Release()
			lost.Wait(t)
			unavailable := leave(cancel)
			err := <-done
			if errors.Is(err, redlatch.ErrUnavailable) != unavailable || errors.Is(err, redlatch.ErrNotAcquired) == unavailable {
				t.Error(err)
			}
			oneLine(t, err)
			if _, found := record(t, s, "report"); !found {
				t.Error("given back too early: the test tests nothing")
			}
			p.Admit(t)
			gone(t, s)
		})
	}
}

// The server refuses to give it back: the error says that, too, on one line.
func TestGivingBackIsRefused(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	trap, done := taken(t.Context(), t, s, p, dial(t, p.Addr()), hour)
	s.Do(t, "DEL", luascript.OnceKey("report"))
	s.Do(t, "HSET", luascript.OnceKey("report"), "no", "record")
	trap.Release()
	err := <-done
	var refused *redlatch.ServerError
	if !errors.Is(err, redlatch.ErrNotAcquired) || !errors.As(err, &refused) {
		t.Error(err)
	}
	oneLine(t, err)
}

// Close comes between the claim and the lock: the period is given back before it returns.
func TestCloseGivesThePeriodBack(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr(), func(c *redlatch.Config) { c.UnlockTimeout = patience })
	trap := p.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	done := make(chan error, 1)
	go func() {
		_, err := c.Once("report").Do(t.Context(), hour, func(context.Context) error { t.Error("fn ran"); return nil })
		done <- err
	}()
	trap.Wait(t)
	p.Pause(testbed.Requests)
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		c.Close()
	}()
	if err := <-done; !errors.Is(err, redlatch.ErrClosed) || errors.Is(err, redlatch.ErrUnavailable) { // at once
		t.Error(err)
	}
	p.Resume(testbed.Requests)
	trap.Release()
	<-closed
	if _, found := record(t, s, "report"); found {
		t.Error("the period is used up by nobody")
	}
}

// A Client that shuts down claims nothing: else the others would hear that the period has its run
// until it had given that back, and nobody would run.
func TestShutdownClaimsNothing(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := dial(t, s.Addr())
	h, err := c.RLock("l").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := c.Shutdown(ctx); !errors.Is(err, context.Canceled) { // goes on taking no new locks
		t.Fatal(err)
	}
	s.Do(t, "CONFIG", "RESETSTAT")
	if ran, err := c.Once("report").Do(t.Context(), hour, nothing); ran || !errors.Is(err, redlatch.ErrClosed) {
		t.Error(ran, err)
	}
	if n := s.Info(t, "commandstats")["cmdstat_evalsha"]; n != "" {
		t.Errorf("the server was asked: %s", n)
	}
	if err := h.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// The key of the lock is something else: the call is refused and uses up nothing.
func TestAKeyThatIsNoLock(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := dial(t, s.Addr())
	s.Do(t, "SET", "report", "application data")
	if ran, err := c.Once("report").Do(t.Context(), hour, nothing); ran || !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(ran, err)
	}
	if _, found := record(t, s, "report"); found {
		t.Error("the period is used up by nobody")
	}
	s.Do(t, "DEL", "report")
}
