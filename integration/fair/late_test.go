package fair

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A command that stood in the queue for a waiter is on its way still when the waiter, whose
// retry has made the place, finds its grant by asking: the answer "held by this very
// acquisition" does not tell that the late command has run. It must be refused after the
// release, as any late command is.
func TestALateAcquireAfterAConfirmedGrantTakesNothing(t *testing.T) {
	for _, message := range []string{"lost", "of which little is left"} {
		t.Run(message, func(t *testing.T) {
			s := testbed.Standalone(t)
			holder, lease := dial(t, s.Addr()), 30*time.Second
			if message == "lost" {
				testbed.Needs(t, 6, 2, "users who may not publish on a channel")
				s.SetUser(t, "mute", "on", ">pw", "+@all", "~*")
				holder = dial(t, s.Addr(), redlatch.WithConfig(func(c *redlatch.Config) {
					c.Redis.Username, c.Redis.Password = "mute", "pw"
				}))
			} else {
				lease = 500 * time.Millisecond // the skip time is 5 s: the last refresh is older than half of it
			}
			hold := lockIt(t, holder.FairLock(name))
			proxy := testbed.NewProxy(t, s.Addr())
			c := dial(t, proxy.Addr())
			trap := proxy.DropRequest(testbed.Contains("EVALSHA", queueKey))
			got := make(chan result, 1)
			wait(t.Context(), c.FairLock(name), 1, got, redlatch.WithLease(lease))
			trap.Wait(t)
			queued(t, s, 1) // its retry
			if message != "lost" {
				time.Sleep(lease * 3 / 4) // so old is the last sign of life now
			}
			unlock(t, hold)
			r := receive(t, got, 5*time.Second)
			if r.err != nil {
				t.Fatal(r.err)
			}
			unlock(t, r.hold)
			if reply := trap.Deliver(t); reply != "*1\r\n:-1\r\n" {
				t.Errorf("the late command was answered with %q: the lock is held for %d ms by nobody", reply, s.Int(t, "PTTL", name))
			}
		})
	}
}
