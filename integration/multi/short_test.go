package multi

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestAShortWaitOnASlowServerIsNoOutage: a MultiLock's other members are tried once, with what is left of
// the wait. A server that has not answered by then is slow, and not silent.
func TestAShortWaitOnASlowServerIsNoOutage(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr(), lease(time.Minute))
	l := redlatch.MultiLock(c.RLock("a"), c.FairLock("b"))
	unlock(t, mustLock(t, t.Context(), l))
	p.Delay(testbed.Replies, 100*time.Millisecond)
	for _, wait := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 60 * time.Millisecond} {
		_, err := l.TryLock(t.Context(), wait, 0)
		if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("a wait of %v: %v", wait, err)
		}
	}
	p.Delay(testbed.Replies, 0)
	eventually(t, "all given back", func() bool { return s.Int(t, "EXISTS", "a", "b") == 0 })
}
