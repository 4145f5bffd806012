package telemetry

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func through(p *testbed.Proxy) setting {
	return func(c *redlatch.Config) { c.Redis = rueidis.ClientOption{InitAddress: []string{p.Addr()}} }
}

// one checks that exactly one line was logged, about that lock and with the
// trace of its acquisition, and returns it.
func (r *rig) one(what, lock string) map[string]any {
	r.t.Helper()
	lines := r.log.lines(r.t, what)
	if len(lines) != 1 {
		r.t.Fatalf("%q was logged %d times: %v", what, len(lines), lines)
	}
	rec := lines[0]
	owner, _ := rec["owner"].(string)
	if rec["lock"] != lock || len(owner) < 40 || rec["client"] != r.client.Name() {
		r.t.Errorf("lock, owner or client is missing: %v", rec)
	}
	// The acquisition may not have ended: ask for all that began.
	for _, s := range r.seen.Started() {
		if s.Name() == "lock.acquire" && s.SpanContext().TraceID().String() == rec["trace_id"] && s.SpanContext().SpanID().String() == rec["span_id"] {
			return rec
		}
	}
	r.t.Errorf("trace_id and span_id are no acquisition's: %v", rec)
	return rec
}

func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for limit := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(limit) {
			t.Fatalf("waited in vain: %s", what)
		}
	}
}

// A lost lease is one line in the log, with the reason.
func TestLogOfLostLease(t *testing.T) {
	r := newRig(t, leaseTime(checked))
	h := must[redlatch.Hold](t)(r.client.RLock("orders:42").Lock(t.Context()))
	r.server.Int(t, "DEL", "orders:42")
	<-h.Context().Done()
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	r.client.Close() // whatever else is logged has been
	rec := r.one("lease lost", "orders:42")
	if rec["reason"] != "gone" {
		t.Errorf("the reason is %v", rec["reason"])
	}
	if why, said := rec["error"]; said {
		t.Errorf("no renewal failed, but the error is %v", why)
	}
}

// TestLogOfFailedRenewals: the server stops answering; the many tries that fail
// are one line, the loss is another.
func TestLogOfFailedRenewals(t *testing.T) {
	server := testbed.Standalone(t)
	proxy := testbed.NewProxy(t, server.Addr())
	r := newRig(t, leaseTime(checked), through(proxy))
	h := must[redlatch.Hold](t)(r.client.RLock("orders:42").Lock(t.Context()))
	proxy.Refuse()
	proxy.Cut()
	<-h.Context().Done()
	r.client.Close()
	r.one("renewal failed", "orders:42")
	if rec := r.one("lease lost", "orders:42"); rec["reason"] != "expired" {
		t.Errorf("the reason is %v", rec["reason"])
	}
	var told []string
	for _, s := range r.exporter.GetSpans() {
		if s.Name == "lock.renew" {
			told = append(told, attr(s, "error.type"))
		}
	}
	if want := []string{"unavailable", "lease_lost"}; !slices.Equal(told, want) {
		t.Errorf("spans of renewals failed with %v, want %v: the first, and the end", told, want)
	}
}

func attr(s tracetest.SpanStub, key string) string {
	for _, a := range s.Attributes {
		if string(a.Key) == key {
			return a.Value.String()
		}
	}
	return ""
}

// A lost subscription is one line, which says how many wait: the connection is killed while two
// wait in line, and its replacement refused for a while.
func TestLogOfLostSubscription(t *testing.T) {
	server := testbed.Standalone(t)
	proxy := testbed.NewProxy(t, server.Addr())
	var dials atomic.Int64
	r := newRig(t, through(proxy), func(c *redlatch.Config) {
		c.Redis.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			dials.Add(1)
			return d.DialContext(ctx, "tcp", addr)
		}
	})
	l := r.client.RLock("orders:42")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var waits []func()
	for i := range 2 {
		waits = append(waits, begin(t, func() { _, _ = l.Lock(ctx) }))
		if i == 0 {
			r.untilTried("acquire", 3) // the subscription stands
		}
	}
	r.until("both wait", countStarted("lock.wait", 2))
	proxy.Refuse()
	proxy.Cut()
	before := dials.Load()
	eventually(t, "it tried to connect a few times", func() bool { return dials.Load() > before+6 })
	proxy.Admit(t)
	tried := len(r.exporter.GetSpans())
	eventually(t, "the waiter tries again", func() bool { return len(r.exporter.GetSpans()) > tried })
	if rec := r.one("subscription lost", "orders:42"); rec["waiting"] != 2.0 {
		t.Errorf("%v wait", rec["waiting"])
	}
	cancel()
	for _, w := range waits {
		w()
	}
	unlock(t, h)
}

// A lock that is given back, since the answer that grants it came after its caller had gone, is one
// line.
func TestLogOfGiveBack(t *testing.T) {
	server := testbed.Standalone(t)
	proxy := testbed.NewProxy(t, server.Addr())
	r := newRig(t, through(proxy))
	l := r.client.RLock("orders:42")
	unlock(t, must[redlatch.Hold](t)(l.Lock(t.Context()))) // the script is loaded
	trap := proxy.StallReply(testbed.Contains("EVALSHA", "orders:42"))
	ctx, cancel := context.WithCancel(t.Context())
	wait := begin(t, func() {
		if _, err := l.Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	trap.Wait(t)
	cancel()
	wait()
	trap.Release()
	r.client.Close()
	r.one("given back", "orders:42")
	if n := server.Int(t, "EXISTS", "orders:42"); n != 0 {
		t.Error("the lock was not given back")
	}
}

// TestLogWithoutTelemetry: the caller's trace is logged also when nothing is
// recorded here.
func TestLogWithoutTelemetry(t *testing.T) {
	r := newRig(t)
	c := r.open(leaseTime(checked), off)
	ctx, span := r.tracing.Tracer("test").Start(t.Context(), "request")
	h := must[redlatch.Hold](t)(c.RLock("a").Lock(ctx))
	span.End()
	r.server.Int(t, "DEL", "a")
	<-h.Context().Done()
	c.Close()
	if lines := r.log.lines(t, "lease lost"); len(lines) != 1 {
		t.Errorf("logged %v", lines)
	}
	if got := len(r.exporter.GetSpans()); got != 1 {
		t.Errorf("%d spans, want the request's alone\n%s", got, r.tree())
	}
}

// A loss is logged before Close returns, also when it is found while Close runs. Who finds it ends
// the hold's context first, which takes a while here, and tells of it afterwards.
func TestALossIsLoggedBeforeCloseReturns(t *testing.T) {
	r := newRig(t)
	c := r.open(leaseTime(checked), off)
	h := must[redlatch.Hold](t)(c.RLock("a").Lock(t.Context()))
	cancels := make([]context.CancelFunc, 200_000)
	for i := range cancels {
		_, cancels[i] = context.WithCancel(h.Context())
	}
	r.server.Int(t, "DEL", "a")
	<-h.Context().Done()
	c.Close()
	if lines := r.log.lines(t, "lease lost"); len(lines) != 1 {
		t.Errorf("logged %v", lines)
	}
	for _, cancel := range cancels {
		cancel()
	}
}
