package engine_test

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// A release that can't be delivered is tried until the latest end that a command may have set: one that ran
// long after it was sent set it from then on. So nothing stays held for nobody.
func TestAReleaseIsTriedAsLongAsALateCommandLasts(t *testing.T) {
	for name, c := range map[string]struct {
		script *luascript.Script
		begins func(*testing.T, *engine.Core) lock.Hold
		once   bool // it is answered when it has run
	}{
		"an acquisition": {luascript.Acquire, func(t *testing.T, core *engine.Core) lock.Hold {
			return take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
		}, true},
		"a renewal": {luascript.Renew, func(t *testing.T, core *engine.Core) lock.Hold {
			return take(t, t.Context(), core, "l")
		}, false},
		"a re-entry that nobody waits for": {luascript.Reenter, func(t *testing.T, core *engine.Core) lock.Hold {
			h := take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
			ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
			defer cancel()
			if _, err := plain(core, "l").Lock(ctx); err == nil {
				t.Error("the re-entry was answered")
			}
			return h
		}, false},
		"an extension that nobody waits for": {luascript.Reenter, func(t *testing.T, core *engine.Core) lock.Hold {
			h := take(t, t.Context(), core, "l", lock.WithLease(leaseTime))
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			if err := h.Extend(ctx, leaseTime); err == nil {
				t.Error("Extend was answered")
			}
			return h
		}, false},
	} {
		for how, answer := range map[string]struct {
			after time.Duration
			err   error
		}{"answered": {0, nil}, "answer lost": {0, errLost}, "no answer for a lease": {43 * time.Second, errLost}} {
			if answer.err != nil && c.once {
				continue
			}
			bubble(t, name+"/"+how, func(t *testing.T) { comesLate(t, c.script, c.begins, answer.after, answer.err) })
		}
	}
}

// comesLate holds a command back for 19 s, so that the lease that it sets lasts until 49 s.
func comesLate(t *testing.T, script *luascript.Script, begins func(*testing.T, *engine.Core) lock.Hold, after time.Duration, answer error) {
	f, core := newFake(t)
	start := time.Now()
	at := func(d time.Duration) { time.Sleep(time.Until(start.Add(d))) }
	var cut atomic.Bool // nothing but the late command reaches the server
	f.onBefore(func(cmd conn.Command) error {
		switch {
		case cmd.Script == script:
			at(19 * time.Second)
		case cut.Load():
			return errUnsent
		}
		return nil
	})
	f.onAfter(func(cmd conn.Command) error {
		if cmd.Script != script {
			return nil
		}
		at(after)
		return answer
	})
	h := begins(t, core)
	at(20 * time.Second)
	cut.Store(true)
	wants(t, h.Unlock(context.Background()), lock.ErrUnavailable)
	at(45 * time.Second) // a lease and more after the sending
	if f.count("l") == 0 {
		t.Fatal("the late command did not keep the lock")
	}
	cut.Store(false)
	at(47 * time.Second)
	testbed.Equal(t, f.count("l"), 0, "whether the lock is held for nobody")
}
