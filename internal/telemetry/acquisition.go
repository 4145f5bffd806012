package telemetry

import (
	"context"
	"encoding/hex"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.opentelemetry.io/otel/trace"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// acquisition implements observe.Acquisition. A member of a MultiLock has one for
// all the rounds in which it is tried, which ends with the whole.
type acquisition struct {
	o    *observer
	lock observe.Lock
	ctx  context.Context // with the span

	traced bool
	span   trace.Span

	measured bool
	began    time.Time
	place    place
	once     bool // it does not wait

	contended atomic.Bool
	whole     *acquisition // what this is a member of

	mu        sync.Mutex // guards the rest: of a member two rounds may overlap, and a whole hears of all members
	wait      trace.Span // nil: it does not wait
	waitBegan time.Time
	waited    time.Duration
	attempts  int
	holder    string // seen last
	others    bool   // it is not the first
	linked    []trace.SpanID
	left      string // what it left, for the whole
	links     int
	last      trace.Link // of the holder seen last, while there is no room for more
	position  int        // seen last
	moves     int
	result    observe.Result
	ended     time.Time

	open    int            // of a member: tries under way
	over    bool           // the observation has ended, or that of the whole
	free    bool           // of a member: the whole was not acquired
	members []*acquisition // of a whole
	blocker [2]string      // of a whole: who held a busy member, in case none is waited for
}

// Bounds of what one span tells: locks can pass through many hands while one
// acquisition waits.
const (
	maxLinks = 8
	maxMoves = 32
)

// Trace implements observe.Acquisition.
func (a *acquisition) Trace() string {
	if !a.traced || a.o.tracing.opt.NoLinks {
		return ""
	}
	sc := a.span.SpanContext()
	if !sc.IsSampled() {
		return "-"
	}
	return "00-" + sc.TraceID().String() + "-" + sc.SpanID().String() + "-01"
}

// Attempt implements observe.Acquisition.
func (a *acquisition) Attempt() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.attempts++
}

// contend counts the acquisition as contended, once.
func (a *acquisition) contend() {
	if a.contended.CompareAndSwap(false, true) {
		if a.measured {
			a.o.metrics.contended(a.ctx, a.lock)
		}
		if a.whole != nil { // members are tried at the same time
			a.whole.contend()
		}
	}
}

// Busy implements observe.Acquisition. The whole is told of the member that is
// waited for, or else of the first that was busy.
func (a *acquisition) Busy(holder, left string, position int) {
	defer a.o.guard.Recover()
	a.contend()
	if !a.traced {
		return
	}
	waits := a.busy(holder, left, position)
	if a.whole == nil || holder == "" {
		return
	}
	if waits {
		a.whole.Busy(holder, left, 0)
		return
	}
	for w := a.whole; w != nil; w = w.whole {
		w.mu.Lock()
		if w.blocker[0] == "" {
			w.blocker = [2]string{holder, left}
		}
		w.mu.Unlock()
	}
}

// busy notes who holds the lock, and reports whether the acquisition waits.
func (a *acquisition) busy(holder, left string, position int) (waits bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.busyLocked(holder, left, position)
	return a.wait != nil
}

func (a *acquisition) busyLocked(holder, left string, position int) {
	if position > 0 && position != a.position {
		a.moved(position)
	}
	sc, ok := parseTrace(left, holder)
	if holder == "" || holder == a.holder && (!ok || left == a.left) || ok && slices.Contains(a.linked, sc.SpanID()) {
		return // told already
	}
	if a.holder == "" { // the one that it met; those that follow are links
		a.span.SetAttributes(attribute.String("lock.holder.owner", clean(holder)))
	}
	a.others = a.holder != "" && (a.holder != holder || a.left != "")
	a.holder, a.left, a.last = holder, left, trace.Link{}
	if !ok {
		return
	}
	if !a.others {
		// Some viewers do not show what a link points to, so say it twice.
		a.span.SetAttributes(attribute.String("lock.holder.trace_id", sc.TraceID().String()))
	}
	a.last = trace.Link{SpanContext: sc, Attributes: []attribute.KeyValue{
		attribute.String("lock.link", "holder"), attribute.String("lock.holder.owner", clean(holder)),
	}}
	if a.links++; a.links < maxLinks {
		a.linked = append(a.linked, sc.SpanID())
		a.span.AddLink(a.last)
	}
}

// predecessorLocked tells of the holder seen last: for one that acquired, whom it waited
// for in the end. It has the last of the links, and names of its own, since links are
// hard to tell apart in some viewers.
func (a *acquisition) predecessorLocked() {
	if !a.others {
		return
	}
	a.span.SetAttributes(attribute.String("lock.predecessor.owner", clean(a.holder)))
	if !a.last.SpanContext.IsValid() {
		return
	}
	a.span.SetAttributes(attribute.String("lock.predecessor.trace_id", a.last.SpanContext.TraceID().String()))
	if a.links >= maxLinks {
		a.span.AddLink(a.last)
	}
}

// moved notes a new place in the queue: the first as an attribute, the next as
// events on the bar of the wait.
func (a *acquisition) moved(position int) {
	at := attribute.Int("lock.queue.position", position)
	if a.position == 0 {
		a.span.SetAttributes(at)
	} else if a.wait != nil && a.moves < maxMoves {
		a.moves++
		a.wait.AddEvent("lock.queue.moved", trace.WithAttributes(at))
	}
	a.position = position
}

// parseTrace reads "<owner> <traceparent>" and checks that it is the holder's:
// it may be what an earlier one left.
func parseTrace(left, holder string) (trace.SpanContext, bool) {
	owner, parent, ok := strings.Cut(left, " ")
	part := strings.Split(parent, "-")
	if !ok || owner != holder || len(part) != 4 {
		return trace.SpanContext{}, false
	}
	var tid trace.TraceID
	var sid trace.SpanID
	if len(part[1]) != 2*len(tid) || len(part[2]) != 2*len(sid) {
		return trace.SpanContext{}, false
	}
	if _, err := hex.Decode(tid[:], []byte(part[1])); err != nil {
		return trace.SpanContext{}, false
	}
	if _, err := hex.Decode(sid[:], []byte(part[2])); err != nil {
		return trace.SpanContext{}, false
	}
	sc := trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: tid, SpanID: sid, TraceFlags: trace.FlagsSampled, Remote: true,
	})
	return sc, sc.IsValid()
}

// Wait implements observe.Acquisition. The whole waits with the first member that
// does.
func (a *acquisition) Wait() {
	defer a.o.guard.Recover()
	a.contend()
	a.mu.Lock()
	first := a.waitBegan.IsZero() && (!a.over || a.open > 0) // a whole may hear of a member when it has ended
	if first {
		a.waitBegan = time.Now()
	}
	holder, left := a.holder, a.left
	a.mu.Unlock()
	if !first {
		return
	}
	if a.measured {
		a.o.metrics.waiting(a, 1)
	}
	if a.traced {
		a.startWait()
	}
	if a.whole != nil {
		a.whole.Wait()
		if holder != "" {
			a.whole.Busy(holder, left, 0)
		}
	}
}

// startWait begins the bar of the wait. It calls code of the user's, so it has not the mutex, which the
// members of a whole need; the wait may be over by then.
func (a *acquisition) startWait() {
	t := a.o.tracing
	_, span := t.tracer.Start(a.ctx, "lock.wait", t.internal...)
	span.SetAttributes(t.common(a.lock)...)
	a.mu.Lock()
	waits := !a.waitBegan.IsZero()
	if waits {
		a.wait = span
	}
	a.mu.Unlock()
	if !waits {
		span.End()
	}
}

// Link implements observe.Acquisition.
func (a *acquisition) Link() any {
	if !a.traced {
		return nil
	}
	return a.span.SpanContext()
}

// End implements observe.Acquisition. A member's try has ended: there may be more.
func (a *acquisition) End(r observe.Result) {
	defer a.o.guard.Recover()
	a.mu.Lock()
	a.result, a.ended = r, time.Now()
	a.open--
	waited := !a.waitBegan.IsZero()
	if waited {
		a.waited += a.ended.Sub(a.waitBegan)
		a.waitBegan = time.Time{}
	}
	wait, owner := a.wait, a.ownerLocked()
	a.wait = nil
	a.over = a.over || a.whole == nil
	done := a.over && a.open == 0
	a.mu.Unlock()
	if done {
		defer a.finish() // even if what follows panics
	}
	if waited && a.measured {
		a.o.metrics.waiting(a, -1)
	}
	if wait != nil {
		wait.SetAttributes(attribute.String("lock.outcome", outcome(r.Err)))
		if owner != "" {
			wait.SetAttributes(attribute.String("lock.owner", owner))
		}
		wait.End()
	}
}

// again begins another try of a member; false: the whole has ended.
func (a *acquisition) again() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.over {
		a.open++
	}
	return !a.over
}

// member finds the observation of a member, or keeps fresh as that; nil: the whole
// has ended.
func (a *acquisition) member(o *observer, l observe.Lock, fresh *acquisition) *acquisition {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.over {
		return nil
	}
	for _, m := range a.members {
		if m.o == o && m.lock == l {
			return m
		}
	}
	if fresh != nil {
		fresh.whole = a
		a.members = append(a.members, fresh)
	}
	return fresh
}

// finish ends the span and records the acquisition, and those of its members that
// are not under way any more.
func (a *acquisition) finish() {
	a.mu.Lock()
	r := a.result
	how := outcome(r.Err)
	if a.free && r.Err == nil || r.Free {
		how, r.Err = "free", nil
	} else if how == "timeout" && a.tries() {
		how = "busy"
	}
	a.over = true
	members := a.members
	r.Owner = a.ownerLocked()
	var end func()
	if a.traced {
		end = a.endSpanLocked(r, how)
	}
	a.mu.Unlock()
	defer finishMembers(members, r.Err != nil) // even if what follows panics
	if end != nil {
		end()
	}
	if a.measured {
		if len(members) > 0 { // the last of them may be telling it to wait
			a.o.metrics.leave(a, true)
		}
		a.o.metrics.acquired(a, how, r.Err)
	}
}

// tries reports whether the acquisition, or the whole that it is a member of, does not wait.
func (a *acquisition) tries() bool {
	for a.whole != nil {
		a = a.whole
	}
	return a.once
}

// finishMembers ends those of a whole that are not under way any more.
func finishMembers(members []*acquisition, free bool) {
	for _, m := range members {
		m.mu.Lock()
		m.over, m.free = true, free
		done := m.open == 0
		m.mu.Unlock()
		if done {
			m.finish()
		}
	}
}

func (a *acquisition) owner() string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ownerLocked()
}

// ownerLocked is who asks; for a whole that is not held, the first member's.
func (a *acquisition) ownerLocked() string {
	if a.result.Owner == "" && len(a.members) > 0 {
		return a.members[0].owner()
	}
	return a.result.Owner
}

// endSpanLocked says on the span what the acquisition came to, and returns what ends it: that calls
// the user's code.
func (a *acquisition) endSpanLocked(r observe.Result, how string) (end func()) {
	if a.holder == "" && a.blocker[0] != "" {
		a.busyLocked(a.blocker[0], a.blocker[1], 0)
	}
	a.span.SetAttributes(
		attribute.String("lock.outcome", how),
		attribute.Bool("lock.contended", a.contended.Load()),
		attribute.Int("lock.attempts", a.attempts),
	)
	if r.Owner != "" {
		a.span.SetAttributes(attribute.String("lock.owner", r.Owner))
	}
	a.predecessorLocked()
	if a.waited > 0 {
		a.span.SetAttributes(attribute.Float64("lock.wait.duration", a.waited.Seconds()))
	}
	var at []trace.SpanEndOption
	if a.whole != nil {
		at = append(at, trace.WithTimestamp(a.ended))
	}
	switch {
	case how == "free":
	case r.Err == nil:
		a.span.SetAttributes(attribute.Int("lock.count", r.Count))
		if r.Token > 0 {
			a.span.SetAttributes(attribute.Int64("lock.fencing_token", int64(r.Token))) // #nosec G115 -- microseconds of this century
		}
	case how == "error" || how == "lost":
		return func() { a.o.tracing.end(a.span, r.Err, at...) }
	default: // busy, or not wanted any more: what was asked for, no fault
		a.span.SetAttributes(semconv.ErrorTypeKey.String(errorType(r.Err)))
	}
	return func() { a.span.End(at...) }
}

// outcome names what an acquisition came to.
func outcome(err error) string {
	switch {
	case err == nil:
		return "acquired"
	case errors.Is(err, lock.ErrLeaseLost):
		return "lost"
	case !observe.Waited(err):
		return "error"
	case errors.Is(err, context.Canceled):
		return "cancelled"
	case errors.Is(err, lock.ErrUnavailable): // the wait ended, but not because the lock was busy
		return "error"
	}
	return "timeout"
}
