package topology

import (
	"bytes"
	"errors"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// handover has the replica b of a set take over from a, which follows it then.
func handover(t *testing.T, set *testbed.ReplicaSet, a, b *testbed.Server) {
	t.Helper()
	set.AwaitSync(t)
	set.Promote(t, b)
	a.Do(t, "REPLICAOF", "127.0.0.1", strconv.Itoa(b.Port()))
	set.AwaitSync(t)
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
			var log bytes.Buffer
			c := open(t, single(address.Addr()), func(cfg *redlatch.Config) {
				// Longer than the test takes: nobody is woken by the end of a lease.
				cfg.LeaseTime, cfg.ReplicaAcks, cfg.ReplicaAckTimeout = time.Minute, n, 10*time.Second
				cfg.Logger = slog.New(slog.NewTextHandler(&log, nil))
			})
			atA, atB := listens(t, a, "held"), listens(t, b, "held")
			held, gone := take(t, t.Context(), c.RLock("held")), take(t, t.Context(), c.RLock("gone"))
			waiter := waiting(t, c.RLock("held"), atA)
			handover(t, set, a, b)
			b.Do(t, "DEL", "gone")
			// The address is late, so that the client meets the replica once more on new connections.
			if _, err := c.RLock("free").TryLock(t.Context(), 2*time.Second, 0); !errors.Is(err, redlatch.ErrUnavailable) {
				t.Error("a replica granted a lock:", err)
			}
			// Connections end once more a second after the last refusal. Both kinds are there again when the
			// address goes on: if it went on between the two, the subscription would stay, as in the test below.
			time.Sleep(1100 * time.Millisecond)
			bed.Eventually(t, "the waiter listens at the replica", atA)
			if _, err := c.RLock("held").State(t.Context()); err != nil {
				t.Error(err)
			}
			address.Lead(b.Addr())
			free, err := c.RLock("free").TryLock(t.Context(), 10*time.Second, 0)
			if err != nil || b.Int(t, "EXISTS", "free") != 1 {
				t.Fatal("the client stays with the replica:", err)
			}
			bed.Eventually(t, "what the new master does not know has ended", func() bool { return gone.Context().Err() != nil })
			bed.Eventually(t, "the waiter listens at the new master", func() bool { return atB() && !atA() })
			bed.Want(t, gone.Unlock(t.Context()), redlatch.ErrLeaseLost)
			bed.Unlock(t, free)
			bed.Unlock(t, held)
			bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, waiter))
			c.Close()
			if strings.Count(log.String(), "the server is a replica") != 1 || strings.Contains(log.String(), "subscription lost") {
				t.Errorf("not one line about the replica, and none about subscriptions:\n%s", log.String())
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
	c := open(t, single(address.Addr()), func(cfg *redlatch.Config) {
		cfg.LeaseTime, cfg.Tenure = time.Minute, -1 // nobody is woken by the end of a lease, or in the process
	})
	atA, atB := listens(t, a, "held"), listens(t, b, "held")
	held := take(t, t.Context(), c.RLock("held"))
	waiter := waiting(t, c.RLock("held"), atA)
	before := a.CommandStats(t).Calls["evalsha"]
	bed.Eventually(t, "it has looked again twice since", func() bool { return a.CommandStats(t).Calls["evalsha"] >= before+2 })
	handover(t, set, a, b)
	address.Lead(b.Addr())
	a.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	bed.Unlock(t, held)
	if b.Int(t, "HEXISTS", "held", held.Owner().String()) != 0 { // the waiter may have the lock by now
		t.Error("the new master knows nothing of the unlock")
	}
	bed.Unlock(t, bed.HoldWithin(t, 20*time.Second, waiter))
	if !atA() || atB() {
		t.Error("the subscription did not stay")
	}
}
