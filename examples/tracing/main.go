// Tracing prints the telemetry of a lock that two owners want: their spans, with the waiter's link to the holder, and
// the metrics. A real service has an OTLP exporter in place of these two; nothing else changes.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/tracing
package main

import (
	"cmp"
	"context"
	"errors"
	"io"
	"log"
	"os"
	"regexp"
	"time"

	"go.opentelemetry.io/otel/exporters/stdout/stdoutmetric"
	"go.opentelemetry.io/otel/exporters/stdout/stdouttrace"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
)

func main() {
	section := func() { time.Sleep(100 * time.Millisecond) }
	if err := run(context.Background(), cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), section, os.Stdout); err != nil {
		log.Fatal(err)
	}
}

// digits makes one name of many: metrics must not have a series per order.
var digits = regexp.MustCompile(`[0-9]+`)

// run lets two requests want a lock. section is what the first one does with it.
func run(ctx context.Context, url string, section func(), out io.Writer) (err error) {
	spans, err := stdouttrace.New(stdouttrace.WithWriter(out), stdouttrace.WithPrettyPrint())
	metrics, err2 := stdoutmetric.New(stdoutmetric.WithWriter(out), stdoutmetric.WithPrettyPrint())
	if err := errors.Join(err, err2); err != nil {
		return err
	}
	tracing := trace.NewTracerProvider(trace.WithBatcher(spans))
	meters := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(metrics)))
	defer func() { err = errors.Join(err, tracing.Shutdown(ctx), meters.Shutdown(ctx)) }() // prints

	// Without the two providers redlatch takes the global ones, of otel.Set….
	client, err := redlatch.Open(url, redlatch.WithConfig(func(c *redlatch.Config) {
		c.TracerProvider, c.MeterProvider = tracing, meters
		c.Telemetry.LockName = func(name string) string { return digits.ReplaceAllString(name, "*") }
	}))
	if err != nil {
		return err
	}
	defer client.Close()

	// Each request is a trace of its own. The second waits for the first, and its
	// span lock.acquire links to the first one's.
	tracer := tracing.Tracer("shop")
	first, request := tracer.Start(ctx, "POST /orders/42/ship")
	defer request.End()
	hold, err := client.RLock("orders:42").Lock(first)
	if err != nil {
		return err
	}
	unlocked := make(chan error, 1)
	go func() {
		section()
		unlocked <- hold.Unlock(first)
	}()

	second, rival := tracer.Start(ctx, "POST /orders/42/cancel")
	defer rival.End()
	err = client.RLock("orders:42").Do(second, func(context.Context) error { return nil })
	return errors.Join(err, <-unlocked)
}
