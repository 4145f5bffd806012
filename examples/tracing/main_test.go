package main

import (
	"encoding/json"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestRun reads what is printed: the spans of both requests, the waiter's link
// to the holder, the name without its number, and the metrics.
func TestRun(t *testing.T) {
	var out strings.Builder
	addr := testbed.Standalone(t).Addr()
	section := func() { untilWaiting(t, addr) }
	if err := run(t.Context(), "redis://"+addr, section, &out); err != nil {
		t.Fatal(err)
	}
	type context struct{ TraceID string }
	type printed struct {
		Name         string
		SpanContext  context
		Links        []struct{ SpanContext context }
		ScopeMetrics json.RawMessage
	}
	spans := map[string][]printed{}
	metrics := false
	for d := json.NewDecoder(strings.NewReader(out.String())); ; {
		var p printed
		if err := d.Decode(&p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatal(err)
		}
		spans[p.Name] = append(spans[p.Name], p)
		metrics = metrics || strings.Contains(string(p.ScopeMetrics), "lock.wait.duration")
	}
	if len(spans["POST /orders/42/ship"]) != 1 || len(spans["lock.acquire"]) != 2 || len(spans["lock.wait"]) != 1 || len(spans["lock.release"]) != 2 {
		t.Errorf("spans: %v", spans)
	}
	holder, linked := spans["POST /orders/42/ship"][0].SpanContext, false
	for _, s := range spans["lock.acquire"] {
		for _, link := range s.Links {
			linked = linked || link.SpanContext == holder
		}
	}
	if !linked {
		t.Error("the waiter's span has no link to the holder's trace")
	}
	if !metrics || !strings.Contains(out.String(), `"orders:*"`) || strings.Contains(out.String(), `"orders:42"`) {
		t.Errorf("metrics: %t; the name is not what LockName makes of it:\n%s", metrics, out.String())
	}
}
