package topology

import (
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// acks asks for n acknowledgements. A lease lasts for three of the waits for them.
func acks(n int, within time.Duration) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.ReplicaAcks, c.ReplicaAckTimeout, c.LeaseTime = n, within, 3*within }
}

// warm waits until n replicas acknowledge: a link that has just been made takes a
// second for its first time.
func warm(t *testing.T, master *testbed.Server, n int) {
	t.Helper()
	bed.Eventually(t, "acknowledgements", func() bool {
		master.Do(t, "SET", "warm", "1", "PX", "1")
		return master.Int(t, "WAIT", strconv.Itoa(n), "1000") == int64(n)
	})
}

// TestReplicaAcks: with a stalled replica an acquisition is undone and says so;
// what is held is renewed all the same, and nobody else waits behind WAIT.
func TestReplicaAcks(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Replicas(t, 2)
	master := set.Master()
	const ackTimeout, shortTimeout = 5 * time.Second, 3 * time.Second // far above a stall of the machine
	warm(t, master, 2)
	c, short := open(t, single(master.Addr()), acks(2, ackTimeout)), open(t, single(master.Addr()), acks(2, shortTimeout))
	locks := map[string]redlatch.Locker{
		"plain": c.RLock("plain", redlatch.Fenced()), "fair": c.FairLock("fair"), "m1": redlatch.MultiLock(c.RLock("m1"), c.RLock("m2")),
	}
	for name, l := range locks {
		began := time.Now()
		bed.Unlock(t, take(t, t.Context(), l))
		testbed.AtMost(t, time.Since(began), ackTimeout, name, "took with healthy replicas")
	}
	kept, renewed := take(t, t.Context(), c.RLock("kept")), take(t, t.Context(), short.RLock("renewed"))
	set.Replicas()[0].Freeze(t)
	frozen := time.Now()
	for name, l := range locks {
		got := bed.Async(t.Context(), l)
		bed.Eventually(t, "the acquisition under way", func() bool { return master.Int(t, "EXISTS", name) == 1 })
		// While it waits for the replicas, the client's other commands do not.
		began := time.Now()
		_, err := c.RLock("kept").State(t.Context())
		if err = errors.Join(err, kept.Extend(t.Context(), lease)); err != nil || time.Since(began) > ackTimeout/2 {
			t.Errorf("%s: other commands, %v behind WAIT: %v", name, time.Since(began), err)
		}
		a := bed.Get(t, got)
		e, is := errors.AsType[*redlatch.ReplicaAcksError](a.Err)
		if !is || !errors.Is(a.Err, redlatch.ErrReplicaAcks) || e.Want != 2 || e.Got != 1 {
			t.Errorf("%s: %v", name, a.Err)
		}
		testbed.Equal(t, master.Int(t, "EXISTS", name, "m2"), 0, name, "was not undone")
	}
	time.Sleep(time.Until(frozen.Add(4 * shortTimeout)))
	bed.Unlock(t, take(t, renewed.Context(), short.RLock("renewed"))) // a held lock is not lost for a slow replica
	bed.Unlock(t, renewed)
	bed.Unlock(t, kept)
	set.Replicas()[0].Thaw(t)
	set.AwaitSync(t)
	warm(t, master, 2)
	bed.Unlock(t, take(t, t.Context(), c.RLock("plain")))
}

// TestAckedLockSurvivesFailovers: a lock that the replica has acknowledged is
// there when it becomes the master, however slow the line to it is; without
// acknowledgements some are lost.
func TestAckedLockSurvivesFailovers(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const failovers = 50
	set := testbed.Replicas(t, 1)
	lines := map[*testbed.Server]string{}
	for _, s := range set.Nodes() {
		lines[s] = line(t, s.Addr(), 10*time.Millisecond)
	}
	follow := func(s, master *testbed.Server) {
		s.Do(t, "REPLICAOF", "127.0.0.1", lines[master])
		warm(t, master, 1)
	}
	follow(set.Replicas()[0], set.Master())
	for _, n := range []int{1, 0} {
		lost := 0
		for range failovers {
			master, next := set.Master(), set.Replicas()[0]
			c := open(t, single(master.Addr()), acks(n, 10*time.Second))
			take(t, t.Context(), c.RLock("l"))
			set.Promote(t, next)
			lost += 1 - int(next.Int(t, "EXISTS", "l"))
			c.Close()
			next.Do(t, "DEL", "l")
			follow(master, next)
		}
		if t.Logf("%d acks: %d of %d held locks lost", n, lost, failovers); n > 0 != (lost == 0) {
			t.Errorf("%d acks: %d locks lost", n, lost) // none without would show nothing
		}
	}
}

// On a cluster the acknowledgements are those of the master that the script ran on, also after its
// slot has moved: a WAIT that stays behind at the old place would count replicas that have nothing
// to acknowledge.
func TestReplicaAcksOnACluster(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const name = "acked"
	set := clustered(t)
	l := open(t, cluster(set), acks(1, 5*time.Second)).RLock(name, redlatch.Fenced())
	for _, n := range set.Masters(t) {
		bed.Eventually(t, "acknowledgements", func() bool { return n.Int(t, "WAIT", "1", "1000") == 1 })
	}
	works := func() bool {
		h, err := l.TryLock(t.Context(), 30*time.Second, 0)
		if err == nil {
			bed.Unlock(t, h)
		} else if !errors.Is(err, redlatch.ErrReplicaAcks) {
			t.Fatal(err)
		}
		return err == nil
	}
	bed.Eventually(t, "the first acknowledgements, which take a second", works)

	// The slot moves to a master whose replica stalls. The client does not know.
	slot := testbed.Slot(name)
	to := elsewhere(t, set, slot)
	replica := set.ReplicasOf(t, to)[0]
	set.MigrateSlot(t, slot, to)
	replica.Freeze(t)
	if works() || to.Int(t, "EXISTS", name) != 0 {
		t.Error("with a stalled replica at the new place it is acquired, or was not undone")
	}
	replica.Thaw(t)
	bed.Eventually(t, "the lock with acknowledgements", works)
}
