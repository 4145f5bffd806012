package otel

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// tracing is the tracer with its prebuilt options.
type tracing struct {
	tracer   trace.Tracer
	internal []trace.SpanStartOption
	client   []trace.SpanStartOption
	name     func(string) string
	links    bool

	// placeholder is the global provider as it was before the program set one: as
	// long as it still is the global one, spans go nowhere.
	placeholder trace.TracerProvider
	set         atomic.Bool
}

func newTracing(tp trace.TracerProvider, opt Options) *tracing {
	t := &tracing{
		tracer:   tp.Tracer(Scope, trace.WithSchemaURL(semconv.SchemaURL)),
		internal: []trace.SpanStartOption{trace.WithSpanKind(trace.SpanKindInternal)},
		name:     opt.LockName,
		links:    !opt.NoLinks,
	}
	t.client = []trace.SpanStartOption{
		trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(semconv.DBSystemNameRedis, semconv.DBOperationName("EVALSHA")),
		trace.WithAttributes(opt.Server...),
	}
	if isPlaceholder(tp) {
		t.placeholder = tp
	}
	return t
}

// isPlaceholder recognises the API's own global provider, which forwards to the
// one that the program sets later and drops everything until then.
func isPlaceholder(p any) bool { return strings.HasPrefix(fmt.Sprintf("%T", p), "*global.") }

// enabled is the cheap check in front of everything.
func (t *tracing) enabled() bool {
	switch {
	case t == nil:
		return false
	case t.placeholder == nil || t.set.Load():
		return true
	case otel.GetTracerProvider() == t.placeholder:
		return false
	}
	t.set.Store(true)
	return true
}

// common are the attributes that every span carries.
func (t *tracing) common(l observe.Lock) []attribute.KeyValue {
	name := l.Name
	if t.name != nil {
		name = t.name(name)
	}
	return []attribute.KeyValue{attribute.String("lock.name", name), attribute.String("lock.type", l.Type)}
}

// end ends a span with the status of err.
func end(span trace.Span, err error) {
	if err != nil {
		span.SetStatus(codes.Error, err.Error())
		span.SetAttributes(semconv.ErrorTypeKey.String(errorType(err)))
	}
	span.End()
}

// acquisition implements observe.Acquisition.
type acquisition struct {
	o      *observer
	lock   observe.Lock
	parent context.Context
	ctx    context.Context

	traced bool
	span   trace.Span
	wait   trace.Span // nil: it did not have to wait

	measured  bool
	began     time.Time
	waitBegan time.Time

	attempts int
	busy     bool
}

// Trace implements observe.Acquisition.
func (a *acquisition) Trace() string {
	switch {
	case !a.traced || !a.o.tracing.links:
		return ""
	case a.span.SpanContext().IsSampled():
		sc := a.span.SpanContext()
		return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
	}
	return "-"
}

// Attempt implements observe.Acquisition.
func (a *acquisition) Attempt() { a.attempts++ }

// Busy implements observe.Acquisition.
func (a *acquisition) Busy(holder, left string, position int) {
	first := !a.busy
	a.busy = true
	if first && a.measured {
		a.o.metrics.contended(a.ctx, a.lock)
	}
	if !a.traced || !first {
		return
	}
	if holder != "" {
		a.span.SetAttributes(attribute.String("lock.holder.owner", holder))
	}
	if position > 0 {
		a.span.SetAttributes(attribute.Int("lock.queue.position", position))
	}
	if sc, ok := parseTrace(left, holder); ok {
		// Some viewers do not show what a link points to, so say it twice.
		a.span.SetAttributes(attribute.String("lock.holder.trace_id", sc.TraceID().String()))
		a.span.AddLink(trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
			attribute.String("lock.link", "holder"),
		}})
	}
}

// parseTrace reads "<owner> <traceparent>" and checks that it is the holder's.
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
	if a.measured {
		a.waitBegan = time.Now()
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
	how := outcome(r.Err)
	if a.measured {
		a.o.metrics.acquired(a.ctx, a.lock, how, r.Err, a.began, a.waitBegan)
	}
	if !a.traced {
		return
	}
	if a.wait != nil {
		a.wait.End()
	}
	a.span.SetAttributes(
		attribute.String("lock.outcome", how),
		attribute.Bool("lock.contended", a.busy || a.wait != nil),
		attribute.Int("lock.attempts", a.attempts),
		attribute.String("lock.owner", r.Owner),
	)
	if r.Err == nil {
		a.span.SetAttributes(attribute.Int("lock.count", r.Count))
		if r.Token > 0 {
			a.span.SetAttributes(attribute.Int64("lock.fencing_token", int64(r.Token))) // #nosec G115 -- microseconds of this century
		}
		a.span.End()
		return
	}
	if how == "error" || how == "lost" {
		end(a.span, r.Err)
		return
	}
	a.span.SetAttributes(semconv.ErrorTypeKey.String(errorType(r.Err)))
	a.span.End() // busy, or not wanted any more: no error
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
	}
	return "timeout"
}
