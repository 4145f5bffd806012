package telemetry

import (
	"context"
	"errors"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	metricspb "go.opentelemetry.io/proto/otlp/metrics/v1"
	tracepb "go.opentelemetry.io/proto/otlp/trace/v1"

	"github.com/redlatch/redlatch"
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
	w.Say("job %s", job.SpanContext().SpanID())
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
	start := func(instance string) (p *testbed.Process, job string) {
		p = testbed.Spawn(t, "otlp", replicaArgs{server.Addr(), r.url, instance})
		return p, p.Expect(t, "job")
	}
	first, firstJob := start("holder")
	first.Expect(t, "held")
	second, secondJob := start("waiter")
	// One attempt of the holder's, and two of the waiter's: the second one when its
	// subscription stands.
	eventually(t, "the second waits", func() bool { return server.CommandStats(t).Calls["evalsha"] >= 3 })
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

	holder, waiter := r.one("holder", "lock.acquire"), r.one("waiter", "lock.acquire")
	for _, s := range []struct {
		instance, job string
		acquire       *tracepb.Span
		children      string
	}{
		{"holder", firstJob, holder, "EVALSHA acquire"},
		{"waiter", secondJob, waiter, "EVALSHA acquire, lock.wait, EVALSHA acquire, EVALSHA acquire"},
	} {
		release := r.one(s.instance, "lock.release")
		if id(s.acquire.GetParentSpanId()) != s.job || id(release.GetParentSpanId()) != s.job {
			t.Errorf("%s: spans below %s and %s, the job is %s", s.instance, id(s.acquire.GetParentSpanId()), id(release.GetParentSpanId()), s.job)
		}
		if got := r.below(s.instance, s.acquire); got != s.children {
			t.Errorf("%s: below lock.acquire: %s, want %s", s.instance, got, s.children)
		}
		if got := r.below(s.instance, release); got != "EVALSHA release" {
			t.Errorf("%s: below lock.release: %s", s.instance, got)
		}
		if s.acquire.GetKind() != tracepb.Span_SPAN_KIND_INTERNAL || s.acquire.GetStatus().GetCode() != tracepb.Status_STATUS_CODE_UNSET {
			t.Errorf("%s: lock.acquire is %v with status %v", s.instance, s.acquire.GetKind(), s.acquire.GetStatus())
		}
		for key, want := range map[string]string{
			"lock.name": "orders:*", "lock.type": "reentrant", "lock.outcome": "acquired", "lock.lease": "30", "lock.watchdog": "true",
			"lock.count": "1", "lock.contended": strconv.FormatBool(s.instance == "waiter"),
		} {
			if got := value(s.acquire.GetAttributes(), key); got != want {
				t.Errorf("%s: %s is %q, want %q", s.instance, key, got, want)
			}
		}
	}

	// Who was it that the waiter waited for?
	if len(holder.GetLinks()) != 0 || len(waiter.GetLinks()) != 1 {
		t.Fatalf("%d links of the holder, %d of the waiter", len(holder.GetLinks()), len(waiter.GetLinks()))
	}
	link := waiter.GetLinks()[0]
	if id(link.GetTraceId()) != id(holder.GetTraceId()) || id(link.GetSpanId()) != id(holder.GetSpanId()) || value(link.GetAttributes(), "lock.link") != "holder" {
		t.Errorf("the link is %v, the holder %s %s", link, id(holder.GetTraceId()), id(holder.GetSpanId()))
	}
	remote := uint32(tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_HAS_IS_REMOTE_MASK | tracepb.SpanFlags_SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
	if link.GetFlags()&remote != remote || link.GetFlags()&1 != 1 {
		t.Errorf("the link's flags are %x", link.GetFlags())
	}
	if value(waiter.GetAttributes(), "lock.holder.trace_id") != id(holder.GetTraceId()) ||
		value(waiter.GetAttributes(), "lock.holder.owner") != value(holder.GetAttributes(), "lock.owner") {
		t.Errorf("the holder is not named: %v", waiter.GetAttributes())
	}
	wait := r.one("waiter", "lock.wait")
	waited := time.Duration(wait.GetEndTimeUnixNano() - wait.GetStartTimeUnixNano()) //nolint:gosec // an end after a start
	told, err := strconv.ParseFloat(value(waiter.GetAttributes(), "lock.wait.duration"), 64)
	if err != nil || waited < held || time.Duration(told*float64(time.Second)) < held {
		t.Errorf("waited for %v, the attribute says %v s, %v", waited, told, err)
	}
	tokens := map[string]uint64{}
	for instance, s := range map[string]*tracepb.Span{"holder": holder, "waiter": waiter} {
		if tokens[instance], err = strconv.ParseUint(value(s.GetAttributes(), "lock.fencing_token"), 10, 64); err != nil {
			t.Error(err)
		}
	}
	if tokens["waiter"] <= tokens["holder"] {
		t.Errorf("fencing tokens: %v", tokens)
	}

	r.expectMetrics("holder", waits{})
	r.expectMetrics("waiter", waits{contentions: 1})
	// From the dashboard to the trace.
	for instance, s := range map[string]*tracepb.Span{"holder": holder, "waiter": waiter} {
		if got := r.exemplar(instance, "lock.hold.duration"); got != id(s.GetTraceId())+" "+id(s.GetSpanId()) {
			t.Errorf("%s: the exemplar of the hold is %q", instance, got)
		}
	}
}

// waits is what differs in the metrics of those who had to wait.
type waits struct{ contentions int }

func (r *receiver) expectMetrics(instance string, w waits) {
	r.t.Helper()
	const of = "name=orders:*,type=reentrant"
	want := map[string]string{
		"lock.acquire.duration": "histogram s {name=orders:*,outcome=acquired,type=reentrant} 1",
		"lock.hold.duration":    "histogram s {name=orders:*,outcome=released,type=reentrant} 1",
		"lock.contentions":      "counter {acquisition} {" + of + "} " + strconv.Itoa(w.contentions),
		"lock.leases.lost":      "counter {hold} {" + of + "} 0",
		"lock.held":             "sum {hold} {" + of + "} 0",
	}
	if w.contentions > 0 {
		want["lock.waiting"] = "sum {acquisition} {" + of + "} 0"
		want["lock.wait.duration"] = "histogram s {name=orders:*,outcome=acquired,type=reentrant} 1"
	}
	for name, text := range want {
		if got := r.points(instance, name); got != text {
			r.t.Errorf("%s: %s is\n%s, want\n%s", instance, name, got, text)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range r.metrics[instance] {
		if want[name] == "" && name != "lock.renewals" { // its errors begin at 0: TestMetrics
			r.t.Errorf("%s sent a metric %s", instance, name)
		}
	}
	if r.metrics[instance]["lock.renewals"] == nil {
		r.t.Errorf("%s sent no lock.renewals", instance)
	}
}

// exemplar is the trace and span that a histogram's only exemplar leads to.
func (r *receiver) exemplar(instance, name string) string {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	var found []*metricspb.Exemplar
	for _, p := range r.metrics[instance][name].GetHistogram().GetDataPoints() {
		found = append(found, p.GetExemplars()...)
	}
	if len(found) != 1 {
		r.t.Fatalf("%s: %s has %d exemplars", instance, name, len(found))
	}
	return id(found[0].GetTraceId()) + " " + id(found[0].GetSpanId())
}
