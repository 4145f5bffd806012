package telemetry

import (
	"fmt"
	"slices"
	"strings"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
)

// tree draws all spans that have ended, one a line, children below their
// parents, in the order in which they began. What differs from run to run is
// drawn as what it means: owners as A, B, … in their order, spans that links
// lead to by their name and owner, measured times as ~.
func (r *rig) tree() string {
	spans := r.exporter.GetSpans()
	slices.SortStableFunc(spans, func(a, b tracetest.SpanStub) int { return a.StartTime.Compare(b.StartTime) })
	d := &drawing{spans: spans, owners: map[string]string{}}
	for _, s := range spans {
		if d.find(s.Parent) == nil {
			d.draw(s, 0)
		}
	}
	return d.out.String()
}

type drawing struct {
	spans  []tracetest.SpanStub
	owners map[string]string
	out    strings.Builder
}

func (d *drawing) find(sc trace.SpanContext) *tracetest.SpanStub {
	for i := range d.spans {
		if s := &d.spans[i]; s.SpanContext.SpanID() == sc.SpanID() && s.SpanContext.TraceID() == sc.TraceID() {
			return s
		}
	}
	return nil
}

func (d *drawing) owner(field string) string {
	if d.owners[field] == "" {
		d.owners[field] = string(rune('A' + len(d.owners)))
	}
	return d.owners[field]
}

// shared are attributes that say the same everywhere; they are checked once, by
// TestCommonAttributes.
var shared = []string{"lock.client.name", "db.system.name", "db.operation.name", "server.address", "server.port", "lock.lease", "lock.watchdog"}

func (d *drawing) draw(s tracetest.SpanStub, depth int) {
	fmt.Fprintf(&d.out, "%s%s %s", strings.Repeat("  ", depth), s.Name, s.SpanKind)
	if s.Status.Code != codes.Unset {
		fmt.Fprintf(&d.out, " %s", s.Status.Code)
	}
	var attrs []string
	for _, a := range s.Attributes {
		key, value := string(a.Key), a.Value.String()
		switch {
		case slices.Contains(shared, key):
			continue
		case key == "lock.owner" || key == "lock.holder.owner":
			value = d.owner(value)
		case key == "lock.wait.duration" || key == "lock.fencing_token":
			value = "~"
		case key == "lock.holder.trace_id":
			value = d.traced(value)
		}
		attrs = append(attrs, strings.TrimPrefix(key, "lock.")+"="+value)
	}
	slices.Sort(attrs)
	for _, a := range attrs {
		d.out.WriteString(" " + a)
	}
	for _, e := range s.Events {
		fmt.Fprintf(&d.out, " !%s", e.Name)
	}
	for _, l := range s.Links {
		kind := ""
		for _, a := range l.Attributes {
			if a.Key == "lock.link" {
				kind = a.Value.AsString()
			}
		}
		fmt.Fprintf(&d.out, " -> %s:%s", kind, d.label(l.SpanContext))
	}
	d.out.WriteByte('\n')
	for _, c := range d.spans {
		if c.Parent.SpanID() == s.SpanContext.SpanID() && c.Parent.TraceID() == s.SpanContext.TraceID() {
			d.draw(c, depth+1)
		}
	}
}

// label names a span that a link leads to.
func (d *drawing) label(sc trace.SpanContext) string {
	s := d.find(sc)
	if s == nil {
		return "elsewhere"
	}
	for _, a := range s.Attributes {
		if a.Key == "lock.owner" {
			return s.Name + "(" + d.owner(a.Value.AsString()) + ")"
		}
	}
	return s.Name
}

// traced names the owner whose acquisition is in a trace.
func (d *drawing) traced(id string) string {
	for _, s := range d.spans {
		if s.SpanContext.TraceID().String() == id && s.Name == "lock.acquire" {
			return d.label(s.SpanContext)
		}
	}
	return "elsewhere"
}

// expect compares the tree with what is wanted.
func (r *rig) expect(want string) {
	r.t.Helper()
	want = strings.TrimPrefix(strings.ReplaceAll(want, "\t", ""), "\n")
	if got := r.tree(); got != want {
		r.t.Errorf("the span tree is\n%s\nand should be\n%s", got, want)
	}
}
