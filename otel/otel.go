package otel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch/internal/observe"
)

// Scope is the instrumentation scope of all spans and metrics.
const Scope = "github.com/redlatch/redlatch"

// Options says what is observed, and where it goes.
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

	// Server is host and port for the command spans, when there is one server.
	Server []attribute.KeyValue
}

// observer implements observe.Observer.
type observer struct {
	opt     Options
	tracing *tracing // nil: off
	metrics *metrics // nil: off
}

// New makes the observer; it is nil, at no cost, when both providers are no-ops.
func New(opt Options) (observe.Observer, error) {
	o := &observer{opt: opt}
	tp, mp := opt.TracerProvider, opt.MeterProvider
	if tp == nil {
		tp = otel.GetTracerProvider()
	}
	if mp == nil {
		mp = otel.GetMeterProvider()
	}
	if _, off := tp.(tnoop.TracerProvider); !off {
		o.tracing = newTracing(tp, opt)
	}
	if _, off := mp.(mnoop.MeterProvider); !off {
		m, err := newMetrics(mp, opt.LockName)
		if err != nil {
			return nil, fmt.Errorf("redlatch: making the instruments: %w", err)
		}
		o.metrics = m
	}
	if o.tracing == nil && o.metrics == nil {
		return nil, nil //nolint:nilnil // a nil Observer is documented to see nothing
	}
	return o, nil
}

// Acquire implements observe.Observer.
func (o *observer) Acquire(ctx context.Context, l observe.Lock, wait, lease time.Duration) (context.Context, observe.Acquisition) {
	a := &acquisition{o: o, lock: l, parent: ctx, ctx: ctx}
	if o.metrics.enabled(ctx) {
		a.measured, a.began = true, time.Now()
	}
	if t := o.tracing; t.enabled() {
		a.ctx, a.span = t.tracer.Start(ctx, "lock.acquire", t.internal...)
		if a.span.IsRecording() {
			a.traced = true
			a.span.SetAttributes(t.common(l)...)
			a.span.SetAttributes(attribute.Float64("lock.lease", lease.Seconds()))
			if wait >= 0 {
				a.span.SetAttributes(attribute.Float64("lock.wait_limit", wait.Seconds()))
			}
		}
	}
	if !a.traced && !a.measured {
		return a.ctx, nil
	}
	return a.ctx, a
}

// Release implements observe.Observer.
func (o *observer) Release(ctx context.Context, l observe.Lock, owner string) (context.Context, func(error)) {
	t := o.tracing
	if !t.enabled() {
		return ctx, ignore
	}
	ctx, span := t.tracer.Start(ctx, "lock.release", t.internal...)
	if !span.IsRecording() {
		return ctx, ignore
	}
	span.SetAttributes(t.common(l)...)
	span.SetAttributes(attribute.String("lock.owner", owner))
	return ctx, func(err error) { end(span, err) }
}

// Operator implements observe.Observer.
func (o *observer) Operator(ctx context.Context, l observe.Lock, op string) (context.Context, func(error)) {
	t := o.tracing
	if !t.enabled() {
		return ctx, ignore
	}
	ctx, span := t.tracer.Start(ctx, "lock."+op, t.internal...)
	if !span.IsRecording() {
		return ctx, ignore
	}
	span.SetAttributes(t.common(l)...)
	return ctx, func(err error) { end(span, err) }
}

// Command implements observe.Observer.
func (o *observer) Command(ctx context.Context, script string) (context.Context, func(error)) {
	t := o.tracing
	if !t.enabled() || o.opt.NoCommands || !trace.SpanFromContext(ctx).IsRecording() {
		return ctx, ignore
	}
	ctx, span := t.tracer.Start(ctx, "EVALSHA", t.client...)
	if !span.IsRecording() {
		return ctx, ignore
	}
	span.SetAttributes(semconv.DBStoredProcedureName(script))
	return ctx, func(err error) {
		if code := statusCode(err); code != "" {
			span.SetAttributes(semconv.DBResponseStatusCode(code))
		}
		end(span, err)
	}
}

// Held implements observe.Observer.
func (o *observer) Held(l observe.Lock) { o.metrics.held(l, 1) }

// Ended implements observe.Observer.
func (o *observer) Ended(l observe.Lock, how string, held time.Duration) {
	o.metrics.ended(l, how, held)
}

// Renewed implements observe.Observer.
func (o *observer) Renewed(l observe.Lock, owner string, link any, began time.Time, err error) {
	o.metrics.renewed(l, err)
	t := o.tracing
	if !t.enabled() || (err == nil && !o.opt.Renewals) {
		return
	}
	opts := []trace.SpanStartOption{trace.WithNewRoot(), trace.WithTimestamp(began)}
	if sc, ok := link.(trace.SpanContext); ok && sc.IsValid() {
		opts = append(opts, trace.WithLinks(trace.Link{SpanContext: sc}))
	}
	_, span := t.tracer.Start(context.Background(), "lock.renew", opts...)
	if span.IsRecording() {
		span.SetAttributes(t.common(l)...)
		span.SetAttributes(attribute.String("lock.owner", owner))
	}
	end(span, err)
}

func ignore(error) {}

// errorType is the error.type attribute.
func errorType(err error) string {
	var typed interface{ ErrorType() string }
	if errors.As(err, &typed) {
		return typed.ErrorType()
	}
	if code := statusCode(err); code != "" {
		return code
	}
	return fmt.Sprintf("%T", err)
}

// statusCode is the first word of a server's error.
func statusCode(err error) string {
	var server interface {
		error
		IsNil() bool // of rueidis' RedisError
	}
	if !errors.As(err, &server) {
		return ""
	}
	word, _, _ := strings.Cut(server.Error(), " ")
	return word
}

// Server is host and port as attributes, when addresses name one server.
func Server(addresses []string) []attribute.KeyValue {
	if len(addresses) != 1 {
		return nil
	}
	host, port, err := net.SplitHostPort(addresses[0])
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(addresses[0])}
	}
	n, err := strconv.Atoi(port)
	if err != nil {
		return []attribute.KeyValue{semconv.ServerAddress(host)}
	}
	return []attribute.KeyValue{semconv.ServerAddress(host), semconv.ServerPort(n)}
}
