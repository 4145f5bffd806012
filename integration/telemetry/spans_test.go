package telemetry

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/attribute"

	"github.com/redlatch/redlatch"
)

func leaseTime(d time.Duration) setting { return func(c *redlatch.Config) { c.LeaseTime = d } }

// A free lock is one span with one command, below the caller's; so is its release.
func TestSpansUncontended(t *testing.T) {
	r := newRig(t)
	ctx, section := r.tracing.Tracer("test").Start(t.Context(), "request")
	h := must[redlatch.Hold](t)(r.client.RLock("orders:42", redlatch.Fenced()).Lock(ctx))
	unlock(t, h)
	must[redlatch.Hold](t)(r.client.RLock("orders:43").TryLock(ctx, 0, time.Minute))
	section.End()
	r.expect(`
	request internal
	  lock.acquire internal attempts=1 contended=false count=1 fencing_token=~ name=orders:42 outcome=acquired owner=A type=reentrant
	    EVALSHA client db.stored_procedure.name=acquire
	  lock.acquire internal attempts=1 contended=false count=1 name=orders:43 outcome=acquired owner=B type=reentrant wait.limit=0
	    EVALSHA client db.stored_procedure.name=acquire
	lock.release internal name=orders:42 owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=release
	`)
}

// Every span names its client, and every command its server.
func TestCommonAttributes(t *testing.T) {
	r := newRig(t)
	unlock(t, must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context())))
	unlock(t, must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context(), redlatch.WithLease(3*time.Second))))
	var leases []string
	for _, s := range r.exporter.GetSpans() {
		attrs := attribute.NewSet(s.Attributes...)
		get := func(key attribute.Key) string {
			v, _ := attrs.Value(key)
			return v.String()
		}
		if s.InstrumentationScope.SchemaURL != "https://opentelemetry.io/schemas/1.43.0" {
			t.Errorf("%s: schema %q", s.Name, s.InstrumentationScope.SchemaURL)
		}
		if strings.HasPrefix(s.Name, "lock.") && get("lock.client.name") != r.client.Name() {
			t.Errorf("%s: the client is called %q, want %q", s.Name, get("lock.client.name"), r.client.Name())
		}
		switch s.Name {
		case "EVALSHA":
			got := strings.Join([]string{get("db.system.name"), get("db.operation.name"), get("server.address") + ":" + get("server.port")}, " ")
			if want := "redis EVALSHA " + r.server.Addr(); got != want {
				t.Errorf("a command's span says %q, want %q", got, want)
			}
		case "lock.acquire":
			leases = append(leases, get("lock.lease")+" "+get("lock.watchdog"))
		}
	}
	if got := strings.Join(leases, ", "); got != "30 true, 3 false" {
		t.Errorf("leases: %s", got)
	}
}

// tenure is for how long an RLock may be passed on inside the process; negative: never.
func tenure(d time.Duration) setting { return func(c *redlatch.Config) { c.Tenure = d } }

// A wait is a span below its acquisition's, which links to the holder's.
func TestSpansContended(t *testing.T) {
	r := newRig(t, tenure(-1))
	l := r.client.RLock("orders:42")
	first := must[redlatch.Hold](t)(l.Lock(t.Context()))
	wait := begin(t, func() {
		h, err := l.Lock(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		unlock(t, h)
	})
	r.untilTried("acquire", 3) // the holder's, the waiter's, and its second when the subscription stands
	unlock(t, first)
	wait()
	r.expect(`
	lock.acquire internal attempts=1 contended=false count=1 name=orders:42 outcome=acquired owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	lock.acquire internal attempts=3 contended=true count=1 holder.owner=A holder.trace_id=lock.acquire(A) name=orders:42 outcome=acquired owner=B type=reentrant wait.duration=~ -> holder:lock.acquire(A)
	  EVALSHA client db.stored_procedure.name=acquire
	  lock.wait internal name=orders:42 outcome=acquired owner=B type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	  EVALSHA client db.stored_procedure.name=acquire
	lock.release internal name=orders:42 owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=release
	lock.release internal name=orders:42 owner=B type=reentrant
	  EVALSHA client db.stored_procedure.name=release
	`)
}

// TestSpansOfThoseInLine: who stands behind others of the process asks nobody,
// and still says for whom it waits.
func TestSpansOfThoseInLine(t *testing.T) {
	r := newRig(t)
	l := r.client.RLock("orders:42")
	first := must[redlatch.Hold](t)(l.Lock(t.Context()))
	head, cancelHead := context.WithCancel(context.Background())
	waitHead := begin(t, func() { _, _ = l.Lock(head) })
	r.untilTried("acquire", 3)
	behind, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if _, err := l.Lock(behind); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	cancelHead()
	waitHead()
	unlock(t, first)
	if got, want := r.tree(), "attempts=0 contended=true error.type=deadline_exceeded holder.owner=A holder.trace_id=lock.acquire(A)"; !strings.Contains(got, want) {
		t.Errorf("no span says %q\n%s", want, got)
	}
}

// A wait that ends says whose the lock was, and is no error of the span's.
func TestSpansTimeout(t *testing.T) {
	r := newRig(t)
	l := r.client.RLock("orders:42")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))
	r.exporter.Reset()
	for _, wait := range []time.Duration{0, 3 * time.Second} {
		if _, err := l.TryLock(t.Context(), wait, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
			t.Error(err)
		}
	}
	r.expect(`
	lock.acquire internal attempts=1 contended=true error.type=not_acquired holder.owner=A holder.trace_id=elsewhere name=orders:42 outcome=busy owner=B type=reentrant wait.limit=0 -> holder:elsewhere
	  EVALSHA client db.stored_procedure.name=acquire
	lock.acquire internal attempts=2 contended=true error.type=not_acquired holder.owner=A holder.trace_id=elsewhere name=orders:42 outcome=timeout owner=C type=reentrant wait.duration=~ wait.limit=3 -> holder:elsewhere
	  EVALSHA client db.stored_procedure.name=acquire
	  lock.wait internal name=orders:42 outcome=timeout owner=C type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	`)
	unlock(t, h)
}

// An acquisition that its ctx ended says so, and is no error of the span's.
func TestSpansCancelled(t *testing.T) {
	r := newRig(t)
	l := r.client.RLock("orders:42")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	wait := begin(t, func() {
		if _, err := l.Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	r.untilTried("acquire", 3)
	cancel()
	wait()
	if _, err := l.Lock(ctx); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	r.expect(`
	lock.acquire internal attempts=1 contended=false count=1 name=orders:42 outcome=acquired owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	lock.acquire internal attempts=2 contended=true error.type=cancelled holder.owner=A holder.trace_id=lock.acquire(A) name=orders:42 outcome=cancelled owner=B type=reentrant wait.duration=~ -> holder:lock.acquire(A)
	  EVALSHA client db.stored_procedure.name=acquire
	  lock.wait internal name=orders:42 outcome=cancelled owner=B type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	lock.acquire internal attempts=0 contended=false error.type=cancelled name=orders:42 outcome=cancelled type=reentrant
	`)
	unlock(t, h)
}

// A re-entry is a span like any, with the count.
func TestSpansReentrant(t *testing.T) {
	r := newRig(t)
	l := r.client.RLock("orders:42")
	outer := must[redlatch.Hold](t)(l.Lock(t.Context()))
	inner := must[redlatch.Hold](t)(l.Lock(outer.Context()))
	unlock(t, inner)
	unlock(t, outer)
	r.expect(`
	lock.acquire internal attempts=1 contended=false count=1 name=orders:42 outcome=acquired owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	lock.acquire internal attempts=1 contended=false count=2 name=orders:42 outcome=acquired owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=reenter
	lock.release internal name=orders:42 owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=release
	lock.release internal name=orders:42 owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=release
	`)
}

// A lost lease is an error of its renewal's span, which links to the acquisition's, and of its
// release's.
func TestSpansLostLease(t *testing.T) {
	r := newRig(t, leaseTime(checked))
	h := must[redlatch.Hold](t)(r.client.RLock("orders:42").Lock(t.Context()))
	r.server.Int(t, "DEL", "orders:42")
	select {
	case <-h.Context().Done():
	case <-time.After(patience):
		t.Fatal("the loss was not noticed")
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	r.untilEnded("lock.renew", 1)
	r.expect(`
	lock.acquire internal attempts=1 contended=false count=1 name=orders:42 outcome=acquired owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	lock.renew internal Error error.type=lease_lost name=orders:42 owner=A type=reentrant -> acquisition:lock.acquire(A)
	lock.release internal Error error.type=lease_lost name=orders:42 owner=A type=reentrant
	`)
}

// Renewals that work are spans if RenewalSpans asks for them.
func TestSpansRenewalsThatWork(t *testing.T) {
	r := newRig(t, leaseTime(checked), func(c *redlatch.Config) { c.Telemetry.RenewalSpans = true })
	h := must[redlatch.Hold](t)(r.client.RLock("orders:42").Lock(t.Context()))
	r.untilEnded("lock.renew", 1)
	unlock(t, h)
	got := r.tree()
	for _, want := range []string{
		"\nlock.renew internal name=orders:42 owner=A type=reentrant -> acquisition:lock.acquire(A)\n",
		"\nEVALSHA client batch.keys=2 db.stored_procedure.name=renew\n", // the lock and its trace
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no span is %q\n%s", want, got)
		}
	}
}

// What the server refuses is an error of the span, with its type.
func TestSpansRedisError(t *testing.T) {
	r := newRig(t)
	r.server.Int(t, "LPUSH", "orders:42", "no lock")
	l := r.client.RLock("orders:42")
	if _, err := l.Lock(t.Context()); err == nil {
		t.Error("acquired a list")
	}
	if _, err := l.State(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(err)
	}
	if _, err := l.ForceUnlock(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(err)
	}
	r.server.Int(t, "DEL", "orders:42")
	r.expect(`
	lock.acquire internal Error attempts=1 contended=false error.type=invalid_name name=orders:42 outcome=error owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	lock.state internal Error error.type=invalid_name name=orders:42 type=reentrant
	  EVALSHA client db.stored_procedure.name=state
	lock.force_unlock internal Error error.type=invalid_name name=orders:42 type=reentrant
	  EVALSHA client db.stored_procedure.name=force_any
	`)
}

// A call that asks no server is a span without commands.
func TestSpansOfCallsThatAskNobody(t *testing.T) {
	r := newRig(t)
	h := must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context()))
	if err := h.Extend(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	unlock(t, h)
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNotHeld) {
		t.Error(err)
	}
	if _, err := r.client.RLock("").Lock(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(err)
	}
	if _, err := r.client.RLock("a").TryLock(t.Context(), -1, 0); !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Error(err)
	}
	if _, err := r.client.RLock("").State(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(err)
	}
	r.client.Close()
	if _, err := r.client.RLock("a").Lock(t.Context()); !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
	r.expect(`
	lock.acquire internal attempts=1 contended=false count=1 name=a outcome=acquired owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=acquire
	lock.extend internal name=a owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=reenter
	lock.release internal name=a owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=release
	lock.release internal Error error.type=not_held name=a owner=A type=reentrant
	lock.acquire internal Error attempts=0 contended=false error.type=invalid_name name= outcome=error type=unknown
	lock.acquire internal Error attempts=0 contended=false error.type=invalid_option name=a outcome=error type=reentrant
	lock.state internal Error error.type=invalid_name name= type=unknown
	lock.acquire internal Error attempts=0 contended=false error.type=closed name=a outcome=error type=reentrant
	`)
}

// The options of spans leave out what they say.
func TestOptionsOfSpans(t *testing.T) {
	t.Run("template and no commands", func(t *testing.T) {
		r := newRig(t, func(c *redlatch.Config) {
			c.Telemetry.LockName = func(name string) string { return strings.TrimRight(name, "0123456789") + "*" }
			c.Telemetry.NoCommandSpans = true
		})
		unlock(t, must[redlatch.Hold](t)(r.client.RLock("orders:42").Lock(t.Context())))
		r.expect(`
		lock.acquire internal attempts=1 contended=false count=1 name=orders:* outcome=acquired owner=A type=reentrant
		lock.release internal name=orders:* owner=A type=reentrant
		`)
	})
	t.Run("no links", func(t *testing.T) {
		r := newRig(t, func(c *redlatch.Config) { c.Telemetry.NoLinks = true })
		h := must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context()))
		if n := r.server.Int(t, "EXISTS", "redlatch_trace:{a}"); n != 0 {
			t.Error("the holder left its trace")
		}
		_, _ = r.client.RLock("a").TryLock(t.Context(), 0, 0)
		unlock(t, h)
		if got := r.tree(); strings.Contains(got, "->") || !strings.Contains(got, "holder.owner=A") {
			t.Errorf("a link, or no holder:\n%s", got)
		}
	})
	t.Run("names that are no text", func(t *testing.T) {
		r := newRig(t)
		name := strings.Repeat("\xff\x00", 512)
		unlock(t, must[redlatch.Hold](t)(r.client.RLock(name).Lock(t.Context())))
		for _, s := range r.exporter.GetSpans() {
			for _, a := range s.Attributes {
				if v := a.Value.String(); strings.Contains(v, "\xff") || len(v) > 1000 {
					t.Errorf("%s: %s has %d bytes, as %q…", s.Name, a.Key, len(v), v[:20])
				}
			}
		}
	})
}
