package telemetry

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// drawing writes spans, one a line, children below their parents, in the order in which they began, and lines of the
// log. What differs from run to run is written as what it means: owners as A, B, … of the first client and A2, B2, …
// of the second one, spans that links lead to by their name and owner, measured times as ~.
type drawing struct {
	r       *rig
	spans   tracetest.SpanStubs // all that a link may lead to
	ids     []string            // of the clients
	letters map[string]string   // by owner
	owners  map[string]int      // of each client
	brief   bool                // without commands, rounds and acquisitions of an owner
	whole   bool                // with what is the same everywhere
}

func newDrawing(r *rig) *drawing {
	return &drawing{r: r, letters: map[string]string{}, owners: map[string]int{}}
}

// tree draws the spans of these that have no parent among them, with what is below.
func (d *drawing) tree(spans tracetest.SpanStubs) []string {
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	var out []string
	for _, s := range spans {
		if find(spans, s.Parent) == nil && !d.left(s) {
			out = append(out, d.span(s, spans, ""))
		}
	}
	return out
}

func find(spans tracetest.SpanStubs, sc trace.SpanContext) *tracetest.SpanStub {
	i := slices.IndexFunc(spans, func(s tracetest.SpanStub) bool {
		return s.SpanContext.SpanID() == sc.SpanID() && s.SpanContext.TraceID() == sc.TraceID()
	})
	if i < 0 {
		return nil
	}
	return &spans[i]
}

func (d *drawing) left(s tracetest.SpanStub) bool {
	return d.brief && s.SpanKind == trace.SpanKindClient
}

func (d *drawing) span(s tracetest.SpanStub, spans tracetest.SpanStubs, indent string) string {
	var below []string
	line := indent + d.line(s)
	for _, c := range spans {
		givenBack := d.brief && s.Name == "lock.acquire" && c.Name == "lock.release" // in each round
		if c.Parent.SpanID() == s.SpanContext.SpanID() && c.Parent.TraceID() == s.SpanContext.TraceID() && !d.left(c) && !givenBack {
			below = append(below, d.span(c, spans, indent+"  "))
		}
	}
	if attr(s, "lock.type") == "multi" { // its members are asked at the same time
		slices.Sort(below)
	}
	return line + "\n" + strings.Join(below, "")
}

// shared are attributes that say the same everywhere.
var shared = []string{"client.name", "db.system.name", "db.operation.name", "server.address", "server.port", "lease", "watchdog"}

// measured are attributes that differ from run to run.
var measured = []string{"wait.duration", "fencing_token", "network.peer.address"}

func (d *drawing) line(s tracetest.SpanStub) string {
	var attrs []string
	for _, a := range s.Attributes {
		key, value := strings.TrimPrefix(string(a.Key), "lock."), a.Value.String()
		switch {
		case !d.whole && slices.Contains(shared, key), d.brief && key == "attempts":
			continue
		case slices.Contains(measured, key):
			value = "~"
		case strings.HasSuffix(key, ".trace_id"):
			value = d.traced(value)
		case key == "server.port" && slices.Contains(d.r.ports, value):
			value = "its"
		}
		attrs = append(attrs, " "+key+"="+value)
	}
	slices.Sort(attrs)
	line := fmt.Sprint(s.Name, " ", s.SpanKind)
	if s.Status.Code != codes.Unset {
		line += " " + s.Status.Code.String()
	}
	if d.whole && s.Status.Description != "" {
		line += " " + strconv.Quote(s.Status.Description)
	}
	line += strings.Join(attrs, "")
	for _, e := range s.Events {
		line += " !" + e.Name
	}
	for _, l := range s.Links {
		line += " -> " + valueOf(l.Attributes, "lock.link") + ":" + d.label(find(d.spans, l.SpanContext))
	}
	return d.masked(line)
}

// fields are owners as Redis has them, and the ids of clients.
var fields = regexp.MustCompile(`([0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f-]{22})(:[\w.=%-]+)?`)

// masked is text with the names of what differs from run to run.
func (d *drawing) masked(text string) string {
	for i, c := range d.r.clients {
		text = strings.ReplaceAll(text, c.Name(), fmt.Sprint("client-", i+1))
	}
	return fields.ReplaceAllStringFunc(text, d.owner)
}

func (d *drawing) owner(field string) string {
	id, _, owns := strings.Cut(field, ":")
	if !slices.Contains(d.ids, id) {
		d.ids = append(d.ids, id)
	}
	n := ""
	if i := slices.Index(d.ids, id); i > 0 {
		n = strconv.Itoa(i + 1)
	}
	if !owns {
		return "client-id" + n
	}
	whose := field[:max(0, strings.LastIndex(field, "-"))]
	if d.brief {
		field = whose
	}
	if d.letters[field] == "" {
		d.letters[field] = string(rune('A'+d.owners[id])) + n
		d.owners[id]++
	}
	if d.letters[whose] == "" {
		d.letters[whose] = d.letters[field]
	}
	return d.letters[field]
}

// label names a span that a link leads to.
func (d *drawing) label(s *tracetest.SpanStub) string {
	if s == nil {
		return "elsewhere"
	}
	if owner := attr(*s, "lock.owner"); owner != "" {
		return s.Name + "(" + owner + ")"
	}
	return s.Name
}

// traced names the first span of a trace, as an acquisition's is.
func (d *drawing) traced(id string) string {
	for i, s := range d.spans {
		if s.SpanContext.TraceID().String() == id && s.Name == "lock.acquire" {
			return d.label(&d.spans[i])
		}
	}
	return "elsewhere"
}

// unsteady are what log lines say that differs from run to run.
var unsteady = []string{"error", "waited", "node", "after"}

// logLine is a line of the log: its level, message and arguments.
func (d *drawing) logLine(rec map[string]any) string {
	var args []string
	for key, value := range rec {
		switch {
		case slices.Contains(unsteady, key):
			value = "~"
		case slices.Contains([]string{"time", "level", "msg", "span_id"}, key):
			continue
		case key == "trace_id":
			value = d.logged(fmt.Sprint(value), fmt.Sprint(rec["span_id"]))
		}
		args = append(args, fmt.Sprintf(" %s=%v", key, value))
	}
	slices.Sort(args)
	return d.masked(fmt.Sprint(rec["level"], " ", rec["msg"], strings.Join(args, ""))) + "\n"
}

// logged names the span of a line. It may not have ended: all that began are asked.
func (d *drawing) logged(traceID, spanID string) string {
	for _, s := range d.r.seen.Started() {
		if s.SpanContext().TraceID().String() == traceID && s.SpanContext().SpanID().String() == spanID {
			return s.Name()
		}
	}
	return "elsewhere"
}
