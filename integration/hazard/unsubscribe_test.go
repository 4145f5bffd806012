package hazard

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A server that begins to refuse while a client unsubscribes ends no program. It refuses (its disk
// is full, a script does not end, it is a replica without its master) when the client has been told
// that it answers, and before it sees the UNSUBSCRIBE and what the client library sends behind it.
// The library takes such an answer for another one and panics in a goroutine of its own; so the
// connection has to end first. Whoever waits later is woken as ever.
func TestServerThatRefusesWhileAClientUnsubscribes(t *testing.T) {
	for _, refusal := range []struct {
		name  string
		begin func(t *testing.T, s *testbed.Server) (end func())
	}{
		{"MISCONF", func(t *testing.T, s *testbed.Server) func() { return s.FailSaves(t) }},
		{"BUSY", func(t *testing.T, s *testbed.Server) func() { return s.Hang(t) }},
		{"MASTERDOWN", orphan},
	} {
		t.Run(refusal.name, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			proxy := testbed.NewProxy(t, s.Addr())
			c, other := bed.Client(t, proxy.Addr()), bed.Client(t, s.Addr())
			hold := bed.Lock(t, t.Context(), other.RLock("n"))
			left := proxy.StallRequest(testbed.Contains("UNSUBSCRIBE"))
			_, err := c.RLock("n").TryLock(t.Context(), 100*time.Millisecond, 0)
			if !errors.Is(err, redlatch.ErrNotAcquired) {
				t.Fatalf("a short wait: %v", err)
			}
			left.Wait(t)
			_, before := proxy.Connections()
			end := refusal.begin(t, s)
			bed.Eventually(t, "a refusal", func() bool {
				_, err := s.Try("PING")
				return err != nil
			})
			left.Release()
			// It has lost that connection when it makes another one, or has none but the other.
			bed.Eventually(t, "the end of the connection that unsubscribed", func() bool {
				live, accepted := proxy.Connections()
				return accepted > before || live < 2
			})
			end()
			next := bed.Async(t.Context(), c.RLock("n"))
			bed.Eventually(t, "a listener", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS")) > 0 })
			bed.Unlock(t, hold)
			bed.Unlock(t, bed.Get(t, next).Hold)
		})
	}
}

// A message is no refusal, also if it says what a server says that refuses everything: it costs no
// connection, and nobody a subscription.
func TestAMessageIsNoRefusal(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	proxy := testbed.NewProxy(t, s.Addr())
	c, other := bed.Client(t, proxy.Addr()), bed.Client(t, s.Addr())
	n, m := bed.Lock(t, t.Context(), other.RLock("n")), bed.Lock(t, t.Context(), other.RLock("m"))
	next := bed.Async(t.Context(), c.RLock("m"))
	left := proxy.StallRequest(testbed.Contains("UNSUBSCRIBE"))
	_, err := c.RLock("n").TryLock(t.Context(), 100*time.Millisecond, 0)
	if !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Fatalf("a short wait: %v", err)
	}
	left.Wait(t)
	left.Release()
	bed.Eventually(t, "one channel alone", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS", "*{n}*")) == 0 })
	_, before := proxy.Connections()
	for _, channel := range s.List(t, "PUBSUB", "CHANNELS", "*{m}*") {
		for _, says := range []string{"x\r\n-BUSY Redis is busy\r\n", "\n-MISCONF no\r\n", "-MASTERDOWN no"} {
			if s.Int(t, "PUBLISH", channel, says) != 1 {
				t.Fatal("nobody listens on", channel)
			}
		}
	}
	bed.Unlock(t, m)
	bed.Unlock(t, bed.Get(t, next).Hold)
	if _, after := proxy.Connections(); after != before {
		t.Errorf("%d connections were made anew", after-before)
	}
	bed.Unlock(t, n)
}

// orphan makes the server a replica of a master that is not there, without old data.
func orphan(t *testing.T, s *testbed.Server) (end func()) {
	t.Helper()
	s.Do(t, "CONFIG", "SET", "replica-serve-stale-data", "no")
	s.Do(t, "REPLICAOF", "127.0.0.1", "1")
	return func() { s.Do(t, "REPLICAOF", "NO", "ONE") }
}
