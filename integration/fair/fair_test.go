package fair

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

func TestWaitersOfOneProcessAreServedInOrder(t *testing.T) {
	s := testbed.Standalone(t)
	testbed.LeakCheck(t, s)
	c := dial(t, s.Addr())
	l := c.FairLock(name)
	first := lockIt(t, l)
	got := make(chan result, 10)
	for i := range 10 {
		wait(t.Context(), l, i, got)
		queued(t, s, int64(i+1))
	}
	unlock(t, first)
	for i := range 10 {
		r := receive(t, got, 5*time.Second)
		if r.err != nil || r.id != i {
			t.Fatalf("turn %d: waiter %d, %v", i, r.id, r.err)
		}
		unlock(t, r.hold)
	}
	nothingLeft(t, s)
}
