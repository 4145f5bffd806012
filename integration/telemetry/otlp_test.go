package telemetry

import (
	"context"
	"errors"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("otlp", replica) }

type replicaArgs struct{ Redis, Endpoint, Instance string }

// replica is one replica of a service that exports by OTLP to where the environment
// says, set up as such programs are. It takes the lock in a job of its own, says so,
// unlocks it at the next line, and flushes its exporters.
func replica(ctx context.Context, w *testbed.Worker) (err error) {
	var arg replicaArgs
	if err := w.Args(&arg); err != nil {
		return err
	}
	if err := os.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", arg.Endpoint); err != nil {
		return err
	}
	spans, err := otlptracehttp.New(ctx)
	if err != nil {
		return err
	}
	meters, err := otlpmetrichttp.New(ctx)
	if err != nil {
		return err
	}
	res := resource.NewSchemaless(attribute.String("service.name", "orders"), attribute.String("service.instance.id", arg.Instance))
	tracing := sdktrace.NewTracerProvider(sdktrace.WithBatcher(spans), sdktrace.WithResource(res))
	metering := metric.NewMeterProvider(metric.WithReader(metric.NewPeriodicReader(meters)), metric.WithResource(res))
	defer func() { err = errors.Join(err, tracing.Shutdown(ctx), metering.Shutdown(ctx)) }()

	c, err := redlatch.New(redlatch.Config{
		Redis:          rueidis.ClientOption{InitAddress: []string{arg.Redis}},
		TracerProvider: tracing, MeterProvider: metering,
		Telemetry: redlatch.Telemetry{LockName: func(string) string { return "orders:*" }},
	})
	if err != nil {
		return err
	}
	defer c.Close()
	jobCtx, job := tracing.Tracer("orders").Start(ctx, "job")
	defer job.End()
	h, err := c.RLock("orders:42", redlatch.Fenced()).Lock(jobCtx)
	if err != nil {
		return err
	}
	w.Say("held")
	<-w.Lines()
	return h.Unlock(jobCtx)
}

// TestOTLP: two processes contend for a lock and export by OTLP; what a collector
// receives has the spans, the link from the waiter to the holder and the metrics
// that docs/OBSERVABILITY.md names.
func TestOTLP(t *testing.T) {
	server := testbed.Standalone(t)
	r := newReceiver(t)
	start := func(instance string) *testbed.Process {
		return testbed.Spawn(t, "otlp", replicaArgs{server.Addr(), r.url, instance})
	}
	first := start("holder")
	first.Expect(t, "held")
	second := start("waiter")
	// One attempt of the holder's, and two of the waiter's: the second one when its
	// subscription stands.
	bed.Eventually(t, "the second waits", func() bool { return server.CommandStats(t).Calls["evalsha"] >= 3 })
	const held = 50 * time.Millisecond
	time.Sleep(held) // what the wait must show at least
	first.Send(t, "unlock")
	second.Expect(t, "held")
	second.Send(t, "unlock")
	for _, p := range []*testbed.Process{first, second} {
		if err := p.Wait(t); err != nil { // all is flushed
			t.Fatal(err)
		}
	}

	d := newDrawing(&rig{})
	d.spans = r.spans
	got := strings.Join(d.tree(slices.Clone(r.spans)), "") + r.series()
	golden(t, "otlp.golden", got)

	var acquired tracetest.SpanStubs // the holder's, and the waiter's
	for _, s := range r.spans {
		switch s.Name {
		case "lock.acquire":
			acquired = append(acquired, s)
		case "lock.wait":
			if waited := s.EndTime.Sub(s.StartTime); waited < held {
				t.Errorf("lock.wait lasts %v", waited)
			}
		}
	}
	slices.SortFunc(acquired, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	holder, waiter := acquired[0], acquired[1]
	if to := waiter.Links[0].SpanContext; !to.IsRemote() || !to.IsSampled() {
		t.Errorf("the link is remote %t, sampled %t", to.IsRemote(), to.IsSampled())
	}
	if told, err := strconv.ParseFloat(attr(waiter, "lock.wait.duration"), 64); err != nil || told < held.Seconds() {
		t.Errorf("waited for %v s, %v", told, err)
	}
	if first, second := attr(holder, "lock.fencing_token"), attr(waiter, "lock.fencing_token"); first >= second { // as long
		t.Errorf("fencing tokens %s, then %s", first, second)
	}
	// From the dashboard to the trace.
	for sender, s := range map[string]tracetest.SpanStub{"holder": holder, "waiter": waiter} {
		if to := r.exemplar(sender + " lock.hold.duration"); to.SpanID() != s.SpanContext.SpanID() || to.TraceID() != s.SpanContext.TraceID() {
			t.Errorf("the exemplar of the %s's hold leads elsewhere", sender)
		}
	}
}
