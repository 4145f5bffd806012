package telemetry

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// starts is code of the user's that runs where a span begins.
type starts func(s sdktrace.ReadOnlySpan)

func (f starts) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) { f(s) }
func (starts) OnEnd(sdktrace.ReadOnlySpan)                           {}
func (starts) Shutdown(context.Context) error                        { return nil }
func (starts) ForceFlush(context.Context) error                      { return nil }

// TestSlowCodeStretchesNoTenure: an RLock is not passed on inside the process when the code that is told of the Unlock
// takes longer than the tenure: somebody else may have the lock by then.
func TestSlowCodeStretchesNoTenure(t *testing.T) {
	const long = 500 * time.Millisecond
	r := newRig(t, tenure(long))
	other := r.open()
	var inside atomic.Pointer[redlatch.Hold]
	r.tracing.RegisterSpanProcessor(starts(func(s sdktrace.ReadOnlySpan) {
		if s.Name() != "lock.release" || inside.Load() != nil {
			return
		}
		r.server.Do(t, "DEL", "a")
		h := bed.Lock(t, context.Background(), other.RLock("a"))
		inside.Store(&h)
		time.Sleep(long)
	}))
	h := bed.Lock(t, t.Context(), r.client.RLock("a"))
	var next <-chan bed.Attempt
	testbed.Mark(t.Name(), func() { next = bed.Async(t.Context(), r.client.RLock("a")) })
	bed.Eventually(t, "the next one sleeps", func() bool { return testbed.MarkedIn(t.Name(), "(*acquisition).sleep") == 1 })
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost) // it must not pass on what another one has
	bed.Unlock(t, *inside.Load())
	bed.Unlock(t, bed.Hold(t, next))
}
