package telemetry

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
)

// TestSpansFair: each waiter says where in the queue it stood when it came, and
// for whom it waited.
func TestSpansFair(t *testing.T) {
	r := newRig(t)
	l := r.client.FairLock("orders:42")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))
	var waits []func()
	for i := range 3 {
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
	unlock(t, h)
	for _, w := range waits {
		w()
	}
	var got []string
	var met, before tracetest.SpanStub // the first holder, and whoever held it before this one
	told := 0
	for i, s := range r.acquisitions() {
		switch {
		case i == 0:
			met = s
		case attr(s, "lock.attempts") != "1":
			linksTo(t, s, met) // a refresh told it that it has the lock, before the message did
		case i == 1:
			linksTo(t, s, met)
		default:
			told++
			linksTo(t, s, met, before)
			if want := before.SpanContext.TraceID().String(); attr(s, "lock.predecessor.trace_id") != want ||
				attr(s, "lock.predecessor.owner") != attr(before, "lock.owner") {
				t.Errorf("the predecessor of waiter %d is not named: %v", i, s.Attributes)
			}
		}
		before = s
		got = append(got, strings.Join([]string{
			attr(s, "lock.type"), attr(s, "lock.outcome"), attr(s, "lock.contended"), attr(s, "lock.queue.position"),
		}, " "))
	}
	if told == 0 {
		t.Error("no waiter was told of its predecessor")
	}
	want := "fair acquired false , fair acquired true 1, fair acquired true 2, fair acquired true 3"
	if strings.Join(got, ", ") != want {
		t.Errorf("acquisitions: %s, want %s", strings.Join(got, ", "), want)
	}
	r.expectPoints("lock.contentions", map[string]int64{"lock.type=fair": 3})
	r.expectPoints("lock.held", map[string]int64{"lock.type=fair": 0})
}

// TestSpansFairTree: a waiter asks once, and the message of the release is the
// grant, which costs no command.
func TestSpansFairTree(t *testing.T) {
	r := newRig(t)
	l := r.client.FairLock("orders:42")
	h := must[redlatch.Hold](t)(l.Lock(t.Context()))
	wait := begin(t, func() {
		h, err := l.Lock(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		unlock(t, h)
	})
	r.until("it waits", countStarted("lock.wait", 1))
	// The second script to be loaded: it has heard that it is subscribed, and looked once more.
	eventually(t, "it refreshes its place", func() bool { return r.server.CommandStats(t).Calls["eval"] >= 2 })
	unlock(t, h)
	wait()
	r.expect(`
	lock.acquire internal attempts=1 contended=false count=1 name=orders:42 outcome=acquired owner=A type=fair
	  EVALSHA client db.stored_procedure.name=fair_acquire
	lock.acquire internal attempts=1 contended=true count=1 holder.owner=A holder.trace_id=lock.acquire(A) name=orders:42 outcome=acquired owner=B queue.position=1 type=fair wait.duration=~ -> holder:lock.acquire(A)
	  EVALSHA client db.stored_procedure.name=fair_acquire
	  lock.wait internal name=orders:42 outcome=acquired owner=B type=fair
	lock.release internal name=orders:42 owner=A type=fair
	  EVALSHA client db.stored_procedure.name=fair_release
	lock.release internal name=orders:42 owner=B type=fair
	  EVALSHA client db.stored_procedure.name=fair_release
	`)
}

// The spans of a read-write lock say which mode it was, and who was inside.
func TestSpansReadWrite(t *testing.T) {
	r := newRig(t)
	rw := r.client.ReadWriteLock("orders:42")
	write := must[redlatch.Hold](t)(rw.WriteLock().Lock(t.Context()))
	if _, err := rw.ReadLock().TryLock(t.Context(), 0, 0); err == nil {
		t.Error("a reader entered beside the writer")
	}
	unlock(t, write)
	read := must[redlatch.Hold](t)(rw.ReadLock().Lock(t.Context()))
	unlock(t, read)
	got := r.tree()
	for _, want := range []string{
		"lock.acquire internal attempts=1 contended=false count=1 name=orders:42 outcome=acquired owner=A type=write\n",
		"contended=true error.type=not_acquired holder.owner=A holder.trace_id=lock.acquire(A) name=orders:42 outcome=busy owner=B type=read wait.limit=0 -> holder:lock.acquire(A)\n",
		"lock.release internal name=orders:42 owner=A type=write\n",
		"lock.acquire internal attempts=1 contended=false count=1 name=orders:42 outcome=acquired owner=C type=read\n",
		"lock.release internal name=orders:42 owner=C type=read\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no span is %q\n%s", want, got)
		}
	}
	r.expectPoints("lock.held", map[string]int64{"lock.type=read": 0, "lock.type=write": 0})
}

// The span of a MultiLock is the parent of one child per member. Plain locks of one client are one
// command, which is the whole's.
func TestSpansMultiLock(t *testing.T) {
	r := newRig(t)
	m := redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("b"))
	h := must[redlatch.Hold](t)(m.Lock(t.Context()))
	unlock(t, h)
	r.expect(`
	lock.acquire internal attempts=1 contended=false count=1 name=[a b] outcome=acquired owner=A type=multi
	  lock.acquire internal attempts=1 contended=false count=1 name=a outcome=acquired owner=A type=reentrant
	  lock.acquire internal attempts=1 contended=false count=1 name=b outcome=acquired owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=group_acquire
	lock.release internal name=[a b] owner=A type=multi
	  lock.release internal name=a owner=A type=reentrant
	  lock.release internal name=b owner=A type=reentrant
	  EVALSHA client db.stored_procedure.name=group_release
	`)
	r.expectPoints("lock.held", map[string]int64{"lock.type=multi": 0, "lock.type=reentrant": 0})
	r.expectPoints("lock.hold.duration", map[string]int64{
		"lock.outcome=released,lock.type=multi": 1, "lock.outcome=released,lock.type=reentrant": 2,
	})
}

// TestSpansOfAWholesCalls: every call on a MultiLock or its hold is the parent of its members', and
// those on the hold say whose it is.
func TestSpansOfAWholesCalls(t *testing.T) {
	r := newRig(t)
	m := redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("b"))
	h := must[redlatch.Hold](t)(m.Lock(t.Context()))
	expect := func(call string, want ...string) {
		t.Helper()
		_, got, _ := strings.Cut(r.tree(), "name=group_acquire\n")
		for _, before := range []string{"\nlock.", "\n  lock."} { // members are called at the same time
			got = strings.ReplaceAll(got, before, "\n"+before)
		}
		parts := strings.Split(strings.TrimSpace(got), "\n\n")
		// A hold that was forced away is looked at beside the call.
		parts = slices.DeleteFunc(parts, func(p string) bool { return strings.HasPrefix(p, "lock.renew ") })
		parts = parts[max(0, len(parts)-len(want)):]
		if len(parts) > 1 {
			slices.Sort(parts[1:])
		}
		if !slices.Equal(parts, want) {
			t.Errorf("%s: the last spans are\n%s\nand should be\n%s", call, strings.Join(parts, "\n"), strings.Join(want, "\n"))
		}
	}
	command := func(script string) string { return "\n    EVALSHA client db.stored_procedure.name=" + script }

	if err := h.Extend(t.Context(), time.Minute); err != nil {
		t.Error(err)
	}
	expect("Extend", "lock.extend internal name=[a b] owner=A type=multi",
		"  lock.extend internal name=a owner=A type=reentrant"+command("reenter"),
		"  lock.extend internal name=b owner=A type=reentrant"+command("reenter"))
	must[redlatch.State](t)(m.State(t.Context()))
	expect("State", "lock.state internal name=[a b] type=multi",
		"  lock.state internal name=a type=reentrant"+command("state"),
		"  lock.state internal name=b type=reentrant"+command("state"))
	if was, err := m.ForceUnlock(t.Context()); !was || err != nil {
		t.Error(was, err)
	}
	expect("ForceUnlock", "lock.force_unlock internal name=[a b] type=multi",
		"  lock.force_unlock internal count=1 name=a owner=A type=reentrant"+command("force_any"),
		"  lock.force_unlock internal count=1 name=b owner=A type=reentrant"+command("force_any"))
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrNotHeld) {
		t.Error(err)
	}
	expect("a second Unlock", "lock.release internal Error error.type=not_held name=[a b] owner=A type=multi")

	bad := redlatch.MultiLock(r.client.RLock("a"), nil)
	if _, err := bad.State(t.Context()); !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Error(err)
	}
	expect("State of what is no lock", "lock.state internal Error error.type=invalid_option name=[a ?] type=multi")
	if _, err := bad.ForceUnlock(t.Context()); !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Error(err)
	}
	expect("ForceUnlock of it", "lock.force_unlock internal Error error.type=invalid_option name=[a ?] type=multi")
}

// The span of the member that was busy says whose it was.
func TestSpansMultiLockContended(t *testing.T) {
	r := newRig(t)
	held := must[redlatch.Hold](t)(r.client.RLock("b").Lock(t.Context()))
	m := redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("b"), r.client.FairLock("c"))
	if _, err := m.TryLock(t.Context(), 0, 0); err == nil {
		t.Error("acquired with a busy member")
	}
	unlock(t, held)
	got := r.tree()
	_, rest, _ := strings.Cut(got, "name=b")
	_, rest, _ = strings.Cut(rest, "name=[a b c]")
	for _, want := range []string{
		"lock.acquire internal attempts=1 contended=true error.type=not_acquired holder.owner=A holder.trace_id=lock.acquire(A) " +
			"name=[a b c] outcome=busy owner=B type=multi wait.limit=0 -> holder:lock.acquire(A)\n",
		"\n  lock.acquire internal attempts=1 contended=false name=a outcome=free ",
		"\n  lock.acquire internal attempts=1 contended=true error.type=not_acquired holder.owner=A holder.trace_id=lock.acquire(A) name=b ",
		"\n  lock.acquire internal attempts=1 contended=false name=c outcome=free ",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no span is %q\n%s", want, got)
		}
	}
	if n := strings.Count(rest, "  lock.acquire internal"); n != 3 {
		t.Errorf("%d children, want one per member\n%s", n, got)
	}
	r.expectPoints("lock.held", map[string]int64{"lock.type=fair": 0, "lock.type=reentrant": 0})
}

// Over all rounds each member of a MultiLock has one child, with the outcome that it had in the
// end; the whole says whom it waited for.
func TestSpansMultiLockWaits(t *testing.T) {
	r := newRig(t)
	held := must[redlatch.Hold](t)(r.client.RLock("b").Lock(t.Context()))
	m := redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("b"), r.client.FairLock("c"))
	wait := begin(t, func() {
		h, err := m.Lock(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		unlock(t, h)
	})
	r.until("a member waits, and the whole", countStarted("lock.wait", 2))
	unlock(t, held)
	wait()
	got := r.tree()
	_, got, _ = strings.Cut(got, "name=b ")
	for _, want := range []string{
		"\nlock.acquire internal attempts=2 contended=true count=1 holder.owner=A holder.trace_id=lock.acquire(A) " +
			"name=[a b c] outcome=acquired owner=B type=multi wait.duration=~ -> holder:lock.acquire(A)\n",
		" contended=false count=1 name=a outcome=acquired owner=B type=reentrant\n",
		" contended=true count=1 holder.owner=A holder.trace_id=lock.acquire(A) name=b outcome=acquired owner=B " +
			"type=reentrant wait.duration=~ -> holder:lock.acquire(A)\n",
		" contended=false count=1 name=c outcome=acquired ",
		"\n  lock.wait internal name=[a b c] outcome=acquired owner=B type=multi\n",
		"\n    lock.wait internal name=b outcome=acquired owner=B type=reentrant\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("no span is %q\n%s", want, got)
		}
	}
	if n := strings.Count(got, "\n  lock.acquire internal"); n != 3 {
		t.Errorf("%d children, want one per member\n%s", n, got)
	}
	if strings.Contains(got, "outcome=timeout") || strings.Contains(got, "not_acquired") {
		t.Errorf("something of what was acquired looks given up\n%s", got)
	}
	r.expectPoints("lock.waiting", map[string]int64{"lock.type=reentrant": 0, "lock.type=multi": 0})
}

// TestSpansMultiLockGivesUp: a wait that ends in vain says whose it was, as the acquisition does.
func TestSpansMultiLockGivesUp(t *testing.T) {
	r := newRig(t)
	held := must[redlatch.Hold](t)(r.client.RLock("b").Lock(t.Context()))
	r.exporter.Reset()
	m := redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("b"), r.client.FairLock("c"))
	ctx, cancel := context.WithCancel(t.Context())
	wait := begin(t, func() {
		if _, err := m.Lock(ctx); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
	r.until("a member waits, and the whole", countStarted("lock.wait", 2))
	cancel()
	wait()
	unlock(t, held)
	owners := map[string]string{}
	for _, name := range []string{"lock.acquire", "lock.wait"} {
		for _, s := range r.exporter.GetSpans() {
			of := attr(s, "lock.name")
			if s.Name != name || of != "b" && of != "[a b c]" {
				continue
			}
			if owner := attr(s, "lock.owner"); owner == "" || name == "lock.wait" && owner != owners[of] {
				t.Errorf("%s of %s: owner %q, the acquisition's %q", name, of, owner, owners[of])
			}
			owners[of] = attr(s, "lock.owner")
		}
	}
	if len(owners) != 2 {
		t.Errorf("%v\n%s", owners, r.tree())
	}
}

// A quorum that waits has one child per copy, over all rounds, and says whom it waited for.
func TestSpansQuorumWaits(t *testing.T) {
	r := newRig(t)
	other := newRig(t)
	other.tracing, other.metering = r.tracing, r.metering
	second := other.open()
	held := must[redlatch.Hold](t)(r.client.RLock("a").Lock(t.Context()))
	wait := begin(t, func() {
		h, err := redlatch.QuorumLock(r.client.RLock("a"), second.RLock("a")).Lock(context.Background())
		if err != nil {
			t.Error(err)
			return
		}
		unlock(t, h)
	})
	r.until("it waits", countStarted("lock.wait", 1))
	unlock(t, held)
	wait()
	got := r.tree()
	_, got, _ = strings.Cut(got, "type=multi")
	whole, children, _ := strings.Cut(got, "\n")
	if !strings.Contains(whole, "wait.duration=~ -> holder:lock.acquire(A)") {
		t.Errorf("the whole does not say whom it waited for: %s", whole)
	}
	children, _, _ = strings.Cut(children, "\nlock.release")
	acquired := strings.Count(children, "name=a outcome=acquired owner=") // with the wait
	if n := strings.Count("\n"+children, "\n  lock.acquire internal"); n != 2 || acquired != 3 {
		t.Errorf("%d children, want one per copy, acquired\n%s", n, children)
	}
	owners := map[string]string{}
	for _, s := range r.exporter.GetSpans() {
		if attr(s, "lock.type") == "multi" {
			owners[s.Name] = attr(s, "lock.owner")
		}
	}
	if owner := owners["lock.acquire"]; owner == "" || owners["lock.wait"] != owner || owners["lock.release"] != owner {
		t.Errorf("the owners of the whole's spans: %v", owners)
	}
}

// The span of a quorum has one child per copy.
func TestSpansQuorum(t *testing.T) {
	r := newRig(t)
	copies := []redlatch.Member{r.client.RLock("a")}
	for range 2 {
		other := newRig(t)
		other.tracing, other.metering = r.tracing, r.metering
		copies = append(copies, other.open().RLock("a"))
	}
	h := must[redlatch.Hold](t)(redlatch.QuorumLock(copies...).Lock(t.Context()))
	unlock(t, h)
	r.client.Close() // the third copy's answer may come late
	got := r.tree()
	if n := strings.Count(got, "\n  lock.acquire internal attempts=1 contended=false count=1 name=a outcome=acquired"); n != 3 {
		t.Errorf("%d children, want 3\n%s", n, got)
	}
	if !strings.HasPrefix(got, "lock.acquire internal attempts=1 contended=false count=1 name=a outcome=acquired owner=A type=multi\n") {
		t.Errorf("the whole is not the parent\n%s", got)
	}
}
