package main

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"

	collectortrace "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	commonpb "go.opentelemetry.io/proto/otlp/common/v1"
	"google.golang.org/protobuf/proto"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
)

// collected is what a collector would know of the tills' lock spans.
type collected struct {
	mu    sync.Mutex
	till  map[string]string   // guarded by mu; by trace and span of an acquisition
	links map[string][]string // guarded by mu; of acquisitions, by till
	other []string            // guarded by mu; what should not be there
}

func (c *collected) keep(in *collectortrace.ExportTraceServiceRequest) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, res := range in.GetResourceSpans() {
		of := res.GetResource().GetAttributes()
		till := textOf(of, "service.instance.id")
		if name := textOf(of, "service.name"); name != "shop" {
			c.other = append(c.other, "service "+name)
		}
		for _, s := range res.GetScopeSpans() {
			for _, span := range s.GetSpans() {
				switch span.GetName() {
				case "lock.acquire":
					c.till[string(span.GetTraceId())+string(span.GetSpanId())] = till
					for _, l := range span.GetLinks() {
						c.links[till] = append(c.links[till], string(l.GetTraceId())+string(l.GetSpanId()))
					}
				case "task", "lock.wait", "lock.release", "lock.renew", "lock.force_unlock", "EVALSHA":
				default:
					c.other = append(c.other, "span "+span.GetName())
				}
			}
		}
	}
}

// across reports whether an acquisition of each till has waited for one of the other.
func (c *collected) across() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, pair := range [][2]string{{"till-1", "till-2"}, {"till-2", "till-1"}} {
		if !slices.ContainsFunc(c.links[pair[0]], func(to string) bool { return c.till[to] == pair[1] }) {
			return false
		}
	}
	return true
}

func textOf(of []*commonpb.KeyValue, key string) string {
	for _, a := range of {
		if a.GetKey() == key {
			return a.GetValue().GetStringValue()
		}
	}
	return ""
}

// shopFor opens a shop on a server of its own; ctx ends after limit, or with the
// test. To close the shop is the caller's.
func shopFor(t *testing.T, limit time.Duration) (context.Context, *shop) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit) // the server outlives t.Context()
	t.Cleanup(cancel)
	server, err := demoserver.Start(ctx, "observability", "redis://"+testbed.Standalone(t).Addr())
	testbed.Must(t, err)
	t.Cleanup(func() { // it is not the shop's server: its goods may not stay there
		client, err := server.Client()
		testbed.Must(t, err)
		defer client.Close()
		left, err := client.Do(ctx, client.B().Keys().Pattern("{observability-*}item:*:[so]*").Build()).AsStrSlice()
		if err != nil || len(left) > 0 {
			t.Errorf("left behind: %v, %v", left, err)
		}
	})
	for {
		s, err := openShop(ctx, server, *listen, true, slog.New(slog.DiscardHandler))
		if err == nil {
			return ctx, s
		}
		// With its short lease a client connects in a short time, or not at all: a busy machine's server is slow.
		if !errors.Is(err, redlatch.ErrUnavailable) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestSpansGoByOTLP: with the environment set as for any program, a collector
// receives the spans of both tills, with links between them.
func TestSpansGoByOTLP(t *testing.T) {
	got := &collected{till: map[string]string{}, links: map[string][]string{}}
	receiver := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var in collectortrace.ExportTraceServiceRequest
		data, err := io.ReadAll(r.Body)
		if err := errors.Join(err, proto.Unmarshal(data, &in)); err != nil || r.URL.Path != "/v1/traces" {
			t.Errorf("%s: %v", r.URL, err)
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		got.keep(&in)
		w.Header().Set("Content-Type", "application/x-protobuf")
	}))
	defer receiver.Close()
	t.Setenv("OTEL_EXPORTER_OTLP_ENDPOINT", receiver.URL)
	t.Setenv("OTEL_BSP_SCHEDULE_DELAY", "100") // ms; 5 s by default

	ctx, s := shopFor(t, 3*time.Minute)
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with working
		defer close(done)
		s.work(working)
	}()
	for ctx.Err() == nil && (!got.across() || s.sold.Load() == 0) {
		time.Sleep(20 * time.Millisecond)
	}
	stop()
	<-done
	testbed.Must(t, s.close())
	if s.sold.Load() == 0 {
		t.Error("nothing was sold")
	}
	if !got.across() {
		t.Error("no waiter's span leads to the other till's")
	}
	got.mu.Lock()
	defer got.mu.Unlock()
	if len(got.other) > 0 {
		t.Errorf("received: %v", got.other[:min(5, len(got.other))])
	}
}
