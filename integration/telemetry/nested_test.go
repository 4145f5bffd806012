package telemetry

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

const ownHolder = "waiting for a lock that this client holds"

// One line says so, and what to do, when a call inside a critical section is made with the
// request's ctx instead of the hold's, and waits for its own goroutine.
func TestLogOfANestedCallWithTheWrongContext(t *testing.T) {
	for _, k := range bed.Kinds() {
		if k.Servers > 1 || k.Shared {
			continue // a part of it waits, or nobody does
		}
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t, redlatch.WithLeaseTime(checked))
			l := k.New(r.clients, "a")
			outer := bed.Lock(t, t.Context(), l)
			ctx, cancel := context.WithCancel(t.Context())
			began := time.Now()
			waits := []<-chan bed.Attempt{
				bed.Async(ctx, l),
				bed.Run(func() (redlatch.Hold, error) { return l.TryLock(ctx, time.Hour, 0) }),
			}
			bed.Eventually(t, "a line tells of it", func() bool { return len(r.log.lines(t, ownHolder)) > 0 })
			testbed.AtLeast(t, time.Since(began), checked/3-checked/10, "told after: others may just be waiting")
			time.Sleep(checked / 2) // for another line, which would be one too many
			cancel()
			for _, w := range waits {
				bed.Get(t, w)
			}
			lines := r.log.lines(t, ownHolder)
			if len(lines) != 1 {
				t.Fatalf("%d lines: %v", len(lines), lines)
			}
			rec := lines[0]
			if holder := fmt.Sprint(rec["holder"]); holder == rec["owner"] || !strings.HasPrefix(holder, r.client.ID()) {
				t.Errorf("the holder is %q, want another owner of this client", holder)
			}
			if !strings.Contains(fmt.Sprint(rec["msg"]), "hold.Context()") || rec["level"] != "WARN" {
				t.Errorf("no remedy: %v", rec)
			}
			bed.Unlock(t, outer)
		})
	}
}

// TestLogOfOrdinaryWaitsIsEmpty: nobody is told of a wait for another process, nor of many short ones for
// one's own.
func TestLogOfOrdinaryWaitsIsEmpty(t *testing.T) {
	r := newRig(t, redlatch.WithLeaseTime(checked))
	theirs := bed.Lock(t, t.Context(), r.open(redlatch.WithLeaseTime(checked)).RLock("b"))
	ctx, cancel := context.WithTimeout(t.Context(), checked)
	defer cancel()
	waits := bed.Async(ctx, r.client.RLock("b"))
	work := func(context.Context) error { time.Sleep(checked / 20); return nil }
	var workers []<-chan struct{}
	for range 6 {
		workers = append(workers, began(func() {
			for ctx.Err() == nil {
				_ = r.client.FairLock("a").Do(ctx, work)
				_ = r.client.RLock("c").Do(ctx, work)
			}
		}))
	}
	bed.Get(t, waits)
	for _, w := range workers {
		within(t, "a worker", w)
	}
	testbed.Equal(t, fmt.Sprint(r.log.lines(t, ownHolder)), "[]", "what is logged")
	bed.Unlock(t, theirs)
}
