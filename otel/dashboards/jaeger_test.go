package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/internal/testbed/backends"
)

// found is what Jaeger's query API answers.
type found struct {
	Data []struct{ Spans []foundSpan }
}

type foundSpan struct {
	TraceID, SpanID, OperationName string
	References                     []foundRef
	Tags                           []struct {
		Key   string
		Value any
	}
}

type foundRef struct{ RefType, TraceID, SpanID string }

func (s foundSpan) tag(key string) string {
	for _, t := range s.Tags {
		if t.Key == key {
			return fmt.Sprint(t.Value)
		}
	}
	return ""
}

// jaeger asks a Jaeger.
type jaeger struct{ *backends.Jaeger }

// traces asks for traces; none are no error.
func (j *jaeger) traces(ctx context.Context, path string, q url.Values) (found, error) {
	var out found
	body, err := j.Get(ctx, path, q)
	if err == nil {
		err = json.Unmarshal(body, &out)
	}
	return out, err
}

// spans asks for the spans of all traces that a search finds.
func (j *jaeger) spans(ctx context.Context, t *testing.T, q search) (spans []foundSpan) {
	t.Helper()
	got, err := j.traces(ctx, "/api/traces", q.query())
	if err != nil {
		t.Fatalf("%+v: %v", q, err)
	}
	for _, trace := range got.Data {
		spans = append(spans, trace.Spans...)
	}
	return spans
}

// search is one search of a user: what the form of Jaeger's page makes of its fields.
type search struct {
	what, operation, tags, atLeast string
}

func (s search) query() url.Values {
	q := url.Values{"service": {"shop"}, "limit": {"20"}, "lookback": {"1h"}}
	if s.operation != "all" {
		q.Set("operation", s.operation)
	}
	if s.atLeast != "" {
		q.Set("minDuration", s.atLeast)
	}
	if s.tags != "" {
		tags := map[string]string{}
		for pair := range strings.FieldsSeq(s.tags) { // logfmt, no value of these has a space
			key, value, _ := strings.Cut(pair, "=")
			tags[key] = value
		}
		text, _ := json.Marshal(tags) // of texts
		q.Set("tags", string(text))
	}
	return q
}

// searches reads the table "the search form" of traces.md.
func searches(t *testing.T, text string) []search {
	t.Helper()
	_, section, ok := strings.Cut(text, "\n## Jaeger: the search form")
	if !ok {
		t.Fatal("traces.md has no such section")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	code := regexp.MustCompile("`([^`]*)`")
	parts := func(cell string) []string {
		var out []string
		for _, m := range code.FindAllStringSubmatch(cell, -1) {
			out = append(out, m[1])
		}
		if len(out) == 0 {
			out = []string{strings.TrimSpace(cell)}
		}
		return out
	}
	var out []search
	for line := range strings.Lines(section) {
		cells := strings.Split(strings.TrimSpace(line), "|")
		if len(cells) < 5 || strings.Contains(line, "|---") || strings.Contains(line, "| question") {
			continue
		}
		atLeast := ""
		if strings.Contains(cells[4], "min duration") {
			atLeast = parts(cells[4])[0]
		}
		for _, operation := range parts(cells[2]) {
			for _, tags := range parts(cells[3]) {
				out = append(out, search{strings.TrimSpace(cells[1]), operation, tags, atLeast})
			}
		}
	}
	if len(out) < 9 {
		t.Fatalf("only %d searches were found", len(out))
	}
	return out
}

// TestJaeger sends the spans of the flash sale to a real Jaeger and asks its query API: for
// a waiter's trace, for what its links lead to, and all that traces.md asks. It is
// skipped, loudly, where there is none.
func TestJaeger(t *testing.T) {
	if _, err := exec.LookPath("jaeger"); err != nil {
		if os.Getenv("REDLATCH_JAEGER") == "require" {
			t.Fatal("jaeger is not on PATH: make jaeger builds it")
		}
		testbed.Skip(t, "jaeger is not on PATH; make jaeger builds it from Go's modules")
	}
	started, err := backends.StartJaeger(t)
	testbed.Must(t, err)
	j := &jaeger{started}
	shop(t, true, "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT="+j.OTLP, "OTEL_BSP_SCHEDULE_DELAY=100") // ms; 5 s by default
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()

	waiter, holder := j.waiter(ctx, t)
	t.Logf("waiter: trace %s; held by: trace %s", waiter.TraceID, holder.TraceID)
	page := strings.NewReplacer(
		"orders:*", waiter.tag("lock.name"), "<its trace id>", holder.TraceID, "<its lock.owner>", waiter.tag("lock.owner"),
		"http://localhost:16686", j.URL, "2026-01-01T00:00:00Z", time.Now().Add(-time.Hour).UTC().Format(time.RFC3339),
		"2026-01-02T00:00:00Z", time.Now().Add(time.Hour).UTC().Format(time.RFC3339),
	).Replace(read(t, "traces.md"))
	for _, q := range searches(t, page) {
		if strings.HasPrefix(q.tags, "lock.predecessor.trace_id=") {
			// Whoever was waited for in the end held it for others than the one met.
			q.tags = "lock.predecessor.trace_id=" + j.predecessor(ctx, t)
		}
		j.until(ctx, t, q.what+": "+q.operation+" "+q.tags, func() bool { return len(j.spans(ctx, t, q)) > 0 })
	}
	curls(ctx, t, page)
}

// until asks again until there is an answer: spans arrive in batches.
func (j *jaeger) until(ctx context.Context, t *testing.T, what string, ok func() bool) {
	t.Helper()
	for !ok() {
		select {
		case <-ctx.Done():
			t.Fatalf("nothing was found: %s", what)
		case <-time.After(200 * time.Millisecond):
		}
	}
}

// waiter finds an acquisition that waited a second for one of another process (the other
// till), follows its first link and checks what is there.
func (j *jaeger) waiter(ctx context.Context, t *testing.T) (waiter, holder foundSpan) {
	t.Helper()
	q := search{operation: "lock.acquire", tags: "lock.contended=true lock.outcome=acquired", atLeast: "1s"}
	client := func(s foundSpan) string { id, _, _ := strings.Cut(s.tag("lock.owner"), ":"); return id }
	j.until(ctx, t, "a waiter whose link leads to the other till", func() bool {
		for _, span := range j.spans(ctx, t, q) {
			if span.OperationName != "lock.acquire" || span.tag("lock.holder.trace_id") == "" {
				continue
			}
			at := slices.IndexFunc(span.References, func(r foundRef) bool { return r.RefType == "FOLLOWS_FROM" })
			if at < 0 || span.References[at].TraceID != span.tag("lock.holder.trace_id") {
				t.Fatalf("a waiter's span has no link, or its first one leads elsewhere: %+v", span)
			}
			there, ok := j.span(ctx, span.References[at]) // or it is not sent yet
			if ok && (there.OperationName != "lock.acquire" || there.tag("lock.owner") != span.tag("lock.holder.owner")) {
				t.Fatalf("the link leads to %+v, want the acquisition of %s", there, span.tag("lock.holder.owner"))
			}
			if ok && client(there) != client(span) {
				waiter, holder = span, there
				return true
			}
		}
		return false
	})
	return waiter, holder
}

// span asks for what a link leads to.
func (j *jaeger) span(ctx context.Context, to foundRef) (foundSpan, bool) {
	there, err := j.traces(ctx, "/api/traces/"+to.TraceID, nil)
	if err == nil {
		for _, trace := range there.Data {
			if at := slices.IndexFunc(trace.Spans, func(s foundSpan) bool { return s.SpanID == to.SpanID }); at >= 0 {
				return trace.Spans[at], true
			}
		}
	}
	return foundSpan{}, false
}

// predecessor is a trace that somebody waited for in the end, having met another.
func (j *jaeger) predecessor(ctx context.Context, t *testing.T) (id string) {
	t.Helper()
	j.until(ctx, t, "a waiter with a predecessor", func() bool {
		for _, span := range j.spans(ctx, t, search{operation: "lock.acquire", tags: "lock.type=fair"}) {
			if id = span.tag("lock.predecessor.trace_id"); id != "" {
				return true
			}
		}
		return false
	})
	return id
}

// curls runs the commands that the page shows as they stand there.
func curls(ctx context.Context, t *testing.T, page string) {
	t.Helper()
	commands := regexp.MustCompile("(?s)```\n(curl .*?)```").FindAllStringSubmatch(page, -1)
	if len(commands) < 2 {
		t.Fatalf("%d commands were found", len(commands))
	}
	if _, err := exec.LookPath("curl"); err != nil {
		testbed.Skip(t, "the commands of traces.md: there is no curl")
	}
	for _, c := range commands {
		out, err := exec.CommandContext(ctx, "sh", "-c", c[1]).Output() //nolint:gosec // what the page shows
		if err != nil || !strings.Contains(string(out), "lock.acquire") {
			t.Errorf("%v: %.300s\n%s", err, out, c[1])
		}
	}
}
