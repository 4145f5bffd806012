package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/attribute"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

const schema = "https://opentelemetry.io/schemas/1.43.0"

// checked is a lease that is checked once a second: a machine that lets the process wait
// for two does not end it.
const checked = 3 * time.Second

// rig is a server, clients and all that they tell.
type rig struct {
	t        *testing.T
	server   *testbed.Server
	client   *redlatch.Client   // the first of
	clients  []*redlatch.Client // all
	ports    []string           // of the servers, as the clients see them
	seen     *tracetest.SpanRecorder
	reader   *metric.ManualReader
	log      *logged
	tracing  *sdktrace.TracerProvider
	metering *metric.MeterProvider
}

type setting = func(*redlatch.Config)

// tenure is for how long an RLock may be passed on inside the process; negative: never.
func tenure(d time.Duration) setting { return func(c *redlatch.Config) { c.Tenure = d } }

func through(p *testbed.Proxy) setting {
	return func(c *redlatch.Config) { c.Redis = rueidis.ClientOption{InitAddress: []string{p.Addr()}} }
}

// off is telemetry switched off with the API's no-ops.
func off(c *redlatch.Config) {
	c.TracerProvider, c.MeterProvider = tnoop.NewTracerProvider(), mnoop.NewMeterProvider()
}

// bare is a rig without a client.
func bare(t *testing.T) *rig {
	t.Helper()
	r := &rig{t: t, server: testbed.Standalone(t), seen: tracetest.NewSpanRecorder(), reader: metric.NewManualReader(), log: &logged{}}
	r.tracing = sdktrace.NewTracerProvider(sdktrace.WithSpanProcessor(r.seen))
	r.metering = metric.NewMeterProvider(metric.WithReader(r.reader))
	return r
}

func newRig(t *testing.T, settings ...setting) *rig {
	t.Helper()
	r := bare(t)
	r.open(settings...)
	return r
}

// open makes a client that tells the same providers.
func (r *rig) open(settings ...setting) *redlatch.Client {
	r.t.Helper()
	c := bed.Client(r.t, r.server.Addr(), append([]setting{func(c *redlatch.Config) {
		c.TracerProvider, c.MeterProvider, c.Logger, c.LeaseTime = r.tracing, r.metering, slog.New(slog.NewJSONHandler(r.log, nil)), 0
	}}, settings...)...)
	r.clients = append(r.clients, c)
	r.client = r.clients[0]
	return c
}

// spans are those that have ended, in the order of their ends; of a name, if there is one.
func (r *rig) spans(name ...string) tracetest.SpanStubs {
	return slices.DeleteFunc(tracetest.SpanStubsFromReadOnlySpans(r.seen.Ended()), func(s tracetest.SpanStub) bool {
		return len(name) > 0 && !slices.Contains(name, s.Name)
	})
}

func attr(s tracetest.SpanStub, key string) string { return valueOf(s.Attributes, key) }

func valueOf(attrs []attribute.KeyValue, key string) string {
	for _, a := range attrs {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// begun and ended block until that many spans of a name, or commands of a script, have begun or ended.
func (r *rig) begun(name string, n int) {
	r.t.Helper()
	r.until(name+" begins", n, name, func() (all []sdktrace.ReadOnlySpan) {
		for _, s := range r.seen.Started() {
			all = append(all, s)
		}
		return all
	})
}

func (r *rig) ended(name string, n int) {
	r.t.Helper()
	r.until(name+" ends", n, name, r.seen.Ended)
}

// unended is how many spans have not ended.
func (r *rig) unended() (n int) {
	for _, s := range r.seen.Started() {
		if s.EndTime().IsZero() {
			n++
		}
	}
	return n
}

// sum is that of all values of a metric.
func (r *rig) sum(name string) (n int64) {
	r.t.Helper()
	for _, value := range points(r.collect()[name]) {
		n += value
	}
	return n
}

func (r *rig) until(what string, n int, name string, spans func() []sdktrace.ReadOnlySpan) {
	r.t.Helper()
	bed.Eventually(r.t, what, func() bool {
		left := n
		for _, s := range spans() {
			if s.Name() == name || valueOf(s.Attributes(), "db.stored_procedure.name") == name {
				left--
			}
		}
		return left <= 0
	})
}

// collect reads the metrics; by name.
func (r *rig) collect() map[string]metricdata.Metrics {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	testbed.Must(r.t, r.reader.Collect(context.Background(), &all))
	out := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.SchemaURL != schema {
			r.t.Errorf("scope %s has schema %q", scope.Scope.Name, scope.Scope.SchemaURL)
		}
		for _, m := range scope.Metrics {
			out[m.Name] = m
		}
	}
	return out
}

// points are a metric's values by their attributes; of a histogram the counts, of a gauge of seconds milliseconds.
func points(m metricdata.Metrics) map[string]int64 {
	out := map[string]int64{}
	label := func(set attribute.Set) string { return set.Encoded(attribute.DefaultEncoder()) }
	switch data := m.Data.(type) {
	case metricdata.Sum[int64]:
		for _, p := range data.DataPoints {
			out[label(p.Attributes)] = p.Value
		}
	case metricdata.Histogram[float64]:
		for _, p := range data.DataPoints {
			out[label(p.Attributes)] = int64(p.Count) //nolint:gosec // small
		}
	case metricdata.Gauge[float64]:
		for _, p := range data.DataPoints {
			out[label(p.Attributes)] = int64(1000 * p.Value)
		}
	}
	return out
}

// point is one of a metric's values; 0 if there is none.
func (r *rig) point(name, labels string) int64 {
	r.t.Helper()
	return points(r.collect()[name])[labels]
}

// older waits until a gauge of ages says more than d.
func (r *rig) older(name, labels string, d time.Duration) {
	r.t.Helper()
	bed.Eventually(r.t, fmt.Sprintf("%s of %s is above %v", name, labels, d), func() bool {
		return r.point(name, labels) > d.Milliseconds()
	})
}

// logged is what a JSON handler wrote.
type logged struct {
	mu   sync.Mutex
	text bytes.Buffer // guarded by mu
}

// Write implements io.Writer.
func (l *logged) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(b)
}

// lines are the records whose message contains what.
func (l *logged) lines(t *testing.T, what string) []map[string]any {
	t.Helper()
	l.mu.Lock()
	text := l.text.String()
	l.mu.Unlock()
	var out []map[string]any
	for line := range strings.Lines(text) {
		var rec map[string]any
		if err := json.Unmarshal([]byte(line), &rec); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if strings.Contains(fmt.Sprint(rec["msg"]), what) {
			out = append(out, rec)
		}
	}
	return out
}
