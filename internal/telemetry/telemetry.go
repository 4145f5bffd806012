// Package telemetry reports what a Client's locks do as OpenTelemetry spans and metrics.
// It depends on the OpenTelemetry API only; the program chooses the SDK and the
// exporters. docs/OBSERVABILITY.md lists every span, attribute and metric.
package telemetry

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch/internal/observe"
)

// Options chooses what is reported, and to which providers.
type Options struct {
	TracerProvider trace.TracerProvider // nil: the global one
	MeterProvider  metric.MeterProvider // nil: the global one

	// LockName makes the lock.name attribute from a lock's name. nil: spans carry
	// the name as it is, metrics none.
	LockName func(name string) string
	// NoLinks: holders leave no trace context beside their locks.
	NoLinks bool
	// NoCommands: no span per command, for clients that are wrapped already.
	NoCommands bool
	// Renewals: spans for renewals that worked, too.
	Renewals bool

	// Client is the Client's name, on every span of a lock.
	Client string
	// LeaseTime is what the watchdog keeps holds for.
	LeaseTime time.Duration
	// Server is host and port for the command spans, when there is one server.
	Server []attribute.KeyValue
	// Guard stops the panics of what is called here. nil: nobody hears of them.
	Guard *observe.Guard
}

// observer implements observe.Observer.
type observer struct {
	guard   *observe.Guard
	tracing *tracing // nil: off
	metrics *metrics // nil: off
}

// New makes the observer; it is nil, at no cost, when both providers are no-ops.
func New(opt Options) (observe.Observer, error) {
	o := &observer{guard: opt.Guard}
	if tp, src := newSource(opt.TracerProvider, otel.GetTracerProvider); src != nil {
		o.tracing = newTracing(tp, src, opt)
	}
	if mp, src := newSource(opt.MeterProvider, otel.GetMeterProvider); src != nil {
		m, err := newMetrics(mp, src, opt.LockName)
		if err != nil {
			return nil, fmt.Errorf("redlatch: create the instruments: %w", err)
		}
		o.metrics = m
	}
	if o.tracing == nil && o.metrics == nil {
		return nil, nil //nolint:nilnil // a nil Observer is documented to see nothing
	}
	return o, nil
}

// Acquire implements observe.Observer. Of a member that is tried once more it is
// what it was in the rounds before.
func (o *observer) Acquire(ctx context.Context, l observe.Lock, wait, lease time.Duration) (
	out context.Context, _ observe.Acquisition,
) {
	out = ctx // should it panic
	defer o.guard.Recover()
	whole, _ := ctx.Value(wholeKey{}).(*acquisition)
	if whole != nil {
		if a := whole.member(o, l, nil); a != nil && a.again() {
			return a.carried(trace.ContextWithSpan(ctx, a.span)), a
		}
	}
	span, measured := noSpan, o.metrics.on()
	if t := o.tracing; t.on() {
		ctx, span = t.tracer.Start(ctx, "lock.acquire", t.internal...)
	}
	traced := span.IsRecording()
	if !traced && !measured {
		return ctx, nil
	}
	a := &acquisition{o: o, lock: l, ctx: ctx, span: span, traced: traced, measured: measured, began: time.Now(), once: wait == 0, open: 1}
	if whole != nil {
		whole.member(o, l, a)
	}
	if traced {
		watched := lease == 0
		if watched {
			lease = o.tracing.opt.LeaseTime
		}
		span.SetAttributes(o.tracing.common(l)...)
		span.SetAttributes(attribute.Float64("lock.lease", lease.Seconds()), attribute.Bool("lock.watchdog", watched))
		if wait >= 0 && a.whole == nil { // a member has no limit of its own
			span.SetAttributes(attribute.Float64("lock.wait.limit", wait.Seconds()))
		}
	}
	return a.carried(ctx), a
}

// carried is ctx with the acquisition, if it is one that has members.
func (a *acquisition) carried(ctx context.Context) context.Context {
	if a.lock.Type == "multi" {
		return context.WithValue(ctx, wholeKey{}, a)
	}
	return ctx
}

// wholeKey finds the acquisition of a MultiLock in the contexts of its members'.
type wholeKey struct{}

// noSpan records nothing.
var noSpan = trace.SpanFromContext(context.Background())

// Operation implements observe.Observer.
func (o *observer) Operation(ctx context.Context, l observe.Lock, op, owner string) (out context.Context, end observe.End) {
	out, end = ctx, observe.Ignore // should it panic
	defer o.guard.Recover()
	t := o.tracing
	if !t.on() {
		return ctx, observe.Ignore
	}
	ctx, span := t.tracer.Start(ctx, op, t.internal...)
	if !span.IsRecording() {
		return ctx, observe.Ignore
	}
	span.SetAttributes(t.common(l)...)
	if owner != "" {
		span.SetAttributes(attribute.String("lock.owner", owner))
	}
	return ctx, func(err error, notes ...observe.Note) {
		defer o.guard.Recover()
		for _, n := range notes {
			if n.Lease > 0 {
				span.SetAttributes(attribute.Float64("lock.lease", n.Lease.Seconds()))
			}
			if n.Owner != "" {
				span.SetAttributes(attribute.String("lock.owner", clean(n.Owner)), attribute.Int("lock.count", n.Count))
			}
		}
		t.end(span, err)
	}
}

// Carries implements observe.Observer.
func (o *observer) Carries(ctx context.Context) bool {
	defer o.guard.Recover()
	return o.tracing.on() && !o.tracing.opt.NoCommands && trace.SpanFromContext(ctx).IsRecording()
}

// Command implements observe.Observer.
func (o *observer) Command(ctx context.Context, script string, began time.Time) (out context.Context, end func(error)) {
	out, end = ctx, ignore // should it panic
	defer o.guard.Recover()
	t := o.tracing
	if !t.on() || t.opt.NoCommands || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, ignore
	}
	opts := t.client
	if !began.IsZero() {
		opts = append([]trace.SpanStartOption{trace.WithTimestamp(began)}, opts...)
	}
	ctx, span := t.tracer.Start(ctx, "EVALSHA", opts...)
	if !span.IsRecording() {
		return ctx, ignore
	}
	return ctx, func(err error) {
		defer o.guard.Recover()
		t.endCommand(span, script, err)
	}
}

// Batch implements observe.Observer.
func (o *observer) Batch(script string, keys int, began time.Time, err error) {
	defer o.guard.Recover()
	t := o.tracing
	if !t.on() || t.opt.NoCommands || (err == nil && !t.opt.Renewals) {
		return
	}
	opts := append([]trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(began)}, t.client...)
	_, span := t.tracer.Start(context.Background(), "EVALSHA", opts...)
	span.SetAttributes(attribute.Int("lock.batch.keys", keys))
	t.endCommand(span, script, err)
}

// Counting implements observe.Observer.
func (o *observer) Counting() bool { return o.metrics.on() }

// Held implements observe.Observer.
func (o *observer) Held(l observe.Lock) {
	defer o.guard.Recover()
	o.metrics.held(l)
}

// Ended implements observe.Observer.
func (o *observer) Ended(l observe.Lock, link any, counted bool, how string, held time.Duration) {
	defer o.guard.Recover()
	if !o.metrics.on() {
		return
	}
	ctx := context.Background()
	if sc, ok := link.(trace.SpanContext); ok {
		ctx = trace.ContextWithSpanContext(ctx, sc) // an exemplar leads to the acquisition
	}
	o.metrics.ended(ctx, l, counted, how, held)
}

// Renewals implements observe.Observer.
func (o *observer) Renewals() bool { return o.metrics.on() || o.tracing.on() }

// Renewed implements observe.Observer.
func (o *observer) Renewed(l observe.Lock, owner string, link any, began time.Time, turn bool, err error) {
	defer o.guard.Recover()
	if o.metrics.on() {
		o.metrics.renewed(l, err)
	}
	t := o.tracing
	if !t.on() || !turn && !t.opt.Renewals {
		return
	}
	opts := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(began), trace.WithSpanKind(trace.SpanKindInternal)}
	if sc, ok := link.(trace.SpanContext); ok && sc.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{
			SpanContext: sc, Attributes: []attribute.KeyValue{attribute.String("lock.link", "acquisition")},
		}))
	}
	_, span := t.tracer.Start(context.Background(), "lock.renew", opts...)
	if span.IsRecording() {
		span.SetAttributes(t.common(l)...)
		span.SetAttributes(attribute.String("lock.owner", owner))
	}
	t.end(span, err)
}

// TraceOf implements observe.Observer.
func (o *observer) TraceOf(ctx context.Context, link any) (traceID, spanID string) {
	sc, ok := link.(trace.SpanContext)
	if !ok || !sc.IsValid() {
		sc = trace.SpanContextFromContext(ctx)
	}
	if !sc.IsValid() {
		return "", ""
	}
	return sc.TraceID().String(), sc.SpanID().String()
}

func ignore(error) {}
