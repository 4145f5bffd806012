package telemetry

import (
	"context"
	"maps"
	"reflect"
	"sync"
	"time"

	global "go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/metric"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/otel"
)

// ages are the gauges of the oldest holds and waits of one meter provider's Clients. A gauge has one value for
// all of them: the largest. They are asked for when the metrics are read: locking and unlocking pay nothing.
type ages struct {
	of         metric.MeterProvider
	hold, wait metric.Float64ObservableGauge
	end        metric.Registration

	mu      sync.Mutex
	clients map[*metrics]client // guarded by mu
}

// client is what the gauges ask of one Client.
type client struct {
	guard *observe.Guard
	held  func(named bool) []observe.Age
}

// told has the gauges of each provider.
var told = struct {
	mu    sync.Mutex
	by    map[metric.MeterProvider]*ages // guarded by mu
	early metric.MeterProvider           // guarded by mu; the API's placeholder, if a Client was made with it
}{by: map[metric.MeterProvider]*ages{}}

// Ages has the gauges of o tell the ages of a Client's holds, until stop. held is called by whoever reads the
// metrics; it lists all holds, or without names the oldest of each type. stop may wait for a reader, and so for the
// user's code.
func Ages(o observe.Observer, held func(named bool) []observe.Age) (stop func(), err error) {
	t, ok := o.(*observer)
	if !ok || t.metrics == nil || !reflect.ValueOf(t.metrics.provider).Comparable() {
		return func() {}, nil
	}
	m := t.metrics
	told.mu.Lock()
	defer told.mu.Unlock()
	g := told.by[m.provider]
	if isPlaceholder(m.provider) {
		told.early = m.provider
	} else if early := told.by[told.early]; early != nil && m.provider == global.GetMeterProvider() {
		g = early // the placeholder leads to the same
	}
	if g == nil {
		if g, err = newAges(m.provider); err != nil {
			return nil, err
		}
		told.by[m.provider] = g
	}
	g.mu.Lock()
	g.clients[m] = client{t.guard, held}
	g.mu.Unlock()
	return func() { g.leave(m) }, nil
}

func newAges(mp metric.MeterProvider) (g *ages, err error) {
	g = &ages{of: mp, clients: map[*metrics]client{}}
	meter := mp.Meter(otel.Scope, metric.WithSchemaURL(semconv.SchemaURL))
	if g.hold, err = meter.Float64ObservableGauge("lock.hold.age", metric.WithUnit("s"),
		metric.WithDescription("For how long the oldest current hold has been held; 0: none.")); err != nil {
		return nil, err
	}
	if g.wait, err = meter.Float64ObservableGauge("lock.wait.age", metric.WithUnit("s"),
		metric.WithDescription("For how long the acquisition that has waited longest has been waiting; 0: none.")); err != nil {
		return nil, err
	}
	g.end, err = meter.RegisterCallback(g.tell, g.hold, g.wait)
	return g, err
}

// leave takes a Client out; after the last one the provider calls no more.
func (g *ages) leave(m *metrics) {
	told.mu.Lock()
	g.mu.Lock()
	delete(g.clients, m)
	last := len(g.clients) == 0
	g.mu.Unlock()
	if last {
		delete(told.by, g.of)
	}
	told.mu.Unlock()
	if last {
		_ = g.end.Unregister() // without a mutex: a provider that is being read calls tell under its own
	}
}

// oldest are the ages of one series.
type oldest struct{ hold, wait time.Duration }

// tell is called by the provider when it is read.
func (g *ages) tell(_ context.Context, to metric.Observer) error {
	g.mu.Lock()
	clients := maps.Clone(g.clients)
	g.mu.Unlock()
	all := map[observe.Lock]oldest{}
	for m, c := range clients {
		m.ages(c, all)
	}
	for l, a := range all {
		at := metric.WithAttributeSet(attribute.NewSet(attributes(l)...))
		to.ObserveFloat64(g.hold, a.hold.Seconds(), at)
		to.ObserveFloat64(g.wait, a.wait.Seconds(), at)
	}
	return nil
}

// ages adds those of one Client.
func (m *metrics) ages(c client, all map[observe.Lock]oldest) {
	defer c.guard.Recover() // LockName may panic
	for _, h := range c.held(m.name != nil) {
		l := m.of(h.Lock).lock
		a := all[l]
		a.hold = max(a.hold, h.Age)
		all[l] = a
	}
	m.mu.RLock()
	defer m.mu.RUnlock()
	m.lines.Lock()
	defer m.lines.Unlock()
	for _, s := range m.sets {
		a := all[s.lock]
		if first := s.line.First(); first != nil {
			a.wait = max(a.wait, time.Since(first.place.since))
		}
		all[s.lock] = a
	}
}

// line are the acquisitions of one series that wait, the one that has waited longest first; guarded by metrics.lines.
type line = lease.List[*acquisition]

// place is where an acquisition stands in a line; guarded by metrics.lines. Once over it enters none: a whole may
// hear that a member waits when it has ended itself.
type place struct {
	lease.Entry[*acquisition]
	since time.Time
	over  bool
}

// enter counts an acquisition in that begins to wait.
func (m *metrics) enter(a *acquisition, l *line) {
	m.lines.Lock()
	defer m.lines.Unlock()
	if p := &a.place; !p.over && !p.In() {
		p.since = time.Now()
		l.Push(&p.Entry, a)
	}
}

// leave counts it out.
func (m *metrics) leave(a *acquisition, over bool) {
	m.lines.Lock()
	defer m.lines.Unlock()
	a.place.Remove()
	a.place.over = a.place.over || over
}
