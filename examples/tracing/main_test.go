package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"html"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// id is what the printed spans call one.
type id struct{ TraceID, SpanID string }

// span is what the test needs of a printed one, or of the metrics, which have no name.
type span struct {
	Name                string
	SpanContext, Parent id
	StartTime, EndTime  time.Time
	Links               []struct{ SpanContext id }
	ScopeMetrics        json.RawMessage
}

// TestTheTraceLeadsToTheHolder reads what is printed: the spans of both requests, the waiter's link to the holder's
// acquisition, the name without its number, and the metrics. With REDLATCH_TEST_PICTURES, a folder, it draws both traces
// (docs/images/trace.svg).
func TestTheTraceLeadsToTheHolder(t *testing.T) {
	var out strings.Builder
	addr := testbed.Standalone(t).Addr()
	looks := replica.Locks(t, addr, redlatch.WithConfig(func(c *redlatch.Config) { c.TracerProvider = noop.NewTracerProvider() }))
	section := func() {
		replica.UntilWaiting(t, looks, "orders:42")
		time.Sleep(20 * time.Millisecond) // for the picture
	}
	testbed.Must(t, run(t.Context(), "redis://"+addr, section, &out))
	var all []span
	metrics, of := false, map[string]map[string]span{} // spans by trace and name
	for d := json.NewDecoder(strings.NewReader(out.String())); ; {
		var s span
		err := d.Decode(&s)
		if errors.Is(err, io.EOF) {
			break
		}
		testbed.Must(t, err)
		if metrics = metrics || strings.Contains(string(s.ScopeMetrics), "lock.wait.duration"); s.Name == "" {
			continue
		}
		if of[s.SpanContext.TraceID] == nil {
			of[s.SpanContext.TraceID] = map[string]span{}
		}
		of[s.SpanContext.TraceID][s.Name], all = s, append(all, s)
	}
	var holder, waiter map[string]span
	for _, names := range of {
		if names["POST /orders/42/ship"].Name != "" {
			holder = names
		} else {
			waiter = names
		}
	}
	for _, name := range []string{"POST /orders/42/cancel", "lock.acquire", "lock.wait", "lock.release"} {
		if waiter[name].Name == "" || strings.HasPrefix(name, "lock.") && (holder[name].Name == "") != (name == "lock.wait") {
			t.Errorf("%s: the holder's spans are %v, the waiter's %v", name, holder, waiter)
		}
	}
	if links := waiter["lock.acquire"].Links; len(links) == 0 || links[0].SpanContext.SpanID != holder["lock.acquire"].SpanContext.SpanID {
		t.Errorf("the waiter's links: %+v", links)
	}
	if !metrics || !strings.Contains(out.String(), `"orders:*"`) || strings.Contains(out.String(), `"orders:42"`) {
		t.Errorf("metrics: %t; the name is not what LockName makes of it:\n%s", metrics, out.String())
	}
	if folder := os.Getenv("REDLATCH_TEST_PICTURES"); folder != "" {
		testbed.Must(t, os.WriteFile(filepath.Join(folder, "trace.svg"), []byte(drawing(all)), 0o644)) //nolint:gosec // a picture for everyone
	}
}

// drawing is a waterfall of both traces, and the link between them.
func drawing(spans []span) string {
	slices.SortStableFunc(spans, func(a, b span) int { return a.StartTime.Compare(b.StartTime) })
	var rows []span
	depth, at := map[string]int{}, map[string]int{}
	var add func(s span, level int)
	add = func(s span, level int) {
		depth[s.SpanContext.SpanID], at[s.SpanContext.SpanID] = level, len(rows)
		rows = append(rows, s)
		for _, child := range spans {
			if child.Parent.SpanID == s.SpanContext.SpanID {
				add(child, level+1)
			}
		}
	}
	for _, s := range spans {
		if strings.HasPrefix(s.Name, "POST") {
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
	colours := map[string]string{"lock.acquire": "#2f6fb0", "lock.wait": "#e0962b", "lock.release": "#7a6bb5"}
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12">`+"\n",
		left+width+70, y(len(rows))+10)
	b.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	for i, s := range rows {
		colour := cmp.Or(colours[s.Name], "#9aa3ad")
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="#222">%s</text>`, 10+14*depth[s.SpanContext.SpanID], y(i)+14, html.EscapeString(s.Name))
		fmt.Fprintf(&b, `<rect x="%.1f" y="%d" width="%.1f" height="13" rx="2" fill="%s"/>`, x(s.StartTime), y(i)+3, max(x(s.EndTime)-x(s.StartTime), 2), colour)
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" fill="#555" font-size="10">%s</text>`+"\n", x(s.EndTime)+4, y(i)+13, s.EndTime.Sub(s.StartTime).Round(10*time.Microsecond))
	}
	for i, s := range rows {
		for _, l := range s.Links {
			if to, ok := at[l.SpanContext.SpanID]; ok {
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
