package telemetry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// turns lets n wait for a lock, one behind the other, while somebody holds it, then enter and leave in turn; it returns
// the spans of all acquisitions. ready is called when all wait.
func (r *rig) turns(l redlatch.Locker, n int, ready func()) tracetest.SpanStubs {
	r.t.Helper()
	h := bed.Lock(r.t, r.t.Context(), l)
	var waits []<-chan bed.Attempt
	for i := range n {
		waits = append(waits, bed.Async(r.t.Context(), l))
		r.begun("lock.wait", i+1)
	}
	ready()
	bed.Unlock(r.t, h)
	for _, w := range waits {
		bed.Unlock(r.t, bed.Hold(r.t, w))
	}
	all := r.spans("lock.acquire")
	if len(all) != n+1 {
		r.t.Fatalf("%d acquisitions", len(all))
	}
	return all
}

// linksTo checks where a span's links lead, in their order.
func linksTo(t *testing.T, s tracetest.SpanStub, want ...tracetest.SpanStub) {
	t.Helper()
	var got, to []string
	for _, l := range s.Links {
		got = append(got, l.SpanContext.SpanID().String())
	}
	for _, w := range want {
		to = append(to, w.SpanContext.SpanID().String())
	}
	if !slices.Equal(got, to) {
		t.Errorf("%s links to %v, want %v", attr(s, "lock.owner"), got, to)
	}
}

// TestHoldersInTurn: the last in a process's line asks nobody until it is its turn,
// and links all the same to those who held the lock while it waited: the first of
// them and the last ones, eight at most. That does not depend on how the lock goes from
// one to the next: through the server, inside the process, or now so and now so.
func TestHoldersInTurn(t *testing.T) {
	for how, d := range map[string]time.Duration{"released": -1, "passed on": 5 * time.Second, "both": 0} {
		t.Run(how, func(t *testing.T) {
			const waiters = 13
			r := newRig(t, redlatch.WithLeaseTime(time.Minute), tenure(d))
			spans := r.turns(r.client.RLock("orders:42"), waiters, func() {
				r.ended("acquire", 3) // the first waiter has seen the holder, again when its subscription stood
				bed.Eventually(t, "it has read that answer", func() bool { return testbed.GoroutinesIn("(*acquisition).try") == 0 })
			})
			linksTo(t, spans[1], spans[0])
			linksTo(t, spans[3], spans[0], spans[1], spans[2])
			last, before := spans[waiters], spans[waiters-1]
			if len(last.Links) != 8 {
				t.Fatalf("the last in line has %d links, want 8", len(last.Links))
			}
			last.Links = slices.Delete(last.Links, 1, 7)
			linksTo(t, last, spans[0], before)
			trace := func(s tracetest.SpanStub) string { return s.SpanContext.TraceID().String() }
			testbed.Equal(t, attr(last, "lock.predecessor.trace_id"), trace(before), "the predecessor's trace")
			testbed.Equal(t, attr(last, "lock.holder.trace_id"), trace(spans[0]), "the trace of the holder that it met")
			passed := len(slices.DeleteFunc(spans, func(s tracetest.SpanStub) bool { return attr(s, "lock.attempts") != "0" }))
			if d < 0 && passed > 0 || d > 0 && passed == 0 {
				t.Errorf("%d acquisitions sent no command", passed)
			}
		})
	}
}

// TestSpansFair: each waiter says where in the queue it stood when it came, for whom it waited, and who held the lock
// before it.
func TestSpansFair(t *testing.T) {
	r := newRig(t)
	spans := r.turns(r.client.FairLock("orders:42"), 3, func() {})
	told := 0
	for i, s := range spans {
		if got, want := attr(s, "lock.queue.position"), fmt.Sprint(i); i > 0 && got != want {
			t.Errorf("waiter %d stood at %q", i, got)
		}
		switch {
		case i == 0:
			linksTo(t, s)
		case i == 1, attr(s, "lock.attempts") != "1": // a refresh told it that it has the lock, before the message did
			linksTo(t, s, spans[0])
		default:
			told++
			before := spans[i-1]
			linksTo(t, s, spans[0], before)
			if attr(s, "lock.predecessor.trace_id") != before.SpanContext.TraceID().String() ||
				attr(s, "lock.predecessor.owner") != attr(before, "lock.owner") {
				t.Errorf("the predecessor of waiter %d is not named: %v", i, s.Attributes)
			}
		}
	}
	testbed.AtLeast(t, told, 1, "waiters that were told of their predecessors")
}
