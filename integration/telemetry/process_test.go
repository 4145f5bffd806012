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

func init() { testbed.Role("late-providers", lateProviders) }

func neverSampled(c *redlatch.Config) {
	c.TracerProvider = sdktrace.NewTracerProvider(sdktrace.WithSampler(sdktrace.NeverSample()))
}

// lateProviders makes a Client before the program sets its providers: in a
// process of its own, since they are set once for all.
func lateProviders(ctx context.Context, w *testbed.Worker) (err error) {
	var addr string
	if err := w.Args(&addr); err != nil {
		return err
	}
	open := func(change setting) *redlatch.Client {
		cfg := redlatch.Config{Redis: rueidis.ClientOption{InitAddress: []string{addr}}}
		change(&cfg)
		c, failed := redlatch.New(cfg)
		err = errors.Join(err, failed)
		return c
	}
	global := func(*redlatch.Config) {}
	c, noops := open(global), open(off)
	if err != nil {
		return err
	}
	defer c.Close()
	defer noops.Close()
	pair := func(c *redlatch.Client) func() {
		l := c.RLock("a")
		return func() {
			if err := l.Do(ctx, func(context.Context) error { return nil }); err != nil {
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
	later := open(global)
	if err != nil {
		return err
	}
	defer later.Close()
	time.Sleep(50 * time.Millisecond) // so old is the first hold at least
	young, err := later.RLock("later").Lock(ctx)
	if err != nil {
		return err
	}
	w.Say("age %d", only(ctx, reader, "lock.hold.age"))
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
	w.Say("held %d", only(ctx, reader, "lock.held"))
	return nil
}

// only is the only value of a metric; -1 if there is none, or another one.
func only(ctx context.Context, reader metric.Reader, name string) int64 {
	var all metricdata.ResourceMetrics
	if err := reader.Collect(ctx, &all); err != nil {
		return -1
	}
	for _, scope := range all.ScopeMetrics {
		for _, m := range scope.Metrics {
			if values := points(m); m.Name == name && len(values) == 1 {
				return values["lock.type=reentrant"]
			}
		}
	}
	return -1
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
	p := testbed.Spawn(t, "late-providers", testbed.Standalone(t).Addr())
	var noops, before uint64
	if _, err := fmt.Sscan(p.Expect(t, "allocations"), &noops, &before); err != nil || before > noops {
		t.Errorf("%d allocations for Lock + Unlock before providers are set, %d with no-ops: %v", before, noops, err)
	}
	if age, err := strconv.Atoi(p.Expect(t, "age")); err != nil || age < 50 {
		t.Errorf("the oldest hold is %d ms old: %v", age, err)
	}
	testbed.Equal(t, p.Expect(t, "spans"), "EVALSHA lock.release EVALSHA lock.acquire EVALSHA lock.release", "spans")
	testbed.Equal(t, p.Expect(t, "held"), "0", "locks that are counted: one was taken before anything was")
	testbed.Must(t, p.Wait(t))
}
