package telemetry

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace/tracetest"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
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
	r := bare(t)
	proxy := testbed.NewProxy(t, r.server.Addr())
	lease := 2 * checked
	if back {
		lease = 4 * checked
	}
	c := r.open(leaseTime(lease), through(proxy))
	var all []redlatch.Hold
	for i := range holds {
		h := bed.Lock(t, t.Context(), c.RLock(fmt.Sprint("l", i)))
		defer func() { _ = h.Unlock(t.Context()) }()
		all = append(all, h)
	}
	proxy.Refuse()
	proxy.Cut()
	bed.Eventually(t, "renewals fail", func() bool {
		return r.point("lock.renewals", "error.type=unavailable,lock.type=reentrant") >= failures
	})
	// told are the holds whose spans tell that their renewals fail, and that this is over, each as often.
	told := func() (failing, over map[string]int, began, ended int) {
		failing, over = map[string]int{}, map[string]int{}
		for _, s := range r.spans("lock.renew") {
			if attr(s, "error.type") == "unavailable" {
				failing[attr(s, "lock.name")]++
				began++
			} else {
				over[attr(s, "lock.name")]++
				ended++
			}
		}
		return failing, over, began, ended
	}
	if _, _, began, _ := told(); began > holds {
		t.Errorf("%d spans of %d holds whose renewals fail", began, holds)
	}
	if back {
		proxy.Admit(t)
	}
	// Failures go on to begin until the last renewal works, or until the last hold is lost.
	ended := func() bool {
		living := func(h redlatch.Hold) bool { return h.Context().Err() == nil }
		_, _, began, ended := told()
		return ended >= began && (back || !slices.ContainsFunc(all, living))
	}
	for limit := time.Now().Add(lease + bed.Patience); !ended() && time.Now().Before(limit); time.Sleep(10 * time.Millisecond) {
		continue // the assertions below say what is missing
	}
	c.Close() // what is under way has been told

	failing, over, _, _ := told()
	if len(failing) < holds/2 {
		t.Errorf("%d holds alone tell that their renewals fail", len(failing))
	}
	for i := range holds {
		if name := fmt.Sprint("l", i); failing[name] > 1 || over[name] != failing[name] {
			t.Errorf("%s: %d spans tell that its renewal fails and %d that this is over, want one each, or neither", name, failing[name], over[name])
		}
	}
	commands := slices.DeleteFunc(r.spans("EVALSHA"), func(s tracetest.SpanStub) bool {
		return attr(s, "db.stored_procedure.name") != "renew" || s.Status.Code == 0 || s.Parent.IsValid()
	})
	if len(commands) > holds {
		t.Errorf("%d spans of commands that failed, want those alone with which a failure began: %d at most", len(commands), holds)
	}
}
