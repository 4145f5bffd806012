package telemetry

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/otel"
)

// metrics are the instruments.
type metrics struct {
	provider metric.MeterProvider
	source   *source
	name     func(string) string

	acquire, wait, hold         metric.Float64Histogram
	contentions, lost, renewals metric.Int64Counter
	inUse, waits                metric.Int64UpDownCounter

	mu   sync.RWMutex
	sets map[observe.Lock]*sets // guarded by mu; by templated name and type

	lines sync.Mutex // guards who waits: line, place
}

// maxNames bounds how many lock names and types the metrics tell apart; a
// template that lets more through gets its rest under one name. maxErrors does
// the same for kinds of errors.
const (
	maxNames  = 200
	otherName = "_other"
	maxErrors = 24
	otherType = "_OTHER" // the conventions' word
)

var (
	buckets     = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30, 60}
	holdBuckets = append(slices.Clone(buckets), 120, 300, 900, 3600)
)

func newMetrics(mp metric.MeterProvider, src *source, name func(string) string) (*metrics, error) {
	m := &metrics{provider: mp, source: src, name: name, sets: map[observe.Lock]*sets{}}
	meter := mp.Meter(otel.Scope, metric.WithSchemaURL(semconv.SchemaURL))
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
		metric.WithDescription("Current holds of this client."))
	m.waits, errs[7] = meter.Int64UpDownCounter("lock.waiting", metric.WithUnit("{acquisition}"),
		metric.WithDescription("Acquisitions of this client that are waiting."))
	if err := cmp.Or(errs[:]...); err != nil {
		return nil, err
	}
	return m, nil
}

// on is the cheap check in front of everything.
func (m *metrics) on() bool { return m != nil && m.source.on() }

// sets are the prebuilt attribute options of one lock name and type.
type sets struct {
	lock  observe.Lock // with the templated name
	line  line
	attrs []attribute.KeyValue
	add   []metric.AddOption
	ends  map[string][]metric.RecordOption // by outcome; of acquisitions and holds
	zero  atomic.Bool                      // its counters have begun

	mu     sync.Mutex
	errors map[string]failed // guarded by mu; by error.type
}

// failed are the options for one kind of error.
type failed struct {
	acquire []metric.RecordOption
	renew   []metric.AddOption
}

// of finds or makes the sets of a lock.
func (m *metrics) of(l observe.Lock) *sets {
	key := observe.Lock{Type: l.Type}
	if m.name != nil {
		key.Name = clean(m.name(l.Name))
	}
	m.mu.RLock()
	s := m.sets[key]
	m.mu.RUnlock()
	if s == nil {
		s = m.add(key)
	}
	if s.zero.CompareAndSwap(false, true) { // counters begin at 0, so that a rate sees the first event
		ctx := context.Background()
		m.contentions.Add(ctx, 0, s.add...)
		m.lost.Add(ctx, 0, s.add...)
		m.renewals.Add(ctx, 0, s.add...)
		for _, kind := range []string{"lease_lost", "refused", "unavailable"} {
			m.renewals.Add(ctx, 0, s.failed(kind).renew...)
		}
	}
	return s
}

func (m *metrics) add(key observe.Lock) *sets {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.sets[key] == nil && len(m.sets) >= maxNames && key.Name != "" {
		key.Name = otherName
	}
	s := m.sets[key]
	if s == nil {
		s = newSets(key)
		m.sets[key] = s
	}
	return s
}

func newSets(key observe.Lock) *sets {
	s := &sets{
		lock: key, attrs: attributes(key), ends: map[string][]metric.RecordOption{}, errors: map[string]failed{},
	}
	for _, how := range []string{"acquired", "busy", "timeout", "cancelled", "free", "released", "lost", "expired", "closed"} {
		s.ends[how] = []metric.RecordOption{s.with(attribute.String("lock.outcome", how))}
	}
	s.add = []metric.AddOption{s.with()}
	return s
}

// attributes are those of all series of a lock.
func attributes(l observe.Lock) []attribute.KeyValue {
	attrs := []attribute.KeyValue{attribute.String("lock.type", l.Type)}
	if l.Name != "" {
		attrs = append(attrs, attribute.String("lock.name", l.Name))
	}
	return attrs
}

func (s *sets) with(more ...attribute.KeyValue) metric.MeasurementOption {
	return metric.WithAttributeSet(attribute.NewSet(append(slices.Clone(s.attrs), more...)...))
}

// failed finds or makes the options for a kind of error.
func (s *sets) failed(kind string) failed {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, known := s.errors[kind]; !known && len(s.errors) >= maxErrors {
		kind = otherType
	}
	f, known := s.errors[kind]
	if !known {
		typed := semconv.ErrorTypeKey.String(kind)
		f = failed{
			acquire: []metric.RecordOption{s.with(attribute.String("lock.outcome", "error"), typed)},
			renew:   []metric.AddOption{s.with(typed)},
		}
		s.errors[kind] = f
	}
	return f
}

func (m *metrics) contended(ctx context.Context, l observe.Lock) {
	m.contentions.Add(ctx, 1, m.of(l).add...)
}

// waiting counts an acquisition in or out that waits.
func (m *metrics) waiting(a *acquisition, n int64) {
	s := m.of(a.lock)
	m.waits.Add(a.ctx, n, s.add...)
	if n > 0 {
		m.enter(a, &s.line)
	} else {
		m.leave(a, false)
	}
}

func (m *metrics) held(l observe.Lock) {
	m.inUse.Add(context.Background(), 1, m.of(l).add...)
}

// acquired records an acquisition that ended.
func (m *metrics) acquired(a *acquisition, how string, err error) {
	s := m.of(a.lock)
	opts := s.ends[how]
	if opts == nil {
		opts = s.failed(errorType(err)).acquire
	}
	m.acquire.Record(a.ctx, a.ended.Sub(a.began).Seconds(), opts...)
	if a.waited > 0 {
		m.wait.Record(a.ctx, a.waited.Seconds(), opts...)
	}
}

// ended records a hold that ended.
func (m *metrics) ended(ctx context.Context, l observe.Lock, counted bool, how string, held time.Duration) {
	s := m.of(l)
	if how == "lost" { // first: who sees the hold counted out sees why
		m.lost.Add(ctx, 1, s.add...)
	}
	m.hold.Record(ctx, held.Seconds(), s.ends[how]...)
	if counted {
		m.inUse.Add(ctx, -1, s.add...)
	}
}

// renewed counts a renewal.
func (m *metrics) renewed(l observe.Lock, err error) {
	s := m.of(l)
	opts := s.add
	if err != nil {
		opts = s.failed(errorType(err)).renew
	}
	m.renewals.Add(context.Background(), 1, opts...)
}
