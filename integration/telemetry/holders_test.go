package telemetry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// acquisitions are the spans of that name, in the order of their ends.
func (r *rig) acquisitions() []tracetest.SpanStub {
	return slices.DeleteFunc(r.exporter.GetSpans(), func(s tracetest.SpanStub) bool { return s.Name != "lock.acquire" })
}

// linksTo checks where a span's links lead, in their order.
func linksTo(t *testing.T, s tracetest.SpanStub, want ...tracetest.SpanStub) {
	t.Helper()
	var got, to []string
	for _, l := range s.Links {
		got = append(got, l.SpanContext.SpanID().String())
	}
	for _, w := range want {
		to = append(to, w.SpanContext.SpanID().String())
	}
	if !slices.Equal(got, to) {
		t.Errorf("%s links to %v, want %v", attr(s, "lock.owner"), got, to)
	}
}

// TestHoldersInTurn: the last in a process's line asks nobody until it is its turn,
// and links all the same to those who held the lock while it waited: the first of
// them and the last ones, eight at most. That does not depend on how the lock goes from
// one to the next: through the server, inside the process, or now so and now so.
func TestHoldersInTurn(t *testing.T) {
	for how, d := range map[string]time.Duration{"released": -1, "passed on": 5 * time.Second, "both": 0} {
		t.Run(how, func(t *testing.T) {
			passed := holdersInTurn(t, newRig(t, leaseTime(time.Minute), tenure(d)))
			if d < 0 && passed > 0 || d > 0 && passed == 0 {
				t.Errorf("%d acquisitions sent no command", passed)
			}
		})
	}
}

func holdersInTurn(t *testing.T, r *rig) (passed int) {
	const waiters = 13
	l := r.client.RLock("orders:42")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))
	var waits []func()
	for i := range waiters {
		waits = append(waits, begin(t, func() {
			h, err := l.Lock(context.Background())
			if err != nil {
				t.Error(err)
				return
			}
			unlock(t, h)
		}))
		r.until("it waits", countStarted("lock.wait", i+1))
	}
	r.untilTried("acquire", 3)                           // the first waiter has seen the holder, again when its subscription stood
	for testbed.GoroutinesIn("(*acquisition).try") > 0 { // and has read that answer
		time.Sleep(time.Millisecond)
	}
	unlock(t, h)
	for _, w := range waits {
		w()
	}
	spans := r.acquisitions()
	if len(spans) != waiters+1 {
		t.Fatalf("%d acquisitions", len(spans))
	}
	linksTo(t, spans[1], spans[0])
	linksTo(t, spans[3], spans[0], spans[1], spans[2])
	last := spans[waiters]
	if len(last.Links) != 8 {
		t.Errorf("the last in line has %d links, want 8", len(last.Links))
	}
	if to := last.Links[0].SpanContext.SpanID(); to != spans[0].SpanContext.SpanID() {
		t.Error("the first link does not lead to the holder that it met")
	}
	before := spans[waiters-1].SpanContext
	if to := last.Links[len(last.Links)-1].SpanContext; to.SpanID() != before.SpanID() ||
		attr(last, "lock.predecessor.trace_id") != before.TraceID().String() {
		t.Error("the last link, or lock.predecessor.trace_id, does not lead to the predecessor")
	}
	if attr(last, "lock.holder.trace_id") != spans[0].SpanContext.TraceID().String() {
		t.Error("lock.holder.trace_id is not that of the holder that it met")
	}
	for _, s := range spans {
		if attr(s, "lock.attempts") == "0" {
			passed++
		}
	}
	return passed
}

// TestAWriterLinksToAReader: with several readers inside a writer names one whose
// trace is known, and still does when the one that came last has left.
func TestAWriterLinksToAReader(t *testing.T) {
	r := newRig(t)
	l := r.client.ReadWriteLock("orders:42")
	var readers []redlatch.Hold
	for i := range 3 { // the first one's lease ends last
		readers = append(readers, must[redlatch.Hold](t)(l.ReadLock().TryLock(t.Context(), 0, time.Duration(90-i)*time.Second)))
	}
	inside := r.acquisitions()
	for left := len(readers); left > 0; left-- {
		r.exporter.Reset()
		if _, err := l.WriteLock().TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
			t.Fatal(err)
		}
		s := r.acquisitions()[0]
		linksTo(t, s, inside[0])
		if attr(s, "lock.holder.trace_id") != inside[0].SpanContext.TraceID().String() ||
			attr(s, "lock.holder.owner") != attr(inside[0], "lock.owner") {
			t.Errorf("with %d readers: %v", left, s.Attributes)
		}
		unlock(t, readers[left-1])
	}
	if n := r.server.Int(t, "EXISTS", "redlatch_trace:{orders:42}"); n != 0 {
		t.Error("a trace is left")
	}

	// Where the one whose lease ends last is not traced, another one is named.
	never := r.open(neverSampled)
	h := must[redlatch.Hold](t)(l.ReadLock().Lock(t.Context()))
	other := must[redlatch.Hold](t)(never.ReadWriteLock("orders:42").ReadLock().TryLock(t.Context(), 0, 5*time.Minute))
	reader := r.acquisitions()[0]
	for _, s := range r.acquisitions() {
		if attr(s, "lock.type") == "read" {
			reader = s
		}
	}
	r.exporter.Reset()
	_, _ = l.WriteLock().TryLock(t.Context(), 0, 0)
	linksTo(t, r.acquisitions()[0], reader)
	unlock(t, other)
	unlock(t, h)
}

// Fixed leases that end as planned are no lost locks.
func TestFixedLeasesThatEndAsPlanned(t *testing.T) {
	r := newRig(t)
	const lease = time.Second
	h := must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context(), redlatch.WithLease(lease)))
	m := must[redlatch.Hold](t)(redlatch.MultiLock(r.client.RLock("b"), r.client.RLock("c")).Lock(t.Context(), redlatch.WithLease(lease)))
	<-h.Context().Done()
	<-m.Context().Done()
	if err := context.Cause(h.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	eventually(t, "they are counted out", func() bool {
		held := points(t, r.collect()["lock.held"])
		return held["lock.type=reentrant"] == 0 && held["lock.type=multi"] == 0
	})
	r.expectPoints("lock.leases.lost", map[string]int64{"lock.type=reentrant": 0, "lock.type=multi": 0})
	r.expectPoints("lock.hold.duration", map[string]int64{
		"lock.outcome=expired,lock.type=reentrant": 3, "lock.outcome=expired,lock.type=multi": 1,
	})
	if lines := r.log.lines(t, "lease lost"); len(lines) > 0 {
		t.Errorf("logged as lost: %v", lines)
	}
	// One that is taken away before its time is.
	h = must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context(), redlatch.WithLease(time.Minute)))
	r.server.Int(t, "DEL", "a")
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	r.expectPoints("lock.leases.lost", map[string]int64{"lock.type=reentrant": 1, "lock.type=multi": 0})
}

// TestStatusesUseTheTemplate: what an error says of a lock's name goes through
// Telemetry.LockName as the attributes do.
func TestStatusesUseTheTemplate(t *testing.T) {
	r := newRig(t, leaseTime(checked), func(c *redlatch.Config) {
		c.Telemetry.LockName = func(name string) string { return strings.ReplaceAll(name, "4711", "*") }
	})
	h := must[redlatch.Hold](t)(r.client.RLock("order:4711").Lock(t.Context()))
	r.server.Int(t, "DEL", "order:4711")
	<-h.Context().Done()
	_ = h.Unlock(t.Context())
	m := must[redlatch.Hold](t)(redlatch.MultiLock(r.client.RLock("x:4711"), r.client.FairLock("y:4711")).Lock(t.Context()))
	r.server.Int(t, "DEL", "x:4711", "y:4711")
	_ = m.Unlock(t.Context())
	r.server.Int(t, "LPUSH", "list:4711", "no lock")
	for _, name := range []string{"list:4711", "{4711}"} {
		_, _ = r.client.RLock(name).Lock(t.Context())
		_, _ = r.client.RLock(name).State(t.Context())
		_, _ = r.client.RLock(name).ForceUnlock(t.Context())
	}
	told := 0
	for _, s := range r.exporter.GetSpans() {
		if s.Status.Code == codes.Error {
			told += strings.Count(s.Status.Description, "*")
		}
		if all := fmt.Sprint(s.Status, s.Attributes); strings.Contains(all, "4711") {
			t.Errorf("%s tells the name: %s", s.Name, all)
		}
	}
	if told < 8 {
		t.Errorf("%d statuses name a lock", told)
	}
}

// The span of an Extend says its lease, that of a forced unlock whom it evicted.
func TestOperationsSayWhat(t *testing.T) {
	r := newRig(t)
	l := r.client.RLock("a")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))
	owner := attr(r.acquisitions()[0], "lock.owner")
	if err := h.Extend(t.Context(), 90*time.Second); err != nil {
		t.Fatal(err)
	}
	if ok, err := l.ForceUnlock(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	h2 := must[redlatch.Hold](t)(l.Lock(t.Context()))
	owner2 := attr(r.acquisitions()[1], "lock.owner")
	if ok, err := r.client.ForceUnlock(t.Context(), "a"); !ok || err != nil {
		t.Fatal(ok, err)
	}
	if ok, err := r.client.ForceUnlock(t.Context(), "a"); ok || err != nil {
		t.Fatal(ok, err)
	}
	_, _ = h.Unlock(t.Context()), h2.Unlock(t.Context())
	var got []string
	for _, s := range r.exporter.GetSpans() {
		switch s.Name {
		case "lock.extend":
			got = append(got, "extend "+attr(s, "lock.lease"))
		case "lock.force_unlock":
			got = append(got, "force "+attr(s, "lock.owner")+" "+attr(s, "lock.count"))
		}
	}
	if want := []string{"extend 90", "force " + owner + " 1", "force " + owner2 + " 1", "force  "}; !slices.Equal(got, want) {
		t.Errorf("%q, want %q", got, want)
	}
}

// Types of errors are in lower case, also those of commands.
func TestErrorTypesAreLowerCase(t *testing.T) {
	r := newRig(t)
	r.server.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if _, err := r.client.RLock("a").TryLock(t.Context(), 0, 0); err == nil {
		t.Error("acquired without memory")
	}
	r.server.Do(t, "CONFIG", "SET", "maxmemory", "0")
	for _, s := range r.exporter.GetSpans() {
		if s.Name == "EVALSHA" && (attr(s, "error.type") != "oom" || attr(s, "db.response.status_code") != "OOM") {
			t.Errorf("%v", s.Attributes)
		}
	}
}
