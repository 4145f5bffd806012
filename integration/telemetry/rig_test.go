package telemetry

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m)
}

const patience = 15 * time.Second

// checked is a lease that is checked once a second: a machine that lets the process wait
// for two does not end it.
const checked = 3 * time.Second

// rig is a server, a client and all that the client tells.
type rig struct {
	t        *testing.T
	server   *testbed.Server
	client   *redlatch.Client
	exporter *tracetest.InMemoryExporter
	seen     *recorder
	reader   *metric.ManualReader
	log      *logged
	tracing  *sdktrace.TracerProvider
	metering *metric.MeterProvider
}

type setting func(*redlatch.Config)

func newRig(t *testing.T, settings ...setting) *rig {
	t.Helper()
	r := &rig{
		t: t, server: testbed.Standalone(t), exporter: tracetest.NewInMemoryExporter(),
		seen: newRecorder(), reader: metric.NewManualReader(), log: &logged{},
	}
	r.tracing = sdktrace.NewTracerProvider(sdktrace.WithSyncer(r.exporter), sdktrace.WithSpanProcessor(r.seen))
	r.metering = metric.NewMeterProvider(metric.WithReader(r.reader))
	r.client = r.open(settings...)
	return r
}

// open makes a client that tells the same providers.
func (r *rig) open(settings ...setting) *redlatch.Client {
	r.t.Helper()
	cfg := redlatch.Config{
		Redis:          rueidis.ClientOption{InitAddress: []string{r.server.Addr()}},
		TracerProvider: r.tracing, MeterProvider: r.metering,
		Logger: slog.New(slog.NewJSONHandler(r.log, nil)),
	}
	for _, s := range settings {
		s(&cfg)
	}
	c, err := redlatch.New(cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(c.Close)
	return c
}

// collect reads the metrics; by name.
func (r *rig) collect() map[string]metricdata.Metrics {
	r.t.Helper()
	var all metricdata.ResourceMetrics
	if err := r.reader.Collect(context.Background(), &all); err != nil {
		r.t.Fatal(err)
	}
	out := map[string]metricdata.Metrics{}
	for _, scope := range all.ScopeMetrics {
		if scope.Scope.SchemaURL != "https://opentelemetry.io/schemas/1.43.0" {
			r.t.Errorf("scope %s has schema %q", scope.Scope.Name, scope.Scope.SchemaURL)
		}
		for _, m := range scope.Metrics {
			out[m.Name] = m
		}
	}
	return out
}

// recorder is a span processor that tests can wait on.
type recorder struct {
	*tracetest.SpanRecorder
	mu   sync.Mutex
	news chan struct{} // guarded by mu; closed and replaced at every span
}

func newRecorder() *recorder {
	return &recorder{SpanRecorder: tracetest.NewSpanRecorder(), news: make(chan struct{})}
}

func (r *recorder) tell() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.news)
	r.news = make(chan struct{})
}

// OnStart implements sdktrace.SpanProcessor.
func (r *recorder) OnStart(ctx context.Context, s sdktrace.ReadWriteSpan) {
	r.SpanRecorder.OnStart(ctx, s)
	r.tell()
}

// OnEnd implements sdktrace.SpanProcessor.
func (r *recorder) OnEnd(s sdktrace.ReadOnlySpan) {
	r.SpanRecorder.OnEnd(s)
	r.tell()
}

// until blocks until cond holds of the spans seen so far.
func (r *rig) until(what string, cond func(started []sdktrace.ReadWriteSpan, ended []sdktrace.ReadOnlySpan) bool) {
	r.t.Helper()
	limit := time.After(patience)
	for {
		r.seen.mu.Lock()
		news := r.seen.news
		r.seen.mu.Unlock()
		if cond(r.seen.Started(), r.seen.Ended()) {
			return
		}
		select {
		case <-news:
		case <-limit:
			r.t.Fatalf("waited in vain until %s\n%s", what, r.tree())
		}
	}
}

// untilTried blocks until that many runs of a script have ended.
func (r *rig) untilTried(script string, n int) {
	r.t.Helper()
	r.until(script+" ran", func(_ []sdktrace.ReadWriteSpan, ended []sdktrace.ReadOnlySpan) bool {
		count := 0
		for _, s := range ended {
			for _, a := range s.Attributes() {
				if a.Key == "db.stored_procedure.name" && a.Value.AsString() == script {
					count++
				}
			}
		}
		return count >= n
	})
}

// untilEnded blocks until that many spans of a name have ended.
func (r *rig) untilEnded(name string, n int) {
	r.t.Helper()
	r.until(name+" ended", func(_ []sdktrace.ReadWriteSpan, ended []sdktrace.ReadOnlySpan) bool {
		count := 0
		for _, s := range ended {
			if s.Name() == name {
				count++
			}
		}
		return count >= n
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
		if msg, _ := rec["msg"].(string); strings.Contains(msg, what) {
			out = append(out, rec)
		}
	}
	return out
}

// begin runs f in a goroutine and returns how to wait for it.
func begin(t *testing.T, f func()) (wait func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { // ends with f
		defer close(done)
		f()
	}()
	return func() {
		t.Helper()
		select {
		case <-done:
		case <-time.After(patience):
			t.Fatal("it did not end")
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	t.Helper()
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func unlock(t *testing.T, h redlatch.Hold) {
	t.Helper()
	if err := h.Unlock(context.Background()); err != nil {
		t.Error(err)
	}
}
