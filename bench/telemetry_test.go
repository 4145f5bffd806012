package main

import (
	"context"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/metric"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/testbed"
)

// telemetries are the ways of having telemetry that are compared. The first is
// the one without: with no-ops a Client has no observer at all.
func telemetries() []telemetryOf {
	sampled := func(share float64) trace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithBatcher(tracetest.NewNoopExporter()), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))))
	}
	counted := func() metric.MeterProvider {
		return sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
	}
	return []telemetryOf{
		{"no-ops", tnoop.NewTracerProvider(), mnoop.NewMeterProvider()},
		{"global,unset", nil, nil},
		{"1%", sampled(0.01), mnoop.NewMeterProvider()},
		{"metrics", tnoop.NewTracerProvider(), counted()},
		{"1%+metrics", sampled(0.01), counted()},
		{"100%+metrics", sampled(1), counted()},
	}
}

type telemetryOf struct {
	name    string
	traces  trace.TracerProvider
	metrics metric.MeterProvider
}

func pairWith(b *testing.B, addr string, tel telemetryOf) func() {
	b.Helper()
	c, err := redlatch.Open("redis://"+addr, redlatch.WithConfig(func(c *redlatch.Config) { c.TracerProvider, c.MeterProvider = tel.traces, tel.metrics }))
	testbed.Must(b, err)
	b.Cleanup(c.Close)
	l, ctx := c.RLock("bench"), context.Background()
	return func() {
		h, err := l.Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		testbed.Must(b, err)
	}
}

// BenchmarkTelemetryRatio is Lock + Unlock with each kind of telemetry, in alternating rounds, so that what the machine
// does besides strikes all alike. An operation is a round; reported is the median over the rounds of each one's time by
// that without telemetry.
//
//	go test -bench TelemetryRatio -benchtime 300x
func BenchmarkTelemetryRatio(b *testing.B) {
	const pairs = 200
	server := testbed.Standalone(b)
	// The first one again, to see what two measurements of one thing differ by.
	all := append(telemetries(), telemetries()[0])
	all[len(all)-1].name = "no-ops,again"
	todo, ratios := make([]func(), len(all)), make([][]float64, len(all))
	for i, tel := range all {
		todo[i] = pairWith(b, server.Addr(), tel)
	}
	for b.Loop() {
		took := make([]float64, len(todo))
		for _, at := range rand.Perm(len(todo)) { // no one always comes after the same other
			began := time.Now()
			for range pairs {
				todo[at]()
			}
			took[at] = time.Since(began).Seconds()
		}
		for i := range todo {
			ratios[i] = append(ratios[i], took[i]/took[0])
		}
	}
	for i, tel := range all[1:] {
		of := ratios[i+1]
		slices.Sort(of)
		b.ReportMetric(of[len(of)/2], "x_"+tel.name)
	}
}

// BenchmarkObserver is what a Lock + Unlock asks of the observer, without the
// locking: the part of the time above that is telemetry's, free of what the
// network and other processes do.
func BenchmarkObserver(b *testing.B) {
	for _, tel := range telemetries()[1:] {
		b.Run(tel.name, func(b *testing.B) {
			o, err := telemetry.New(telemetry.Options{TracerProvider: tel.traces, MeterProvider: tel.metrics})
			testbed.Must(b, err)
			l := observe.Lock{Name: "bench", Type: "reentrant"}
			b.ReportAllocs()
			for b.Loop() {
				ctx, acq := o.Acquire(context.Background(), l, -1, 0)
				var link any
				if acq != nil {
					acq.Trace()
					acq.Attempt()
					link = acq.Link()
				}
				_, end := o.Command(ctx, "acquire", time.Now())
				end(nil)
				counted := o.Counting()
				if counted {
					o.Held(l)
				}
				if acq != nil {
					acq.End(observe.Result{Owner: "owner", Count: 1})
				}
				ctx, done := o.Operation(context.Background(), l, observe.Release, "owner")
				_, end = o.Command(ctx, "release", time.Now())
				end(nil)
				o.Ended(l, link, counted, "released", time.Millisecond)
				done(nil)
			}
		})
	}
}
