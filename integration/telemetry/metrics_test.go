package telemetry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"go.opentelemetry.io/otel/attribute"
	mnoop "go.opentelemetry.io/otel/metric/noop"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	tnoop "go.opentelemetry.io/otel/trace/noop"

	"github.com/redlatch/redlatch"
)

// off is telemetry switched off with the API's no-ops.
func off(c *redlatch.Config) {
	c.TracerProvider, c.MeterProvider = tnoop.NewTracerProvider(), mnoop.NewMeterProvider()
}

func countStarted(name string, n int) func([]sdktrace.ReadWriteSpan, []sdktrace.ReadOnlySpan) bool {
	return func(started []sdktrace.ReadWriteSpan, _ []sdktrace.ReadOnlySpan) bool {
		count := 0
		for _, s := range started {
			if s.Name() == name {
				count++
			}
		}
		return count >= n
	}
}

// points are a metric's values by their attributes; of a histogram the counts, of a gauge of seconds milliseconds.
func points(t *testing.T, m metricdata.Metrics) map[string]int64 {
	t.Helper()
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
	default:
		t.Fatalf("%s: %T", m.Name, m.Data)
	}
	return out
}

func (r *rig) expectPoints(name string, want map[string]int64) {
	r.t.Helper()
	if got := points(r.t, r.collect()[name]); fmt.Sprint(got) != fmt.Sprint(want) {
		r.t.Errorf("%s is\n%v, want\n%v", name, got, want)
	}
}

// The metrics count what docs/OBSERVABILITY.md says that they count.
func TestMetrics(t *testing.T) {
	r := newRig(t, leaseTime(checked))
	l := r.client.RLock("orders:42")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))

	r.expectPoints("lock.held", map[string]int64{"lock.type=reentrant": 1})
	r.expectPoints("lock.leases.lost", map[string]int64{"lock.type=reentrant": 0}) // a rate sees the first
	for kind, n := range points(t, r.collect()["lock.renewals"]) {
		if n != 0 {
			t.Errorf("lock.renewals{%s} began at %d", kind, n)
		}
	}

	// a busy try, a wait, an end of the wait
	if _, err := l.TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	wait := begin(t, func() { _, _ = l.Lock(ctx) })
	eventually(t, "it waits", func() bool {
		m, known := r.collect()["lock.waiting"]
		return known && points(t, m)["lock.type=reentrant"] == 1
	})
	cancel()
	wait()
	r.expectPoints("lock.waiting", map[string]int64{"lock.type=reentrant": 0})
	r.expectPoints("lock.contentions", map[string]int64{"lock.type=reentrant": 2})
	r.expectPoints("lock.wait.duration", map[string]int64{"lock.outcome=cancelled,lock.type=reentrant": 1})

	// a renewal that works, then a loss
	renewals := func(kind string) func() bool {
		return func() bool { return points(t, r.collect()["lock.renewals"])[kind] > 0 }
	}
	eventually(t, "it is renewed", renewals("lock.type=reentrant"))
	r.server.Int(t, "DEL", "orders:42")
	<-h.Context().Done()
	eventually(t, "the failed renewal is counted", renewals("error.type=lease_lost,lock.type=reentrant"))
	eventually(t, "the hold is counted out", func() bool { return points(t, r.collect()["lock.held"])["lock.type=reentrant"] == 0 })
	r.expectPoints("lock.leases.lost", map[string]int64{"lock.type=reentrant": 1})
	unlock(t, must[redlatch.Hold](t)(l.Lock(t.Context())))
	r.expectPoints("lock.hold.duration", map[string]int64{
		"lock.outcome=lost,lock.type=reentrant": 1, "lock.outcome=released,lock.type=reentrant": 1,
	})

	// an error
	r.server.Int(t, "LPUSH", "orders:43", "no lock")
	_, _ = r.client.RLock("orders:43").Lock(t.Context())
	r.server.Int(t, "DEL", "orders:43")
	r.expectPoints("lock.acquire.duration", map[string]int64{
		"lock.outcome=acquired,lock.type=reentrant":                      2,
		"lock.outcome=busy,lock.type=reentrant":                          1,
		"lock.outcome=cancelled,lock.type=reentrant":                     1,
		"error.type=invalid_name,lock.outcome=error,lock.type=reentrant": 1,
	})

	// shape
	units := map[string]string{
		"lock.acquire.duration": "s", "lock.wait.duration": "s", "lock.hold.duration": "s",
		"lock.contentions": "{acquisition}", "lock.leases.lost": "{hold}", "lock.renewals": "{renewal}",
		"lock.held": "{hold}", "lock.waiting": "{acquisition}", "lock.hold.age": "s", "lock.wait.age": "s",
	}
	all := r.collect()
	for name, m := range all {
		if m.Unit != units[name] || m.Description == "" {
			t.Errorf("%s has unit %q and description %q", name, m.Unit, m.Description)
		}
	}
	if len(all) != len(units) {
		t.Errorf("%d metrics, want %d", len(all), len(units))
	}
	for name, top := range map[string]float64{"lock.acquire.duration": 60, "lock.hold.duration": 3600} {
		b := all[name].Data.(metricdata.Histogram[float64]).DataPoints[0].Bounds //nolint:forcetypeassert // points did
		if b[0] != 0.001 || b[len(b)-1] != top {
			t.Errorf("%s has the buckets %v", name, b)
		}
	}
}

// The metrics are bounded, whatever names locks have, and whatever kinds of errors there are.
func TestMetricsAreBounded(t *testing.T) {
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
			r := newRig(t, func(c *redlatch.Config) {
				c.Telemetry.LockName = tc.template
				c.TracerProvider = tnoop.NewTracerProvider()
			})
			for i := range names {
				unlock(t, must[redlatch.Hold](t)(r.client.RLock(fmt.Sprintf("order:%d\xff", i)).Lock(t.Context())))
			}
			total := int64(0)
			for name, m := range r.collect() {
				got := points(t, m)
				if name == "lock.renewals" { // kinds of errors begin at 0
					if len(got) > 4*tc.most {
						t.Errorf("%s has %d series", name, len(got))
					}
					continue
				}
				if len(got) > tc.most {
					t.Errorf("%s has %d series", name, len(got))
				}
				for label, n := range got {
					if strings.Contains(label, "\xff") {
						t.Errorf("%s{%q} is no text", name, label)
					}
					if name == "lock.acquire.duration" {
						total += n
					}
				}
			}
			if total != names {
				t.Errorf("%d of %d acquisitions are told", total, names)
			}
		})
	}
}
