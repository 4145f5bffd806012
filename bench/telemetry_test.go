package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	sdkmetric "go.opentelemetry.io/otel/sdk/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/telemetry"
	"github.com/redlatch/redlatch/internal/testbed"
)

// discard is an exporter that costs nothing itself.
type discard struct{}

func (discard) ExportSpans(context.Context, []sdktrace.ReadOnlySpan) error { return nil }
func (discard) Shutdown(context.Context) error                             { return nil }

// telemetries are the ways of having telemetry that are compared. The first is
// the one without: with no-ops a Client has no observer at all.
func telemetries() []struct {
	name string
	set  func(*redlatch.Config)
} {
	sampled := func(share float64) *sdktrace.TracerProvider {
		return sdktrace.NewTracerProvider(sdktrace.WithBatcher(discard{}), sdktrace.WithSampler(sdktrace.ParentBased(sdktrace.TraceIDRatioBased(share))))
	}
	return []struct {
		name string
		set  func(*redlatch.Config)
	}{
		{"no-ops", func(c *redlatch.Config) {
			c.TracerProvider, c.MeterProvider = tnoop.NewTracerProvider(), mnoop.NewMeterProvider()
		}},
		{"global,unset", func(*redlatch.Config) {}},
		{"1%", func(c *redlatch.Config) { c.TracerProvider, c.MeterProvider = sampled(0.01), mnoop.NewMeterProvider() }},
		{"metrics", func(c *redlatch.Config) {
			c.TracerProvider, c.MeterProvider = tnoop.NewTracerProvider(), sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		}},
		{"1%+metrics", func(c *redlatch.Config) {
			c.TracerProvider, c.MeterProvider = sampled(0.01), sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		}},
		{"100%+metrics", func(c *redlatch.Config) {
			c.TracerProvider, c.MeterProvider = sampled(1), sdkmetric.NewMeterProvider(sdkmetric.WithReader(sdkmetric.NewManualReader()))
		}},
	}
}

func pairWith(b *testing.B, addr string, set func(*redlatch.Config)) func() {
	b.Helper()
	cfg := redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{addr}}}
	set(&cfg)
	c, err := redlatch.New(cfg)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(c.Close)
	l, ctx := c.RLock("bench"), context.Background()
	return func() {
		h, err := l.Lock(ctx)
		if err == nil {
			err = h.Unlock(ctx)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkTelemetry is Lock + Unlock with each kind of telemetry: time and
// allocations.
func BenchmarkTelemetry(b *testing.B) {
	server := testbed.Standalone(b)
	for _, tel := range telemetries() {
		b.Run(tel.name, func(b *testing.B) {
			pair := pairWith(b, server.Addr(), tel.set)
			pair()
			b.ReportAllocs()
			for b.Loop() {
				pair()
			}
		})
	}
}

// BenchmarkTelemetryRatio compares them in alternating rounds, so that what the
// machine does besides strikes all alike. An operation is a round; reported is the
// median over the rounds of each one's time by that without telemetry.
//
//	go test -bench TelemetryRatio -benchtime 300x
func BenchmarkTelemetryRatio(b *testing.B) {
	const pairs = 200
	server := testbed.Standalone(b)
	var todo []func()
	for _, tel := range telemetries() {
		todo = append(todo, pairWith(b, server.Addr(), tel.set))
	}
	// The same again, to see what two measurements of one thing differ by.
	todo = append(todo, pairWith(b, server.Addr(), telemetries()[0].set))
	ratios := make([][]float64, len(todo))
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
	for i := range todo {
		if i == 0 {
			continue
		}
		slices.Sort(ratios[i])
		name := "no-ops,again"
		if i < len(telemetries()) {
			name = telemetries()[i].name
		}
		b.ReportMetric(ratios[i][len(ratios[i])/2], fmt.Sprintf("x_%s", name))
	}
}

// BenchmarkObserver is what a Lock + Unlock asks of the observer, without the
// locking: the part of the time above that is telemetry's, free of what the
// network and other processes do.
func BenchmarkObserver(b *testing.B) {
	for _, tel := range telemetries()[1:] {
		b.Run(tel.name, func(b *testing.B) {
			var cfg redlatch.Config
			tel.set(&cfg)
			o, err := telemetry.New(telemetry.Options{TracerProvider: cfg.TracerProvider, MeterProvider: cfg.MeterProvider})
			if err != nil {
				b.Fatal(err)
			}
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
