package main

import (
	"context"
	"fmt"
	"html"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestTheTraceLeadsToTheHolder: of two requests the second waits for the first, and its
// trace links to the first one's acquisition. With REDLATCH_TEST_PICTURES, a folder, it
// draws both traces (docs/images/trace.svg).
func TestTheTraceLeadsToTheHolder(t *testing.T) {
	spans := tracetest.NewInMemoryExporter()
	provider := trace.NewTracerProvider(trace.WithSyncer(spans))
	tracer := provider.Tracer("shop")
	addr := testbed.Standalone(t).Addr()
	open := func() *redlatch.Client {
		client, err := redlatch.Open("redis://"+addr, redlatch.WithConfig(func(c *redlatch.Config) { c.TracerProvider = provider }))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(client.Close)
		return client
	}
	first, second := open(), open()
	request := func(client *redlatch.Client, name string, section func(ctx context.Context)) error {
		ctx, span := tracer.Start(t.Context(), name)
		defer span.End()
		return client.RLock("orders:42").Do(ctx, func(ctx context.Context) error {
			_, span := tracer.Start(ctx, "ship")
			defer span.End()
			section(ctx)
			return nil
		})
	}
	done := make(chan error, 1)
	err := request(first, "POST /ship, pod 1", func(context.Context) {
		go func() {
			done <- request(second, "POST /ship, pod 2", func(context.Context) { time.Sleep(10 * time.Millisecond) })
		}()
		untilWaiting(t, addr)
		time.Sleep(20 * time.Millisecond) // for the picture
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	all := spans.GetSpans()
	find := func(trace int, name string) tracetest.SpanStub {
		roots := slices.DeleteFunc(slices.Clone(all), func(s tracetest.SpanStub) bool { return !strings.HasPrefix(s.Name, "POST") })
		slices.SortFunc(roots, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
		for _, s := range all {
			if s.Name == name && s.SpanContext.TraceID() == roots[trace].SpanContext.TraceID() {
				return s
			}
		}
		t.Fatalf("no span %s in trace %d", name, trace)
		return tracetest.SpanStub{}
	}
	holder, waiter := find(0, "lock.acquire"), find(1, "lock.acquire")
	find(1, "lock.wait")
	if len(waiter.Links) == 0 || waiter.Links[0].SpanContext.SpanID() != holder.SpanContext.SpanID() {
		t.Errorf("the waiter's links: %+v", waiter.Links)
	}
	if folder := os.Getenv("REDLATCH_TEST_PICTURES"); folder != "" {
		if err := os.WriteFile(filepath.Join(folder, "trace.svg"), []byte(drawing(all)), 0o644); err != nil { //nolint:gosec // a picture for everyone
			t.Fatal(err)
		}
	}
}

// untilWaiting returns when somebody has subscribed to the lock's channel.
func untilWaiting(t *testing.T, addr string) {
	t.Helper()
	client, err := redlatch.Open("redis://"+addr, redlatch.WithConfig(func(c *redlatch.Config) { c.TracerProvider = noop.NewTracerProvider() }))
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		state, err := client.Inspect(t.Context(), "orders:42")
		if err != nil || state.Processes > 0 {
			if err != nil {
				t.Error(err)
			}
			return
		}
		if time.Now().After(deadline) {
			t.Error("the second request does not wait")
			return
		}
	}
}

// drawing is a waterfall of both traces, and the link between them.
func drawing(spans tracetest.SpanStubs) string {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var rows []tracetest.SpanStub
	depth, at := map[string]int{}, map[string]int{}
	var add func(s tracetest.SpanStub, level int)
	add = func(s tracetest.SpanStub, level int) {
		id := s.SpanContext.SpanID()
		depth[id.String()], at[id.String()] = level, len(rows)
		rows = append(rows, s)
		for _, child := range spans {
			if child.Parent.SpanID() == id {
				add(child, level+1)
			}
		}
	}
	for _, s := range spans {
		if !s.Parent.SpanID().IsValid() && strings.HasPrefix(s.Name, "POST") {
			add(s, 0)
		}
	}
	begin, end := rows[0].StartTime, rows[0].EndTime
	for _, s := range rows {
		if s.EndTime.After(end) {
			end = s.EndTime
		}
	}
	const left, width, line = 210, 640, 22
	x := func(when time.Time) float64 { return left + width*float64(when.Sub(begin))/float64(end.Sub(begin)) }
	y := func(row int) int { return 10 + row*line }
	colours := map[string]string{"lock.acquire": "#2f6fb0", "lock.wait": "#e0962b", "ship": "#3f9d5c", "lock.release": "#7a6bb5"}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		left+width+70, y(len(rows))+10)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	for i, s := range rows {
		colour, ok := colours[s.Name]
		if !ok {
			colour = "#9aa3ad"
		}
		id := s.SpanContext.SpanID().String()
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#222">%s</text>`, 10+14*depth[id], y(i)+14, html.EscapeString(s.Name))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="13" rx="2" fill="%s"/>`, x(s.StartTime), y(i)+3, max(x(s.EndTime)-x(s.StartTime), 2), colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#555" font-size="10">%s</text>`+"\n", x(s.EndTime)+4, y(i)+13, s.EndTime.Sub(s.StartTime).Round(10*time.Microsecond))
	}
	for i, s := range rows {
		for _, l := range s.Links {
			if to, ok := at[l.SpanContext.SpanID().String()]; ok {
				x1, x2 := x(s.StartTime)-3, x(rows[to].EndTime)-3
				fmt.Fprintf(&b, `<path d="M%.1f %d C%.1f %d %.1f %d %.1f %d" fill="none" stroke="#b03a2e" stroke-dasharray="4 3"/>`,
					x1, y(i)+9, x1-30, y(i)-20, x2-10, y(to)+60, x2, y(to)+17)
				fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#b03a2e" font-size="10" text-anchor="end">link to the holder</text>`+"\n", min(x1, x2)-18, (y(i)+y(to))/2+12)
			}
		}
	}
	b.WriteString("</svg>\n")
	return b.String()
}
