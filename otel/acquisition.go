package otel

import (
	"context"
	"encoding/hex"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// acquisition implements observe.Acquisition.
type acquisition struct {
	o    *observer
	lock observe.Lock
	ctx  context.Context // with the span

	traced bool
	span   trace.Span
	wait   trace.Span // nil: it did not have to wait

	measured  bool
	began     time.Time
	waitBegan time.Time

	attempts  int
	contended atomic.Bool
	whole     *acquisition // what this is a member of
	holder    string       // seen last
	others    bool         // it is not the first
	links     int
	last      trace.Link // of the holder seen last, while there is no room for more
	position  int        // seen last
	moves     int
}

// Bounds of what one span tells: locks can pass through many hands while one
// acquisition waits.
const (
	maxLinks = 8
	maxMoves = 32
)

// Trace implements observe.Acquisition.
func (a *acquisition) Trace() string {
	if !a.traced || a.o.tracing.opt.NoLinks {
		return ""
	}
	sc := a.span.SpanContext()
	if !sc.IsSampled() {
		return "-"
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}

// Attempt implements observe.Acquisition.
func (a *acquisition) Attempt() { a.attempts++ }

// contend counts the acquisition as contended, once.
func (a *acquisition) contend() {
	if a.contended.CompareAndSwap(false, true) {
		if a.measured {
			a.o.metrics.contended(a.ctx, a.lock)
		}
		if a.whole != nil { // members are tried at the same time
			a.whole.contend()
		}
	}
}

// Busy implements observe.Acquisition.
func (a *acquisition) Busy(holder, left string, position int) {
	a.contend()
	if !a.traced {
		return
	}
	if position > 0 && position != a.position {
		a.moved(position)
	}
	if holder == "" || holder == a.holder {
		return
	}
	if a.holder == "" { // the one that it met; those that follow are links
		a.span.SetAttributes(attribute.String("lock.holder.owner", clean(holder)))
	}
	a.others = a.holder != ""
	a.holder, a.last = holder, trace.Link{}
	sc, ok := parseTrace(left, holder)
	if !ok {
		return
	}
	if !a.others {
		// Some viewers do not show what a link points to, so say it twice.
		a.span.SetAttributes(attribute.String("lock.holder.trace_id", sc.TraceID().String()))
	}
	a.last = trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
		attribute.String("lock.link", "holder"), attribute.String("lock.holder.owner", clean(holder)),
	}}
	if a.links++; a.links < maxLinks {
		a.span.AddLink(a.last)
	}
}

// predecessor tells of the holder seen last: for one that acquired, whom it waited
// for in the end. It has the last of the links, and names of its own, since links are
// hard to tell apart in some viewers.
func (a *acquisition) predecessor() {
	if !a.others {
		return
	}
	a.span.SetAttributes(attribute.String("lock.predecessor.owner", clean(a.holder)))
	if !a.last.SpanContext.IsValid() {
		return
	}
	a.span.SetAttributes(attribute.String("lock.predecessor.trace_id", a.last.SpanContext.TraceID().String()))
	if a.links >= maxLinks {
		a.span.AddLink(a.last)
	}
}

// moved notes a new place in the queue: the first as an attribute, the next as
// events on the bar of the wait.
func (a *acquisition) moved(position int) {
	at := attribute.Int("lock.queue.position", position)
	if a.position == 0 {
		a.span.SetAttributes(at)
	} else if a.wait != nil && a.moves < maxMoves {
		a.moves++
		a.wait.AddEvent("lock.queue.moved", trace.WithAttributes(at))
	}
	a.position = position
}

// parseTrace reads "<owner> <traceparent>" and checks that it is the holder's:
// it may be what an earlier one left.
func parseTrace(left, holder string) (trace.SpanContext, bool) {
	owner, parent, ok := strings.Cut(left, " ")
	part := strings.Split(parent, "-")
	if !ok || owner != holder || len(part) != 4 {
		return trace.SpanContext{}, false
	}
	var tid trace.TraceID
	var sid trace.SpanID
	if len(part[1]) != 2*len(tid) || len(part[2]) != 2*len(sid) {
		return trace.SpanContext{}, false
	}
	if _, err := hex.Decode(tid[:], []byte(part[1])); err != nil {
		return trace.SpanContext{}, false
	}
	if _, err := hex.Decode(sid[:], []byte(part[2])); err != nil {
		return trace.SpanContext{}, false
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: tid, SpanID: sid, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	return sc, sc.IsValid()
}

// Wait implements observe.Acquisition.
func (a *acquisition) Wait() {
	a.contend()
	a.waitBegan = time.Now()
	if a.measured {
		a.o.metrics.waiting(a.ctx, a.lock, 1)
	}
	if a.traced {
		t := a.o.tracing
		_, a.wait = t.tracer.Start(a.ctx, "lock.wait", t.internal...)
		a.wait.SetAttributes(t.common(a.lock)...)
	}
}

// Link implements observe.Acquisition.
func (a *acquisition) Link() any {
	if !a.traced {
		return nil
	}
	return a.span.SpanContext()
}

// End implements observe.Acquisition.
func (a *acquisition) End(r observe.Result) {
	how, now := outcome(r.Err), time.Now()
	if a.measured {
		a.o.metrics.acquired(a, how, r.Err, now)
	}
	if !a.traced {
		return
	}
	a.span.SetAttributes(
		attribute.String("lock.outcome", how),
		attribute.Bool("lock.contended", a.contended.Load()),
		attribute.Int("lock.attempts", a.attempts),
	)
	if r.Owner != "" {
		a.span.SetAttributes(attribute.String("lock.owner", r.Owner))
	}
	a.predecessor()
	if a.wait != nil {
		a.wait.SetAttributes(attribute.String("lock.outcome", how))
		a.span.SetAttributes(attribute.Float64("lock.wait.duration", now.Sub(a.waitBegan).Seconds()))
		a.wait.End()
	}
	switch {
	case r.Err == nil:
		a.span.SetAttributes(attribute.Int("lock.count", r.Count))
		if r.Token > 0 {
			a.span.SetAttributes(attribute.Int64("lock.fencing_token", int64(r.Token))) // #nosec G115 -- microseconds of this century
		}
		a.span.End()
	case how == "error" || how == "lost":
		a.o.tracing.end(a.span, r.Err)
	default: // busy, or not wanted any more: what was asked for, no fault
		a.span.SetAttributes(semconv.ErrorTypeKey.String(errorType(r.Err)))
		a.span.End()
	}
}

// outcome names what an acquisition came to.
func outcome(err error) string {
	switch {
	case err == nil:
		return "acquired"
	case errors.Is(err, lock.ErrLeaseLost):
		return "lost"
	case !errors.Is(err, lock.ErrNotAcquired):
		return "error"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, lock.ErrUnavailable): // the wait ended, but not because the lock was busy
		return "error"
	}
	return "timeout"
}
