package otel

import (
	"context"
	"sync"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/redlatch/redlatch/internal/observe"
)

// metrics are the instruments.
type metrics struct {
	name func(string) string

	acquire, wait, hold         metric.Float64Histogram
	contentions, lost, renewals metric.Int64Counter
	inUse, waits                metric.Int64UpDownCounter

	mu   sync.RWMutex
	sets map[observe.Lock]*sets // guarded by mu; by templated name and type
}

// maxNames bounds how many lock names the metrics tell apart; a template that
// lets more through gets its rest under one name.
const (
	maxNames  = 200
	otherName = "_other"
)

var (
	buckets     = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	holdBuckets = append(append([]float64(nil), buckets...), 120, 300, 900, 3600)
)

func newMetrics(mp metric.MeterProvider, name func(string) string) (*metrics, error) {
	m := &metrics{name: name, sets: map[observe.Lock]*sets{}}
	meter := mp.Meter(Scope, metric.WithSchemaURL(semconv.SchemaURL))
	var errs [8]error
	m.acquire, errs[0] = meter.Float64Histogram("lock.acquire.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from the call of Lock or TryLock to its return."), metric.WithExplicitBucketBoundaries(buckets...))
	m.wait, errs[1] = meter.Float64Histogram("lock.wait.duration", metric.WithUnit("s"),
		metric.WithDescription("Time spent waiting for a busy lock; contended acquisitions only."), metric.WithExplicitBucketBoundaries(buckets...))
	m.hold, errs[2] = meter.Float64Histogram("lock.hold.duration", metric.WithUnit("s"),
		metric.WithDescription("Time from acquisition to release or loss."), metric.WithExplicitBucketBoundaries(holdBuckets...))
	m.contentions, errs[3] = meter.Int64Counter("lock.contentions", metric.WithUnit("{acquisition}"),
		metric.WithDescription("Acquisitions that found the lock busy."))
	m.lost, errs[4] = meter.Int64Counter("lock.leases.lost", metric.WithUnit("{hold}"),
		metric.WithDescription("Holds that were lost before they were unlocked."))
	m.renewals, errs[5] = meter.Int64Counter("lock.renewals", metric.WithUnit("{renewal}"),
		metric.WithDescription("Renewals and checks by the watchdog; error.type when they failed."))
	m.inUse, errs[6] = meter.Int64UpDownCounter("lock.held", metric.WithUnit("{hold}"),
		metric.WithDescription("Holds of this client now."))
	m.waits, errs[7] = meter.Int64UpDownCounter("lock.waiting", metric.WithUnit("{acquisition}"),
		metric.WithDescription("Acquisitions of this client that wait now."))
	for _, err := range errs {
		if err != nil {
			return nil, err
		}
	}
	return m, nil
}

// enabled is the cheap check in front of everything.
func (m *metrics) enabled(ctx context.Context) bool { return m != nil && m.acquire.Enabled(ctx) }

// sets are the prebuilt attribute options of one lock name and type.
type sets struct {
	attrs    []attribute.KeyValue
	add      []metric.AddOption
	outcomes map[string][]metric.RecordOption
	ends     map[string][]metric.RecordOption
	plain    []metric.RecordOption
}

func (m *metrics) of(l observe.Lock) *sets {
	key := observe.Lock{Type: l.Type}
	if m.name != nil {
		key.Name = m.name(l.Name)
	}
	m.mu.RLock()
	s := m.sets[key]
	m.mu.RUnlock()
	if s != nil {
		return s
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if s = m.sets[key]; s != nil {
		return s
	}
	if len(m.sets) >= maxNames && key.Name != "" {
		key.Name = otherName
		if s = m.sets[key]; s != nil {
			return s
		}
	}
	s = m.newSets(key)
	m.sets[key] = s
	return s
}

func (m *metrics) newSets(key observe.Lock) *sets {
	attrs := []attribute.KeyValue{attribute.String("lock.type", key.Type)}
	if key.Name != "" {
		attrs = append(attrs, attribute.String("lock.name", key.Name))
	}
	with := func(more ...attribute.KeyValue) metric.MeasurementOption {
		return metric.WithAttributeSet(attribute.NewSet(append(append([]attribute.KeyValue(nil), attrs...), more...)...))
	}
	s := &sets{attrs: attrs, outcomes: map[string][]metric.RecordOption{}, ends: map[string][]metric.RecordOption{}}
	for _, o := range []string{"acquired", "timeout", "cancelled", "lost"} {
		s.outcomes[o] = []metric.RecordOption{with(attribute.String("lock.outcome", o))}
	}
	for _, e := range []string{"released", "lost", "closed"} {
		s.ends[e] = []metric.RecordOption{with(attribute.String("lock.outcome", e))}
	}
	s.plain = []metric.RecordOption{with()}
	s.add = []metric.AddOption{with()}
	// Counters begin at 0, so that a rate sees the first event.
	ctx := context.Background()
	m.contentions.Add(ctx, 0, s.add...)
	m.lost.Add(ctx, 0, s.add...)
	m.renewals.Add(ctx, 0, s.add...)
	return s
}

func (m *metrics) contended(ctx context.Context, l observe.Lock) {
	m.contentions.Add(ctx, 1, m.of(l).add...)
}

func (m *metrics) waiting(ctx context.Context, l observe.Lock, n int64) {
	m.waits.Add(ctx, n, m.of(l).add...)
}

func (m *metrics) held(l observe.Lock, n int64) {
	if m != nil {
		m.inUse.Add(context.Background(), n, m.of(l).add...)
	}
}

// acquired records an acquisition that ended.
func (m *metrics) acquired(ctx context.Context, l observe.Lock, how string, err error, began, waited time.Time) {
	s, now := m.of(l), time.Now()
	opts := s.outcomes[how]
	if opts == nil {
		opts = []metric.RecordOption{metric.WithAttributes(append(append([]attribute.KeyValue(nil), s.attrs...),
			attribute.String("lock.outcome", how), semconv.ErrorTypeKey.String(errorType(err)))...)}
	}
	m.acquire.Record(ctx, now.Sub(began).Seconds(), opts...)
	if !waited.IsZero() {
		m.wait.Record(ctx, now.Sub(waited).Seconds(), opts...)
		m.waiting(ctx, l, -1)
	}
}

// ended records a hold that ended.
func (m *metrics) ended(l observe.Lock, how string, held time.Duration) {
	if m == nil {
		return
	}
	ctx, s := context.Background(), m.of(l)
	m.inUse.Add(ctx, -1, s.add...)
	m.hold.Record(ctx, held.Seconds(), s.ends[how]...)
	if how == "lost" {
		m.lost.Add(ctx, 1, s.add...)
	}
}

// renewed counts a renewal.
func (m *metrics) renewed(l observe.Lock, err error) {
	if m == nil {
		return
	}
	s := m.of(l)
	opts := s.add
	if err != nil {
		opts = []metric.AddOption{metric.WithAttributes(append(append([]attribute.KeyValue(nil), s.attrs...),
			semconv.ErrorTypeKey.String(errorType(err)))...)}
	}
	m.renewals.Add(context.Background(), 1, opts...)
}
