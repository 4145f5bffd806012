package engine_test

import (
	"bytes"
	"context"
	"log/slog"
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// told is one log line about a hold that lasts.
type told struct {
	at    time.Time
	lock  string
	since time.Time
	held  time.Duration
}

// ear is a log handler that keeps those lines.
type ear struct {
	t    *testing.T
	mu   sync.Mutex
	told []told // guarded by mu
}

func (e *ear) Enabled(context.Context, slog.Level) bool { return true }
func (e *ear) WithAttrs([]slog.Attr) slog.Handler       { return e }
func (e *ear) WithGroup(string) slog.Handler            { return e }
func (e *ear) Handle(_ context.Context, r slog.Record) error {
	if !strings.Contains(r.Message, "held for long") {
		return nil
	}
	if r.Level != slog.LevelWarn {
		e.t.Errorf("%s: level %v", r.Message, r.Level)
	}
	line := told{at: time.Now()}
	r.Attrs(func(a slog.Attr) bool {
		switch a.Key {
		case "lock":
			line.lock = a.Value.String()
		case "since":
			line.since = a.Value.Time()
		case "held":
			line.held = a.Value.Duration()
		case "owner", "type":
			if a.Value.String() == "" {
				e.t.Errorf("%s: no %s", r.Message, a.Key)
			}
		}
		return true
	})
	e.mu.Lock()
	defer e.mu.Unlock()
	e.told = append(e.told, line)
	return nil
}

// lines are what was told so far, once all goroutines sleep.
func (e *ear) lines() []told {
	synctest.Wait()
	e.mu.Lock()
	defer e.mu.Unlock()
	return append([]told(nil), e.told...)
}

// newWarning starts a core that tells of holds that last for longer than warn.
func newWarning(t *testing.T, warn time.Duration, log slog.Handler) (*fakeRedis, *engine.Core) {
	t.Helper()
	return newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
		cfg.Tenure, cfg.HoldWarning, cfg.Log = tenure, warn, slog.New(log)
	})
}

// Each hold that lasts is told of once, when its time has come: those of the watchdog,
// fixed leases and re-entries. What was unlocked, or ended, before is not.
func TestAHoldThatLastsIsToldOfOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const warn = 47 * time.Second // between two renewals
		log := &ear{t: t}
		_, core := newWarning(t, warn, log)
		began := time.Now()
		long := take(t, t.Context(), core, "long")
		take(t, t.Context(), core, "fixed", lock.WithLease(time.Hour))
		take(t, t.Context(), core, "ended", lock.WithLease(warn-time.Second))
		short := take(t, t.Context(), core, "short")
		time.Sleep(3 * time.Second)
		inner := take(t, long.Context(), core, "long")
		time.Sleep(warn - 3*time.Second - time.Millisecond)
		if err := short.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if lines := log.lines(); len(lines) > 0 {
			t.Errorf("told before its time: %+v", lines)
		}
		time.Sleep(time.Hour / 2)

		want := map[string][]time.Duration{"long": {warn, warn + 3*time.Second}, "fixed": {warn}}
		lines := log.lines()
		for _, line := range lines {
			due := want[line.lock]
			if len(due) == 0 {
				t.Errorf("told of %q once more", line.lock)
				continue
			}
			want[line.lock] = due[1:]
			if at := line.at.Sub(began); at != due[0] || line.held != warn || !line.since.Equal(began.Add(due[0]-warn)) {
				t.Errorf("told of %q after %v: held %v since %v; want it after %v", line.lock, at, line.held, line.since, due[0])
			}
		}
		if len(lines) != 3 {
			t.Errorf("%d lines: %+v", len(lines), lines)
		}
		for _, h := range []lock.Hold{inner, long} {
			if err := h.Unlock(t.Context()); err != nil {
				t.Errorf("a hold that was told of: %v", err)
			}
		}
	})
}

// A lock that is passed on inside the process is held anew: nobody is told of for the
// time of those before.
func TestAHoldThatWasPassedOnHasItsOwnAge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const warn = tenure
		log := &ear{t: t}
		f, core := newWarning(t, warn, log)
		first := take(t, t.Context(), core, "l")
		got := make(chan lock.Hold)
		go func() {
			h, err := rlock.New(core, "l").Lock(context.Background())
			if err != nil {
				t.Error(err)
			}
			got <- h
		}()
		time.Sleep(tenure / 2)
		synctest.Wait()
		passed := time.Now()
		if err := first.Unlock(t.Context()); err != nil {
			t.Fatal(err)
		}
		second := <-got
		if n := len(f.scripts("release")); n != 0 {
			t.Fatal("the lock was not passed on")
		}
		time.Sleep(time.Minute)
		lines := log.lines()
		if len(lines) != 1 || !lines[0].since.Equal(passed) || !lines[0].at.Equal(passed.Add(warn)) {
			t.Errorf("passed on at %v; told %+v", passed, lines)
		}
		if err := second.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// Nobody tells of a hold that is being unlocked, however long the server is silent.
func TestAHoldThatIsBeingUnlockedIsNotToldOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &ear{t: t}
		f, core := newWarning(t, 10*time.Second, log)
		outer := take(t, t.Context(), core, "l")
		inner := take(t, outer.Context(), core, "l")
		time.Sleep(9 * time.Second)
		f.onBefore(func(conn.Command) error { return errLost })
		if err := inner.Unlock(t.Context()); err == nil {
			t.Error("the server answered")
		}
		time.Sleep(time.Minute)
		if lines := log.lines(); len(lines) != 1 { // of the outer one
			t.Errorf("told: %+v", lines)
		}
	})
}

// A log handler that blocks keeps neither the renewals nor the deadlines back.
func TestASlowLogOfHoldsThatLastStopsNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slowLog{make(chan struct{})}
		_, core := newWarning(t, time.Second, log)
		kept := take(t, t.Context(), core, "kept")
		fixed := take(t, t.Context(), core, "fixed", lock.WithLease(time.Minute))
		time.Sleep(10 * leaseTime)
		if err := kept.Context().Err(); err != nil {
			t.Errorf("a hold that was to be renewed: %v", context.Cause(kept.Context()))
		}
		if fixed.Context().Err() == nil {
			t.Error("a fixed lease did not end")
		}
		close(log.released)
		if err := kept.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

// The longest durations are no short ones.
func TestHoldWarningOfForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		_, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
			cfg.LeaseTime, cfg.HoldWarning, cfg.Log = leaseTime, math.MaxInt64, slog.New(slog.NewTextHandler(&said, nil))
		})
		time.Sleep(time.Second)
		h := take(t, t.Context(), core, "l")
		time.Sleep(time.Second)
		_ = h.Unlock(t.Context())
		synctest.Wait()
		if said.Len() > 0 {
			t.Errorf("after a second: %s", said.String())
		}
	})
}
