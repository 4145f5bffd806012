package fair

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A turn is one command: where the way to the server is what takes long, a
// hand-over takes two ways, the release there and the grant back. One that calls
// the waiter, which then asks for the lock, takes four, as the plain lock's does.
func TestAHandOverTakesTwoWays(t *testing.T) {
	const way = 100 * time.Millisecond
	s := testbed.Standalone(t)
	p := testbed.NewProxy(t, s.Addr())
	a, b := dial(t, p.Addr()), dial(t, p.Addr())
	took := func(giver, taker redlatch.Locker) time.Duration {
		t.Helper()
		hold := lockIt(t, giver)
		got := make(chan result, 1)
		before := s.CommandStats(t).Calls["evalsha"]
		wait(t.Context(), taker, 1, got)
		// It has tried, has heard that it may be missing something, and has looked again.
		eventually(t, 10*time.Second, "the waiter sleeps", func() bool {
			return s.CommandStats(t).Calls["evalsha"] > before && len(s.List(t, "PUBSUB", "CHANNELS")) > 0
		})
		time.Sleep(5 * way)
		began := time.Now()
		p.Delay(testbed.Requests, way)
		p.Delay(testbed.Replies, way)
		done := make(chan error, 1)
		go func() { done <- hold.Unlock(t.Context()) }()
		r := receive(t, got, 20*way)
		elapsed := r.at.Sub(began)
		p.Delay(testbed.Requests, 0)
		p.Delay(testbed.Replies, 0)
		if r.err != nil {
			t.Fatal(r.err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		unlock(t, r.hold)
		return elapsed
	}
	for _, l := range []redlatch.Locker{a.FairLock(name), a.RLock("plain")} {
		unlock(t, lockIt(t, l)) // the server knows the scripts
	}
	busy := newMeter(t)
	fair := took(a.FairLock(name), b.FairLock(name))
	plain := took(a.RLock("plain"), b.RLock("plain"))
	t.Logf("%v, the plain lock's takes %v", fair, plain)
	if fair < 2*way || fair > 2*way+min(way-way/10, busy.slack()) {
		t.Errorf("a hand-over took %v with %v each way", fair, way)
	}
	if plain < 4*way {
		t.Errorf("the plain lock's hand-over took %v: the way was shorter than meant", plain)
	}
	nothingLeft(t, s)
}
