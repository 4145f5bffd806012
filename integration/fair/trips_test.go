package fair

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A turn is one command: where the way to the server is what takes long, a
// hand-over takes two ways, the release there and the grant back. One that calls
// the waiter, which then asks for the lock, takes four, as the plain lock's does.
// So nothing that goes another way is needed: the answer to the release and all that
// the waiter sends are held up, and the waiter has the lock.
func TestAHandOverTakesTwoWays(t *testing.T) {
	s := testbed.Standalone(t)
	giverSide, takerSide := testbed.NewProxy(t, s.Addr()), testbed.NewProxy(t, s.Addr())
	giver, taker := dial(t, giverSide.Addr()), dial(t, takerSide.Addr())
	handOver := func(giver, taker redlatch.Locker, twoWays bool) {
		t.Helper()
		hold := lockIt(t, giver)
		got := make(chan result, 1)
		before := s.CommandStats(t).Calls["evalsha"]
		wait(t.Context(), taker, 1, got)
		// It has tried, has heard that it may be missing something, and has looked again.
		eventually(t, 20*time.Second, "the waiter listens", func() bool {
			return s.CommandStats(t).Calls["evalsha"] > before && len(s.List(t, "PUBSUB", "CHANNELS")) > 0
		})
		calm(t, s)
		giverSide.Pause(testbed.Replies)
		takerSide.Pause(testbed.Requests)
		done := make(chan error, 1)
		go func() { done <- hold.Unlock(t.Context()) }()
		if twoWays {
			r := receive(t, got, 20*time.Second)
			got <- r
			select {
			case err := <-done:
				t.Errorf("Unlock returned without its answer: %v", err)
			default:
			}
		} else {
			eventually(t, 20*time.Second, "the release", func() bool { return s.Int(t, "EXISTS", "plain") == 0 })
			select {
			case r := <-got:
				t.Errorf("the plain lock is passed on without a question (%v): this test tells nothing", r.err)
				got <- r
			case <-time.After(100 * time.Millisecond): // a lower bound: longer can't fail it
			}
		}
		giverSide.Resume(testbed.Replies)
		takerSide.Resume(testbed.Requests)
		if err := <-done; err != nil {
			t.Error(err)
		}
		bed.Unlock(t, entered(t, got, 20*time.Second).hold)
	}
	for _, l := range []redlatch.Locker{giver.FairLock(name), giver.RLock("plain")} {
		bed.Unlock(t, lockIt(t, l)) // the server knows the scripts
	}
	handOver(giver.FairLock(name), taker.FairLock(name), true)
	handOver(giver.RLock("plain"), taker.RLock("plain"), false)
	nothingLeft(t, s)
}
