package telemetry

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/metric/metricdata"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What is told is bounded, and text, whatever names locks have, and whatever kinds of errors there are.
func TestWhatIsToldIsBounded(t *testing.T) {
	const names = 400
	for _, tc := range []struct {
		name     string
		template func(string) string
		most     int
	}{
		{"no names without a template", nil, 1},
		{"a template", func(name string) string { return name[:5] + "*" }, 1},
		{"a template that lets everything through", func(name string) string { return name }, 201},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, func(c *redlatch.Config) { c.Telemetry.LockName = tc.template })
			for i := range names {
				name := fmt.Sprintf("order:%d%s", i, strings.Repeat("\xff\x00", 500))
				bed.Unlock(t, bed.Lock(t, t.Context(), r.client.RLock(name)))
			}
			for _, s := range r.spans() {
				for _, a := range s.Attributes {
					if v := a.Value.String(); strings.Contains(v, "\xff") || len(v) > 1000 {
						t.Fatalf("%s: %s has %d bytes, as %.20q…", s.Name, a.Key, len(v), v)
					}
				}
			}
			all := r.collect()
			for name, m := range all {
				got, most := points(m), tc.most
				if name == "lock.renewals" { // kinds of errors begin at 0
					most *= 4
				}
				if text := fmt.Sprint(got); len(got) > most || strings.Contains(text, "\xff") {
					t.Errorf("%s has %d series, want %d: %.200q", name, len(got), most, text)
				}
			}
			total := int64(0)
			for _, n := range points(all["lock.acquire.duration"]) {
				total += n
			}
			testbed.Equal(t, total, names, "acquisitions that are told")
		})
	}
}

// An exemplar leads from the time for which a lock was held to the trace of its acquisition, and that of who waited
// elsewhere to the holder's, by a link that is remote and sampled; it says for how long it has waited.
func TestFromAMetricToTheTrace(t *testing.T) {
	r := newRig(t)
	other := r.open()
	h := bed.Lock(t, t.Context(), r.client.RLock("orders:42", redlatch.Fenced()))
	got := bed.Async(t.Context(), other.RLock("orders:42", redlatch.Fenced()))
	r.ended("acquire", 3) // the holder's, and the waiter's two: it has waited since before the second one
	const held = 50 * time.Millisecond
	time.Sleep(held) // what the wait must show at least
	bed.Unlock(t, h)
	next := bed.Hold(t, got)
	spans := r.spans("lock.acquire")
	holder, waiter := spans[0], spans[1]
	holds, _ := r.collect()["lock.hold.duration"].Data.(metricdata.Histogram[float64])
	var leads []string
	for _, p := range holds.DataPoints {
		for _, e := range p.Exemplars {
			leads = append(leads, fmt.Sprintf("%x %x", e.TraceID, e.SpanID))
		}
	}
	if want := fmt.Sprint(holder.SpanContext.TraceID(), " ", holder.SpanContext.SpanID()); !slices.Equal(leads, []string{want}) {
		t.Errorf("the exemplars of the hold lead to %q, want %q", leads, want)
	}
	linksTo(t, waiter, holder)
	if to := waiter.Links[0].SpanContext; !to.IsRemote() || !to.IsSampled() {
		t.Errorf("the link is remote %t, sampled %t", to.IsRemote(), to.IsSampled())
	}
	if told, err := strconv.ParseFloat(attr(waiter, "lock.wait.duration"), 64); err != nil || told < held.Seconds() {
		t.Errorf("waited for %v s, %v", told, err)
	}
	if first, second := attr(holder, "lock.fencing_token"), attr(waiter, "lock.fencing_token"); first >= second { // as long
		t.Errorf("fencing tokens %s, then %s", first, second)
	}
	bed.Unlock(t, next)
}
