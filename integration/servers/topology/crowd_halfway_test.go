package topology

import (
	"context"
	"testing"
	"time"

	"go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A lock whose slot stays half-way is unlocked within a second, and everybody of several processes
// gets it, where the lock, the list of who waits and the holder's trace are where it comes from,
// where it goes to, or one here and one there.
func TestCrowdOfASlotThatIsHalfWay(t *testing.T) {
	t.Parallel()
	set := clustered(t)
	for _, tc := range []struct {
		name              string
		several, traced   bool
		lock, list, trace bool // have moved
	}{
		{name: "all where it comes from"},
		{name: "all where it goes to", lock: true, list: true},
		{name: "the list is left behind", lock: true},
		{name: "the list has gone ahead", list: true},
		{name: "traced, all where it comes from", traced: true},
		{name: "the trace is left behind", traced: true, lock: true, list: true},
		{name: "the trace has gone ahead", traced: true, trace: true},
		{name: "several, all where they come from", several: true},
		{name: "several, the list is left behind", several: true, lock: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			const waiters = 3
			name := "{" + tc.name + "}crowd"
			list, slot := luascript.WaitKey(name), testbed.Slot(name)
			newLock := func() redlatch.Locker {
				c := open(t, cluster(set), func(c *redlatch.Config) {
					if tc.traced {
						c.TracerProvider = trace.NewTracerProvider()
					}
				})
				if tc.several {
					return redlatch.MultiLock(c.RLock(name), c.RLock(name+"2"))
				}
				return c.RLock(name)
			}
			h := take(t, t.Context(), newLock())
			from := set.NodeOfSlot(t, slot)
			if n := from.Int(t, "EXISTS", luascript.TraceKey(name)); n == 1 != tc.traced {
				t.Fatalf("%d traces", n)
			}
			got := make(chan error, waiters)
			for range waiters {
				l := newLock()
				go func() { got <- redlatch.Do(t.Context(), l, func(context.Context) error { return nil }) }()
			}
			bed.Eventually(t, "they wait", func() bool { return from.Int(t, "ZCARD", list) == waiters })
			mig := set.BeginMigration(t, slot, elsewhere(t, set, slot))
			for key, moves := range map[string]bool{
				name: tc.lock, name + "2": tc.lock && tc.several, list: tc.list, luascript.TraceKey(name): tc.trace,
			} {
				if moves && !mig.MoveKey(t, key) {
					t.Fatalf("%s is not there", key)
				}
			}
			last := time.Now()
			bed.Unlock(t, h)
			testbed.AtMost(t, time.Since(last), time.Second+slack, "Unlock took")
			for i := range waiters {
				select {
				case err := <-got:
					bed.Want(t, err, nil)
				case <-time.After(20 * time.Second):
					t.Fatalf("%d of %d got the free lock", i, waiters)
				}
				testbed.AtMost(t, time.Since(last), 2*time.Second+slack, "the lock lay free for")
				last = time.Now()
			}
			mig.MoveKeys(t)
			mig.Finish(t)
		})
	}
}
