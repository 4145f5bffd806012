package telemetry

import (
	"fmt"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Each hold tells when its renewals begin to fail and when that ends, whether by a renewal that
// works or by the loss. Between the two, failures are counted.
func TestSpansOfFailingRenewals(t *testing.T) {
	for _, back := range []bool{true, false} {
		t.Run(fmt.Sprintf("back=%t", back), func(t *testing.T) { failingRenewals(t, back) })
	}
}

func failingRenewals(t *testing.T, back bool) {
	const holds, failures = 40, 120
	server := testbed.Standalone(t)
	proxy := testbed.NewProxy(t, server.Addr())
	lease := 2 * checked
	if back {
		lease = 4 * checked
	}
	r := newRig(t, leaseTime(lease), through(proxy))
	var all []redlatch.Hold
	for i := range holds {
		h := must[redlatch.Hold](t)(r.client.RLock(fmt.Sprint("l", i)).Lock(t.Context()))
		defer func() { _ = h.Unlock(t.Context()) }()
		all = append(all, h)
	}
	proxy.Refuse()
	proxy.Cut()
	count := func(kind string) int64 { return points(t, r.collect()["lock.renewals"])[kind] }
	eventually(t, "renewals fail", func() bool { return count("error.type=unavailable,lock.type=reentrant") >= failures })
	told := func() (began, over int) {
		for _, s := range r.exporter.GetSpans() {
			switch {
			case s.Name == "lock.renew" && attr(s, "error.type") == "unavailable":
				began++
			case s.Name == "lock.renew":
				over++
			}
		}
		return began, over
	}
	if failing, _ := told(); failing > holds {
		t.Errorf("%d spans of %d holds whose renewals fail", failing, holds)
	}
	if back {
		proxy.Admit(t)
	}
	// Failures go on to begin until the last renewal works, or until the last hold is lost.
	ended := func() bool {
		for _, h := range all {
			if !back && h.Context().Err() == nil {
				return false
			}
		}
		began, over := told()
		return over >= began
	}
	for limit := time.Now().Add(lease + patience); !ended() && time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		continue // the assertions below say what is missing
	}
	r.client.Close() // what is under way has been told

	began, over, commands := map[string]int{}, map[string]int{}, 0
	for _, s := range r.exporter.GetSpans() {
		switch {
		case s.Name == "lock.renew" && attr(s, "error.type") == "unavailable":
			began[attr(s, "lock.name")]++
		case s.Name == "lock.renew":
			over[attr(s, "lock.name")]++
		case attr(s, "db.stored_procedure.name") == "renew" && s.Status.Code != 0 && isRoot(s):
			commands++
		}
	}
	if len(began) < holds/2 {
		t.Errorf("%d holds alone tell that their renewals fail", len(began))
	}
	for i := range holds {
		if name := fmt.Sprint("l", i); began[name] > 1 || over[name] != began[name] {
			t.Errorf("%s: %d spans tell that its renewal fails and %d that this is over, want one each, or neither", name, began[name], over[name])
		}
	}
	if commands > holds {
		t.Errorf("%d spans of commands that failed, want those alone with which a failure began: %d at most", commands, holds)
	}
}

func isRoot(s tracetest.SpanStub) bool { return !s.Parent.IsValid() }
