package telemetry

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/metric"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// misbehaving is code of the user's that blocks or panics while it is armed, where it is asked about a lock
// whose name begins with "bad", or with the context of a call for one.
type misbehaving struct {
	panics bool
	armed  atomic.Bool
	met    atomic.Int64 // how often it misbehaved
	open   chan struct{}
}

func (m *misbehaving) at(bad bool) {
	if !bad || !m.armed.Load() {
		return
	}
	m.met.Add(1)
	if m.panics {
		panic("code of the user's")
	}
	<-m.open
}

func (m *misbehaving) name(name string) string {
	m.at(isBadName(name))
	return name
}

func isBadName(name string) bool { return strings.HasPrefix(strings.TrimPrefix(name, "["), "bad") }

// badCtx is a context of a type of the user's, for calls for a bad lock.
type badCtx struct {
	context.Context
	m *misbehaving // nil: it only says what it is
}

type badKey struct{}

func (c badCtx) Value(key any) any {
	if _, ok := key.(badKey); ok {
		return true
	}
	if c.m != nil {
		c.m.at(true)
	}
	return c.Context.Value(key)
}

func isBad(ctx context.Context) bool { return ctx.Value(badKey{}) != nil }

type badSampler struct{ m *misbehaving }

func (s badSampler) Description() string { return "bad" }
func (s badSampler) ShouldSample(p sdktrace.SamplingParameters) sdktrace.SamplingResult {
	s.m.at(isBad(p.ParentContext))
	return sdktrace.SamplingResult{Decision: sdktrace.RecordAndSample}
}

// badProcessor misbehaves where a span begins, or where it ends.
type badProcessor struct {
	sdktrace.SpanProcessor
	start, end func(bad bool)
}

func (p badProcessor) OnStart(ctx context.Context, _ sdktrace.ReadWriteSpan) { p.start(isBad(ctx)) }
func (p badProcessor) OnEnd(s sdktrace.ReadOnlySpan) {
	p.end(isBadName(valueOf(s.Attributes(), "lock.name")))
}

// badMeters are the meters of a real provider with counters that misbehave.
type badMeters struct {
	metric.MeterProvider
	m *misbehaving
}

func (p badMeters) Meter(name string, opts ...metric.MeterOption) metric.Meter {
	return badMeter{p.MeterProvider.Meter(name, opts...), p.m}
}

type badMeter struct {
	metric.Meter
	m *misbehaving
}

func (b badMeter) Int64Counter(name string, opts ...metric.Int64CounterOption) (metric.Int64Counter, error) {
	c, err := b.Meter.Int64Counter(name, opts...)
	return badCounter{c, b.m}, err
}

type badCounter struct {
	metric.Int64Counter
	m *misbehaving
}

func (c badCounter) Add(ctx context.Context, n int64, opts ...metric.AddOption) {
	attrs := metric.NewAddConfig(opts).Attributes()
	name, _ := attrs.Value("lock.name")
	c.m.name(name.AsString())
	c.Int64Counter.Add(ctx, n, opts...)
}

type badLog struct {
	slog.Handler
	m *misbehaving
}

func (b badLog) Handle(ctx context.Context, r slog.Record) error {
	r.Attrs(func(a slog.Attr) bool {
		if a.Key == "lock" {
			b.m.name(a.Value.String())
		}
		return true
	})
	return b.Handler.Handle(ctx, r)
}
func (b badLog) WithAttrs(attrs []slog.Attr) slog.Handler {
	return badLog{b.Handler.WithAttrs(attrs), b.m}
}

// badClient is a client that somebody has wrapped.
type badClient struct {
	rueidis.Client
	m *misbehaving
}

func (c badClient) Do(ctx context.Context, cmd rueidis.Completed) rueidis.RedisResult {
	c.m.at(isBad(ctx))
	return c.Client.Do(ctx, cmd)
}

// borders are the ways into code of the user's. A panic of what is only told of a lock costs nobody
// anything; one of what a call needs is the caller's.
var borders = map[string]struct {
	set    func(m *misbehaving, c *redlatch.Config)
	ctx    bool // its contexts misbehave
	needed bool // a call can't do without the answer
}{
	"Telemetry.LockName": {set: func(m *misbehaving, c *redlatch.Config) { c.Telemetry.LockName = m.name }},
	"Sampler":            {set: func(m *misbehaving, c *redlatch.Config) { traced(c, sdktrace.WithSampler(badSampler{m})) }},
	"Processor.OnStart": {set: func(m *misbehaving, c *redlatch.Config) {
		traced(c, sdktrace.WithSpanProcessor(badProcessor{tracetest.NewSpanRecorder(), m.at, func(bool) {}}))
	}},
	"Processor.OnEnd": {set: func(m *misbehaving, c *redlatch.Config) {
		traced(c, sdktrace.WithSpanProcessor(badProcessor{tracetest.NewSpanRecorder(), func(bool) {}, m.at}))
	}},
	"Counter.Add": {set: func(m *misbehaving, c *redlatch.Config) {
		c.MeterProvider = badMeters{c.MeterProvider, m}
		c.Telemetry.LockName = func(name string) string { return name }
	}},
	"Logger":     {set: func(m *misbehaving, c *redlatch.Config) { c.Logger = slog.New(badLog{c.Logger.Handler(), m}) }},
	"ctx.Value":  {set: func(*misbehaving, *redlatch.Config) {}, ctx: true, needed: true},
	"NameMapper": {set: func(m *misbehaving, c *redlatch.Config) { c.NameMapper = m.name }, needed: true},
	"ClientBuilder": {set: func(m *misbehaving, c *redlatch.Config) {
		c.ClientBuilder = func(o rueidis.ClientOption) (rueidis.Client, error) {
			in, err := rueidis.NewClient(o)
			return badClient{in, m}, err
		}
	}, needed: true},
}

func traced(c *redlatch.Config, opt sdktrace.TracerProviderOption) {
	c.TracerProvider = sdktrace.NewTracerProvider(opt, sdktrace.WithSyncer(tracetest.NewNoopExporter()))
}

// Code of the user's that blocks or panics, about some locks, holds up nobody else, wherever it is
// called: all the others are renewed, acquired, found lost and at an end as ever; what a caller who has
// gone left on the server is given back; and Close has its bound.
func TestCodeOfTheUsersHoldsUpNobodyElse(t *testing.T) {
	for where, border := range borders {
		for _, panics := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/panics=%t", where, panics), func(t *testing.T) {
				t.Parallel()
				m := &misbehaving{panics: panics, open: make(chan struct{})}
				misbehave(t, m, border.set, border.ctx, border.needed)
			})
		}
	}
}

func misbehave(t *testing.T, m *misbehaving, set func(*misbehaving, *redlatch.Config), ctxs, needed bool) {
	const lease = 2 * checked // a busy machine stalls for longer than a third of the shorter one
	r := bare(t)
	proxy := testbed.NewProxy(t, r.server.Addr())
	c := r.open(redlatch.WithLeaseTime(lease), through(proxy), func(c *redlatch.Config) {
		c.UnlockTimeout, c.Telemetry.RenewalSpans = 2*time.Second, true
		set(m, c)
	})
	unblock := sync.OnceFunc(func() { m.armed.Store(false); close(m.open) })
	defer unblock()
	limited, cancel := context.WithTimeout(t.Context(), 3*checked) // what a client can't do is tried again
	defer cancel()
	bad := badCtx{Context: limited}
	if ctxs {
		bad.m = m
	}
	kept := bed.Lock(t, t.Context(), c.RLock("good"))
	taken, err := c.RLock("bad-taken").Lock(bad)
	testbed.Must(t, err)
	whole, err := redlatch.MultiLock(c.RLock("bad-whole"), c.FairLock("bad-fellow")).Lock(bad)
	testbed.Must(t, err)
	lost := bed.Lock(t, t.Context(), c.RLock("good-lost"))
	ends := map[string]context.Context{
		"the loss of another lock": lost.Context(), "the loss of a bad lock": taken.Context(), "the loss of a bad MultiLock": whole.Context(),
	}
	for name, ctx := range map[string]context.Context{"good-fixed": t.Context(), "bad-fixed": bad} {
		h, err := c.RLock(name).Lock(ctx, redlatch.WithLease(checked))
		testbed.Must(t, err)
		ends["the end of "+name] = h.Context()
	}
	busy := bed.Lock(t, t.Context(), r.open().RLock("bad-busy"))

	// One whose caller leaves while the answer is on its way.
	trap := proxy.StallReply(testbed.Contains("EVALSHA", "bad-late"))
	leaving, leave := context.WithCancel(t.Context())
	var sound atomic.Int64 // calls that did not panic
	calls := []<-chan struct{}{calling(new(atomic.Int64), func() {
		if h, err := c.RLock("bad-late").Lock(badCtx{leaving, bad.m}); err == nil { // the answer was faster
			_ = h.Unlock(context.Background())
		}
	})}
	trap.Wait(t)
	m.armed.Store(true)
	leave()
	time.Sleep(50 * time.Millisecond) // most leave by then, whatever blocks them afterwards
	trap.Release()

	nothing := func(context.Context) error { return nil }
	asked := []func(){
		func() { _ = c.RLock("bad-new").Do(bad, nothing) },
		func() { _ = c.FairLock("bad-fair").Do(bad, nothing) },
		func() { _ = redlatch.MultiLock(c.RLock("bad-{m}1"), c.RLock("bad-{m}2")).Do(bad, nothing) },
		func() { _, _ = c.RLock("bad-busy").TryLock(bad, checked/3, 0) },
		func() { _, _ = c.RLock("bad-taken").ForceUnlock(bad) },
		func() { _, _ = c.Once("bad-once").Do(bad, time.Hour, nothing) },
		func() { _, _ = c.Once("bad-once").Reset(bad) },
		func() { _, _ = c.Once("bad-once").Last(bad) },
		func() { _, _ = c.Inspect(bad, "bad-taken") },
		func() {
			for _, err := range c.Locks(bad, "bad*") {
				_ = err
			}
		},
	}
	for _, call := range asked {
		calls = append(calls, calling(&sound, call))
	}
	useful := func(name string) {
		t.Helper()
		within(t, name, began(func() {
			bed.Want(t, c.RLock(name).Do(t.Context(), nothing), nil)
		}))
	}
	over := func() {
		t.Helper()
		for _, call := range calls {
			within(t, "a call for the bad lock", call)
		}
	}
	r.server.Int(t, "DEL", "good-lost", "bad-taken", "bad-whole")
	for i := range 3 {
		useful(fmt.Sprint("good", i))
	}
	for what, ctx := range ends {
		within(t, what, ctx.Done())
	}
	if m.armed.Load() && (!needed || ctxs) { // a client that blocks can't give back
		bed.Eventually(t, "the late grant is given back", func() bool { return r.server.Int(t, "EXISTS", "bad-late") == 0 })
	}
	time.Sleep(lease * 3 / 4) // two renewals
	bed.Alive(t, kept)
	within(t, "its unlock", began(func() { bed.Unlock(t, kept) }))
	testbed.AtLeast(t, m.met.Load(), 1, "times that it misbehaved")
	if m.panics {
		over()
		if n := sound.Load(); !needed && n != int64(len(asked)) {
			t.Errorf("%d of %d calls had no panic", n, len(asked))
		}
		m.armed.Store(false)
		useful("bad-new")
	}
	within(t, "Close", began(c.Close))
	unblock()
	over()
	_, _ = taken.Unlock(t.Context()), whole.Unlock(t.Context())
	bed.Unlock(t, busy)
}

// began runs f in a goroutine and returns what is closed when it has ended.
func began(f func()) <-chan struct{} {
	done := make(chan struct{})
	go func() { // ends with f
		defer close(done)
		f()
	}()
	return done
}

// calling begins f, which may panic, and counts it if it does not.
func calling(sound *atomic.Int64, f func()) <-chan struct{} {
	return began(func() {
		defer func() {
			if recover() == nil {
				sound.Add(1)
			}
		}()
		f()
	})
}

// within waits for what is to end soon.
func within(t *testing.T, what string, done <-chan struct{}) {
	t.Helper()
	select {
	case <-done:
	case <-time.After(bed.Patience):
		t.Errorf("%s: it does not end", what)
	}
}
