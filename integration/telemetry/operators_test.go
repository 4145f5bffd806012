package telemetry

import (
	"errors"
	"testing"

	"go.opentelemetry.io/otel/codes"

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
	if len(done) != 1 || done[0]["lock"] != "orders:42" || done[0]["owner"] != owner || done[0]["kind"] != "plain" || done[0]["trace_id"] == nil {
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
	owner = must[redlatch.State](t)(l.State(ctx)).Owners[0].Owner
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
