package telemetry

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

const ownHolder = "waiting for a lock that this client holds"

// One line says so, and what to do, when a call inside a critical section is made with the
// request's ctx instead of the hold's, and waits for its own goroutine.
func TestLogOfANestedCallWithTheWrongContext(t *testing.T) {
	kinds := map[string]func(c *redlatch.Client) redlatch.Locker{
		"reentrant":  func(c *redlatch.Client) redlatch.Locker { return c.RLock("a") },
		"fenced":     func(c *redlatch.Client) redlatch.Locker { return c.RLock("a", redlatch.Fenced()) },
		"fair":       func(c *redlatch.Client) redlatch.Locker { return c.FairLock("a") },
		"write":      func(c *redlatch.Client) redlatch.Locker { return c.ReadWriteLock("a").WriteLock() },
		"two as one": func(c *redlatch.Client) redlatch.Locker { return redlatch.MultiLock(c.RLock("{a}b"), c.RLock("{a}c")) },
	}
	for kind, of := range kinds {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, leaseTime(checked))
			l := of(r.client)
			outer := must[redlatch.Hold](t)(l.Lock(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			waits := []func(){
				begin(t, func() { _, _ = l.Lock(ctx) }),
				begin(t, func() { _, _ = l.TryLock(ctx, time.Hour, 0) }),
			}
			began := time.Now()
			eventually(t, "a line tells of it", func() bool { return len(r.log.lines(t, ownHolder)) > 0 })
			if after := time.Since(began); after < checked/3-checked/10 {
				t.Errorf("told after %v, others may just be waiting", after)
			}
			time.Sleep(checked / 2) // for another line, which would be one too many
			cancel()
			for _, w := range waits {
				w()
			}
			lines := r.log.lines(t, ownHolder)
			if len(lines) != 1 {
				t.Fatalf("%d lines: %v", len(lines), lines)
			}
			rec := lines[0]
			holder, _ := rec["holder"].(string)
			if holder == rec["owner"] || !strings.HasPrefix(holder, r.client.ID()) {
				t.Errorf("the holder is %q, want another owner of this client", holder)
			}
			if msg, _ := rec["msg"].(string); !strings.Contains(msg, "hold.Context()") || rec["level"] != "WARN" {
				t.Errorf("no remedy: %v", rec)
			}
			unlock(t, outer)
		})
	}
}

// TestLogOfOrdinaryWaitsIsEmpty: nobody is told of a wait for another process, nor of many short ones for
// one's own.
func TestLogOfOrdinaryWaitsIsEmpty(t *testing.T) {
	r := newRig(t, leaseTime(checked))
	other := r.open(leaseTime(checked))
	theirs := must[redlatch.Hold](t)(other.RLock("b").Lock(t.Context()))
	ctx, cancel := context.WithTimeout(t.Context(), checked)
	defer cancel()
	wait := begin(t, func() { _, _ = r.client.RLock("b").Lock(ctx) })
	var workers []func()
	for range 6 {
		workers = append(workers, begin(t, func() {
			for ctx.Err() == nil {
				_ = r.client.FairLock("a").Do(ctx, func(context.Context) error { time.Sleep(checked / 20); return nil })
				_ = r.client.RLock("c").Do(ctx, func(context.Context) error { time.Sleep(checked / 20); return nil })
			}
		}))
	}
	for _, w := range append(workers, wait) {
		w()
	}
	if lines := r.log.lines(t, ownHolder); len(lines) > 0 {
		t.Errorf("logged %v", lines)
	}
	unlock(t, theirs)
}
