package topology

import (
	"errors"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// said keeps what a Client logs.
type said struct {
	mu   sync.Mutex
	text strings.Builder // guarded by mu
}

// Write implements io.Writer.
func (s *said) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.Write(b)
}

// count is how many lines have what in them.
func (s *said) count(what string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Count(s.text.String(), what)
}

func (s *said) all() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.text.String()
}

// A client that knows one address alone, which leads to the new master after a failover (a name, a
// virtual IP, a proxy), goes over though the old one, a replica now, closes none of its
// connections: it acquires, releases what it held, and its waiter listens at the new master and is
// woken there. What it holds is checked there at once: what the new master does not know has ended.
// One line tells it.
func TestAddressThatFollowsTheMaster(t *testing.T) {
	t.Parallel() // it waits, for the most part
	for name, n := range map[string]int{"plain": 0, "with ReplicaAcks": 1} {
		t.Run(name, func(t *testing.T) {
			set := testbed.Replicas(t, 1)
			a, b := set.Master(), set.Replicas()[0]
			address := testbed.NewProxy(t, a.Addr())
			var log said
			c := open(t, rueidis.ClientOption{InitAddress: []string{address.Addr()}}, func(cfg *redlatch.Config) {
				// Longer than the test takes: nobody is woken by the end of a lease.
				cfg.LeaseTime, cfg.ReplicaAcks, cfg.ReplicaAckTimeout = time.Minute, n, 10*time.Second
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			listens := func(s *testbed.Server) bool {
				return len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel("held")+"*")) > 0
			}
			held := mustLock(t, within(t, time.Minute), c.RLock("held"))
			gone := mustLock(t, within(t, time.Minute), c.RLock("gone"))
			waiter := waiting(t, c.RLock("held"), func() bool { return listens(a) })
			set.AwaitSync(t)

			set.Promote(t, b)
			b.Do(t, "DEL", "gone")
			host, port, err := net.SplitHostPort(b.Addr())
			if err != nil {
				t.Fatal(err)
			}
			a.Do(t, "REPLICAOF", host, port)
			set.AwaitSync(t)
			// The address is late, so that the client meets the replica once more on new connections.
			_, err = c.RLock("free").TryLock(within(t, time.Minute), 2*time.Second, 0)
			if !errors.Is(err, redlatch.ErrUnavailable) {
				t.Error("a replica granted a lock:", err)
			}
			// Connections end once more a second after the last refusal. Both kinds are there again when the
			// address goes on: if it went on between the two, the subscription would stay, as in the test below.
			time.Sleep(1100 * time.Millisecond)
			eventually(t, 10*time.Second, "the waiter listens at the replica", func() bool { return listens(a) })
			if _, err := c.RLock("held").State(t.Context()); err != nil {
				t.Error(err)
			}
			address.Lead(b.Addr())
			free, err := c.RLock("free").TryLock(within(t, time.Minute), 10*time.Second, 0)
			if err != nil {
				t.Fatal("the client stays with the replica:", err)
			}
			if b.Int(t, "EXISTS", "free") != 1 {
				t.Error("the new master knows nothing of it")
			}
			eventually(t, 10*time.Second, "what the new master does not know has ended", func() bool { return gone.Context().Err() != nil })
			eventually(t, 10*time.Second, "the waiter listens at the new master", func() bool { return listens(b) && !listens(a) })
			if err := gone.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
				t.Error(err)
			}
			bed.Unlock(t, free)
			bed.Unlock(t, held)
			bed.Unlock(t, gets(t, waiter, 10*time.Second))
			if lines, lost := log.count("the server is a replica"), log.count("subscription lost"); lines != 1 || lost != 0 {
				t.Errorf("%d lines about the replica, %d about subscriptions; want 1 and none:\n%s", lines, lost, log.all())
			}
		})
	}
}

// A waiter whose subscription leads to a replica hears the unlock all the same: a replica passes on
// what its master publishes. Its client may meet no replica, if the address goes on after the
// subscription was made and before the commands have a new connection.
func TestWaiterThatStaysWithTheReplica(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Replicas(t, 1)
	a, b := set.Master(), set.Replicas()[0]
	address := testbed.NewProxy(t, a.Addr())
	c := open(t, rueidis.ClientOption{InitAddress: []string{address.Addr()}}, func(cfg *redlatch.Config) {
		cfg.LeaseTime, cfg.Tenure = time.Minute, -1 // nobody is woken by the end of a lease, or in the process
	})
	listens := func(s *testbed.Server) bool {
		return len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel("held")+"*")) > 0
	}
	held := mustLock(t, within(t, time.Minute), c.RLock("held"))
	waiter := waiting(t, c.RLock("held"), func() bool { return listens(a) })
	before := a.CommandStats(t).Calls["evalsha"]
	eventually(t, 20*time.Second, "it has looked again twice since", func() bool { return a.CommandStats(t).Calls["evalsha"] >= before+2 })
	set.AwaitSync(t)
	set.Promote(t, b)
	host, port, err := net.SplitHostPort(b.Addr())
	if err != nil {
		t.Fatal(err)
	}
	a.Do(t, "REPLICAOF", host, port)
	set.AwaitSync(t)
	address.Lead(b.Addr())
	a.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	bed.Unlock(t, held)
	if b.Int(t, "EXISTS", "held") != 0 {
		t.Error("the new master knows nothing of the unlock")
	}
	began := time.Now()
	bed.Unlock(t, gets(t, waiter, 20*time.Second))
	t.Logf("woken after %v", time.Since(began))
	if !listens(a) || listens(b) {
		t.Error("the subscription did not stay")
	}
}
