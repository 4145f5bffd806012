package telemetry

import (
	"context"
	"errors"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"

	"go.opentelemetry.io/otel/codes"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
)

// A forced unlock leaves a span, with the owner that it was for, and a log line that says who did
// it to whom; a refused one says that, too.
func TestForcedUnlockIsSeen(t *testing.T) {
	r := newRig(t, func(c *redlatch.Config) { c.Name = "ops/ada" })
	ctx := t.Context()
	h := must[redlatch.Hold](t)(r.client.FairLock("orders:42").Lock(ctx))
	in := must[redlatch.Inspection](t)(r.client.Inspect(ctx, "orders:42"))
	owner := in.Holders[0].Owner
	acquired := ""
	for _, s := range r.exporter.GetSpans() {
		if s.Name == "lock.acquire" {
			acquired = s.SpanContext.TraceID().String()
		}
	}
	if in.Holders[0].TraceID != acquired || acquired == "" {
		t.Errorf("the holder's trace is %q, the acquisition's %q", in.Holders[0].TraceID, acquired)
	}
	if _, err := r.client.ForceUnlock(ctx, "orders:42", redlatch.IfOwner("nobody")); !errors.Is(err, redlatch.ErrOtherOwner) {
		t.Error(err)
	}
	if was, err := r.client.ForceUnlock(ctx, "orders:42", redlatch.IfOwner(owner)); !was || err != nil {
		t.Error(was, err)
	}
	_ = h.Unlock(ctx)

	var spans []string
	for _, s := range r.exporter.GetSpans() {
		if s.Name != "lock.force_unlock" {
			continue
		}
		spans = append(spans, attr(s, "lock.owner"))
		if failed := attr(s, "lock.owner") == "nobody"; (s.Status.Code == codes.Error) != failed || attr(s, "lock.name") != "orders:42" {
			t.Errorf("%s: %+v, %s", attr(s, "lock.owner"), s.Status, attr(s, "lock.name"))
		}
	}
	if len(spans) != 2 || spans[1] != owner {
		t.Errorf("spans for %v", spans)
	}
	done := r.log.lines(t, "lock taken away by force")
	if len(done) != 1 || done[0]["lock"] != "orders:42" || done[0]["owner"] != owner || done[0]["kind"] != "reentrant" || done[0]["trace_id"] == nil {
		t.Errorf("%v", done)
	}
	if refused := r.log.lines(t, "forced unlock failed"); len(refused) != 1 || refused[0]["wanted"] != "nobody" {
		t.Errorf("%v", refused)
	} else {
		done = append(done, refused[0])
	}

	// The same words when a lock object does it.
	l := r.client.RLock("orders:43")
	held := must[redlatch.Hold](t)(l.Lock(ctx))
	owner = must[redlatch.State](t)(l.State(ctx)).Holders[0].Owner
	if was, err := l.ForceUnlock(ctx); !was || err != nil {
		t.Error(was, err)
	}
	_ = held.Unlock(ctx)
	all := r.log.lines(t, "lock taken away by force")
	if len(all) != 2 || all[1]["lock"] != "orders:43" || all[1]["owner"] != owner {
		t.Fatalf("%v", all)
	}
	for _, line := range append(done, all[1]) {
		if line["client"] != "ops/ada" || line["by"] != r.client.ID() {
			t.Errorf("who did it: %v", line)
		}
	}
}

// commands is a span processor that is called for the spans of commands.
type commands struct {
	started, ended func()
}

// OnStart implements sdktrace.SpanProcessor.
func (c commands) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) {
	if s.Name() == "EVALSHA" {
		c.started()
	}
}

// OnEnd implements sdktrace.SpanProcessor.
func (c commands) OnEnd(s sdktrace.ReadOnlySpan) {
	if s.Name() == "EVALSHA" {
		c.ended()
	}
}

// Shutdown implements sdktrace.SpanProcessor.
func (commands) Shutdown(context.Context) error { return nil }

// ForceFlush implements sdktrace.SpanProcessor.
func (commands) ForceFlush(context.Context) error { return nil }

// TestPanicOfAnOperatorsCode: a panic in the code that is told of an operator's command costs nobody
// anything: the call has its answer.
func TestPanicOfAnOperatorsCode(t *testing.T) {
	r := newRig(t)
	var starts, ends atomic.Bool // the next one panics
	panics := func(armed *atomic.Bool) func() {
		return func() {
			if armed.CompareAndSwap(true, false) {
				panic("a span processor of the user's")
			}
		}
	}
	r.tracing.RegisterSpanProcessor(commands{started: panics(&starts), ended: panics(&ends)})
	ctx := t.Context()
	h := must[redlatch.Hold](t)(r.client.RLock("a").Lock(ctx))
	for call, ask := range map[string]func() error{
		"Inspect":     func() error { _, err := r.client.Inspect(ctx, "a"); return err },
		"State":       func() error { _, err := r.client.RLock("a").State(ctx); return err },
		"ForceUnlock": func() error { _, err := r.client.ForceUnlock(ctx, "b"); return err },
	} {
		for when, armed := range map[string]*atomic.Bool{"begins": &starts, "ends": &ends} {
			armed.Store(true)
			if err, over := attempt(ask); !over || err != nil || armed.Swap(false) {
				t.Errorf("%s, with a panic when its command %s: returned %t, error %v", call, when, over, err)
			}
			if err := ask(); err != nil {
				t.Errorf("%s after a panic when its command %s: %v", call, when, err)
			}
		}
	}
	unlock(t, h)
}

// An operator's late command is told of in the background: no call waits for it any more.
func TestAnOperatorsLateCommandIsToldOfInTheBackground(t *testing.T) {
	r := newRig(t)
	var told atomic.Value // where the last end was told
	r.tracing.RegisterSpanProcessor(commands{started: func() {}, ended: func() { told.Store(string(debug.Stack())) }})
	ctx := t.Context()
	if _, err := r.client.Inspect(ctx, "a"); err != nil {
		t.Fatal(err)
	}
	if where := told.Swap(""); where == nil || strings.Contains(where.(string), "observe.(*News)") {
		t.Errorf("the end of a command that was waited for was told by %v", where)
	}
	r.server.Freeze(t)
	_, err := r.client.Inspect(ctx, "a")
	r.server.Thaw(t)
	if !errors.Is(err, redlatch.ErrUnavailable) {
		t.Error(err)
	}
	eventually(t, "the end is told", func() bool { return told.Load() != "" })
	if where := told.Load().(string); !strings.Contains(where, "observe.(*News)") {
		t.Errorf("it was told by %s", where)
	}
}
