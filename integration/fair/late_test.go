package fair

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A command that stood in the queue for a waiter is on its way still when the waiter, whose
// retry has made the place, finds its grant by asking: the answer "held by this very
// acquisition" does not tell that the late command has run. It must be refused after the
// release, as any late command is.
func TestALateAcquireAfterAConfirmedGrantTakesNothing(t *testing.T) {
	for _, message := range []string{"heard", "lost", "of which little is left"} {
		t.Run(message, func(t *testing.T) {
			s := bed.Server(t)
			holder, lease := bed.Client(t, s.Addr()), 30*time.Second
			switch message {
			case "heard": // the hold is made of the message
			case "lost":
				holder = mute(t, s)
			default:
				lease = 500 * time.Millisecond // so it need not wait for long until half of the grant is over
			}
			hold := lockIt(t, holder.FairLock(name))
			proxy := testbed.NewProxy(t, s.Addr())
			l := bed.Client(t, proxy.Addr()).FairLock(name)
			trap := proxy.DropRequest(testbed.Contains("EVALSHA", queueKey))
			got := inLine(t, s, 1, l, redlatch.WithLease(lease)) // its retry
			trap.Wait(t)
			if message == "heard" {
				s.AwaitQuiet(t)
			}
			if lease < time.Second {
				time.Sleep(lease * 3 / 4) // so old is the last sign of life now
			}
			bed.Unlock(t, hold)
			bed.Unlock(t, inTurn(t, got, 0))
			testbed.Equal(t, trap.Deliver(t), "*1\r\n:-1\r\n", "the answer to the late command")
		})
	}
}

// Whoever has become the first waiter looks when a dead holder's lease ends, not a fifth of its
// skip time later.
func TestTheNewFirstLooksWhenTheLeaseEnds(t *testing.T) {
	s := bed.Server(t)
	holds(t, s, java(1), 2*time.Second)
	l := patient(t, s.Addr())
	ctx, cancel := context.WithCancel(t.Context())
	left, got := make(chan result, 1), make(chan result, 1)
	wait(ctx, l, 1, left)
	queued(t, s, 1)
	s.AwaitQuiet(t)
	wait(t.Context(), l, 2, got) // it has a subscription already, so it need not ask again
	queued(t, s, 2)
	cancel()
	bed.Receive(t, slack, left)
	bed.Unlock(t, inTurn(t, got, 2))
}

// The server comes back with data from before a grant, and grants the lock to the same waiter again, who has waited for
// longer now. That hold ends with the first one, when it is unlocked or found to be lost, and the next one enters at once.
func TestAGrantThatIsMadeAgainEndsWithTheHold(t *testing.T) {
	t.Parallel() // it waits, for the most part
	testbed.Needs(t, 6, 2, "COPY")
	for _, unlocked := range []bool{true, false} {
		t.Run(strconv.FormatBool(unlocked), func(t *testing.T) {
			s := testbed.Standalone(t)
			hold := lockIt(t, bed.Client(t, s.Addr()).FairLock(name))
			got, next := inLine(t, s, 1, bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(20*time.Second))), make(chan result, 1)
			wait(t.Context(), bed.Client(t, s.Addr()).FairLock(name), 0, next)
			queued(t, s, 2)
			keys := []string{queueKey, scoresKey, wantsKey}
			for _, key := range keys {
				s.Do(t, "COPY", key, key+"before")
			}
			bed.Unlock(t, hold)
			h := inTurn(t, got, 0)
			was := s.List(t, "HKEYS", name)[0]
			s.Do(t, "MULTI")
			s.Do(t, "DEL", name)
			for _, key := range keys {
				s.Do(t, "COPY", key+"before", key, "REPLACE")
				s.Do(t, "DEL", key+"before")
			}
			s.Do(t, "EXEC")
			bed.Eventually(t, "granted again, by a refresh of the next one's", func() bool {
				is := s.List(t, "HKEYS", name)
				return len(is) == 1 && is[0] != was
			})
			if unlocked {
				bed.Unlock(t, h)
			}
			bed.Unlock(t, inTurn(t, next, 0))
			nothingLeft(t, s)
		})
	}
}
