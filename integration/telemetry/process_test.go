package telemetry

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() {
	testbed.Role("holder", holder)
	testbed.Role("late-providers", lateProviders)
}

// holder locks in a process of its own and says which span that was; the lock is
// unlocked at the next line.
func holder(ctx context.Context, w *testbed.Worker) error {
	var addr string
	if err := w.Args(&addr); err != nil {
		return err
	}
	spans := tracetest.NewInMemoryExporter()
	c, err := redlatch.New(redlatch.Config{
		Redis:          rueidis.ClientOption{InitAddress: []string{addr}},
		TracerProvider: sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)),
	})
	if err != nil {
		return err
	}
	defer c.Close()
	h, err := c.RLock("orders:42").Lock(ctx)
	if err != nil {
		return err
	}
	for _, s := range spans.GetSpans() {
		if s.Name == "lock.acquire" {
			w.Say("held %s %s", s.SpanContext.TraceID(), s.SpanContext.SpanID())
		}
	}
	<-w.Lines()
	return h.Unlock(context.Background())
}

// TestLinkAcrossProcesses: the waiter's span in this process links to the
// acquisition's span in the other.
func TestLinkAcrossProcesses(t *testing.T) {
	r := newRig(t)
	p := testbed.Spawn(t, "holder", r.server.Addr())
	var traceID, spanID string
	if _, err := fmt.Sscan(p.Expect(t, "held"), &traceID, &spanID); err != nil {
		t.Fatal(err)
	}
	wait := begin(t, func() {
		h, err := r.client.RLock("orders:42").Lock(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		unlock(t, h)
	})
	r.untilTried("acquire", 2)
	p.Send(t, "unlock")
	wait()
	if err := p.Wait(t); err != nil {
		t.Error(err)
	}
	for _, s := range r.exporter.GetSpans() {
		if s.Name != "lock.acquire" {
			continue
		}
		if len(s.Links) != 1 {
			t.Fatalf("%d links", len(s.Links))
		}
		to := s.Links[0].SpanContext
		if to.TraceID().String() != traceID || to.SpanID().String() != spanID || !to.IsRemote() || !to.IsSampled() {
			t.Errorf("the link leads to %s %s, the holder is %s %s", to.TraceID(), to.SpanID(), traceID, spanID)
		}
		if attr(s, "lock.holder.trace_id") != traceID || attr(s, "lock.holder.owner") == "" {
			t.Errorf("the holder is not named: %v", s.Attributes)
		}
		return
	}
	t.Error("the waiter has no span")
}

func neverSampled(c *redlatch.Config) {
	c.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
}

// A holder that is not sampled leaves no trace, and what an earlier one left is not taken for its
// own.
func TestHolderThatIsNotSampled(t *testing.T) {
	r := newRig(t)
	never := r.open(neverSampled)
	h := must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context()))
	if n := r.server.Int(t, "PTTL", "redlatch_trace:{a}"); n < 25_000 || n > 30_000 {
		t.Errorf("the trace that is left lives for %d ms", n)
	}
	r.server.Int(t, "DEL", "a") // the trace stays
	h2 := must[redlatch.Hold](t)(never.RLock("a").Lock(t.Context()))
	if _, err := r.client.RLock("a").TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	if got := r.tree(); strings.Contains(got, "->") {
		t.Errorf("a link to one that does not hold the lock:\n%s", got)
	}
	unlock(t, h2)
	_ = h.Unlock(t.Context()) // lost
	r.server.Int(t, "DEL", "redlatch_trace:{a}")
	unlock(t, must[redlatch.Hold](t)(never.RLock("a").Lock(t.Context())))
	if n := r.server.Int(t, "EXISTS", "redlatch_trace:{a}"); n != 0 {
		t.Error("an acquisition that is not sampled left its trace")
	}
}

// lateProviders makes a Client before the program sets its providers: in a
// process of its own, since they are set once for all.
func lateProviders(ctx context.Context, w *testbed.Worker) error {
	var addr string
	if err := w.Args(&addr); err != nil {
		return err
	}
	c, err := redlatch.New(redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{addr}}})
	if err != nil {
		return err
	}
	defer c.Close()
	quiet := redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{addr}}}
	off(&quiet)
	noops, err := redlatch.New(quiet)
	if err != nil {
		return err
	}
	defer noops.Close()
	pair := func(c *redlatch.Client) func() {
		l := c.RLock("a")
		return func() {
			h, err := l.Lock(ctx)
			if err == nil {
				err = h.Unlock(ctx)
			}
			if err != nil {
				panic(err)
			}
		}
	}
	w.Say("allocations %d %d", allocations(pair(noops)), allocations(pair(c)))
	early, err := c.RLock("early").Lock(ctx) // held since before
	if err != nil {
		return err
	}

	spans, reader := tracetest.NewInMemoryExporter(), metric.NewManualReader()
	otel.SetTracerProvider(sdktrace.NewTracerProvider(sdktrace.WithSyncer(spans)))
	otel.SetMeterProvider(metric.NewMeterProvider(metric.WithReader(reader)))
	later, err := redlatch.New(redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{addr}}})
	if err != nil {
		return err
	}
	defer later.Close()
	time.Sleep(50 * time.Millisecond) // so old is the first hold at least
	young, err := later.RLock("later").Lock(ctx)
	if err != nil {
		return err
	}
	var ages metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &ages); err != nil {
		return err
	}
	for _, scope := range ages.ScopeMetrics {
		for _, m := range scope.Metrics {
			if g, ok := m.Data.(metricdata.Gauge[float64]); ok && m.Name == "lock.hold.age" {
				w.Say("age %f", g.DataPoints[0].Value)
			}
		}
	}
	if err := young.Unlock(ctx); err != nil {
		return err
	}
	spans.Reset()
	if err := early.Unlock(ctx); err != nil {
		return err
	}
	pair(c)()
	var names []string
	for _, s := range spans.GetSpans() {
		names = append(names, s.Name)
	}
	w.Say("spans %s", strings.Join(names, " "))
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return err
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if sum, ok := m.Data.(metricdata.Sum[int64]); ok && m.Name == "lock.held" {
				w.Say("held %d", sum.DataPoints[0].Value)
			}
		}
	}
	return nil
}

// allocations is the least that one call of f makes. An average says less: a renewal beside adds to it, and
// so does the race detector, under which pools lose things at random. Both only add, and never to each call.
func allocations(f func()) uint64 {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	var before, after runtime.MemStats
	least := uint64(math.MaxUint64)
	for range 500 {
		runtime.ReadMemStats(&before)
		f()
		runtime.ReadMemStats(&after)
		least = min(least, after.Mallocs-before.Mallocs)
	}
	return least
}

// TestProvidersSetLater: before the program sets its providers nothing is paid,
// from then on everything is told, by the same Client.
func TestProvidersSetLater(t *testing.T) {
	server := testbed.Standalone(t)
	p := testbed.Spawn(t, "late-providers", server.Addr())
	var noops, before uint64
	if _, err := fmt.Sscan(p.Expect(t, "allocations"), &noops, &before); err != nil {
		t.Fatal(err)
	}
	if before > noops {
		t.Errorf("%d allocations for Lock + Unlock before providers are set, %d with no-ops", before, noops)
	}
	if got, err := strconv.ParseFloat(p.Expect(t, "age"), 64); err != nil || got < 0.05 {
		t.Errorf("the oldest hold is %f s old: %v", got, err)
	}
	if got, want := p.Expect(t, "spans"), "EVALSHA lock.release EVALSHA lock.acquire EVALSHA lock.release"; got != want {
		t.Errorf("spans: %s, want %s", got, want)
	}
	if got := p.Expect(t, "held"); got != "0" {
		t.Errorf("%s locks are counted as held: one was taken before anything was counted", got)
	}
	if err := p.Wait(t); err != nil {
		t.Error(err)
	}
}
