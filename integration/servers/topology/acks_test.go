package topology

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func acks(n int, within time.Duration) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.ReplicaAcks, c.ReplicaAckTimeout = n, within }
}

func single(s *testbed.Server) rueidis.ClientOption {
	return rueidis.ClientOption{InitAddress: []string{s.Addr()}}
}

// TestReplicaAcks: with a stalled replica an acquisition is undone and says so;
// what is held is renewed all the same, and nobody else waits behind WAIT.
func TestReplicaAcks(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Replicas(t, 2)
	master, replicas := set.Master(), set.Replicas()
	// Far above a stall of the machine. A lease lasts for three of them at least.
	const ackTimeout, shortTimeout, shortLease = 5 * time.Second, 3 * time.Second, 9 * time.Second
	warm(t, master, 2)
	c := open(t, single(master), acks(2, ackTimeout), func(cfg *redlatch.Config) { cfg.LeaseTime = 3 * ackTimeout })
	short := open(t, single(master), acks(2, shortTimeout), func(cfg *redlatch.Config) { cfg.LeaseTime = shortLease })
	for name, l := range map[string]redlatch.Locker{
		"plain": c.RLock("plain", redlatch.Fenced()), "fair": c.FairLock("fair"),
		"[m1 m2]": redlatch.MultiLock(c.RLock("m1"), c.RLock("m2")),
	} {
		began := time.Now()
		h := mustLock(t, within(t, 30*time.Second), l)
		if took := time.Since(began); took > ackTimeout {
			t.Errorf("%s took %v with healthy replicas", name, took)
		}
		bed.Unlock(t, h)
	}

	kept := mustLock(t, within(t, 30*time.Second), c.RLock("kept"))
	renewed := mustLock(t, within(t, 30*time.Second), short.RLock("renewed"))
	replicas[0].Freeze(t)
	frozen := time.Now()
	for name, l := range map[string]redlatch.Locker{
		"plain": c.RLock("plain"), "fair": c.FairLock("fair"), "m1": redlatch.MultiLock(c.RLock("m1"), c.RLock("m2")),
	} {
		got := make(chan error, 1)
		go func() {
			_, err := l.Lock(within(t, 30*time.Second))
			got <- err
		}()
		eventually(t, 5*time.Second, "the acquisition under way", func() bool { return master.Int(t, "EXISTS", name) == 1 })
		// While it waits for the replicas, the client's other commands do not.
		began := time.Now()
		if _, err := c.RLock("kept").State(t.Context()); err != nil {
			t.Error(err)
		}
		if err := kept.Extend(t.Context(), lease); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > ackTimeout/2 {
			t.Errorf("%s: other commands waited %v behind WAIT", name, took)
		}
		err := <-got
		var e *redlatch.ReplicaAcksError
		if !errors.Is(err, redlatch.ErrReplicaAcks) || !errors.As(err, &e) || e.Want != 2 || e.Got != 1 {
			t.Errorf("%s: %v", name, err)
		}
		if n := master.Int(t, "EXISTS", name, "m2"); n != 0 {
			t.Errorf("%s: the acquisition was not undone", name)
		}
	}
	time.Sleep(time.Until(frozen.Add(shortLease * 4 / 3)))
	for _, h := range []redlatch.Hold{kept, renewed} {
		if h.Context().Err() != nil {
			t.Errorf("a held lock was lost for a slow replica: %v", context.Cause(h.Context()))
		}
	}
	again, err := short.RLock("renewed").Lock(renewed.Context())
	if err != nil {
		t.Fatalf("re-entry: %v", err)
	}
	bed.Unlock(t, again)
	bed.Unlock(t, renewed)
	bed.Unlock(t, kept)
	replicas[0].Thaw(t)
	set.AwaitSync(t)
	warm(t, master, 2)
	bed.Unlock(t, mustLock(t, within(t, 30*time.Second), c.RLock("plain")))
}

// warm waits until n replicas acknowledge: a link that has just been made takes a
// second for its first time.
func warm(t *testing.T, master *testbed.Server, n int64) {
	t.Helper()
	eventually(t, 20*time.Second, "acknowledgements", func() bool {
		master.Do(t, "SET", "warm", "1", "PX", "1")
		return master.Int(t, "WAIT", itoa(n), "1000") == n
	})
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

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
	follow := func(s, master *testbed.Server) { s.Do(t, "REPLICAOF", "127.0.0.1", lines[master]) }
	follow(set.Replicas()[0], set.Master())
	warm(t, set.Master(), 1)
	for _, tc := range []struct {
		name string
		acks int
	}{{"with acks", 1}, {"without", 0}} {
		lostLocks := 0
		for i := range failovers {
			master, next := set.Master(), set.Replicas()[0]
			c := open(t, single(master), acks(tc.acks, 10*time.Second), func(cfg *redlatch.Config) { cfg.LeaseTime = 30 * time.Second })
			if _, err := c.RLock("l").Lock(within(t, 20*time.Second)); err != nil {
				t.Fatalf("%s %d: %v", tc.name, i, err)
			}
			set.Promote(t, next)
			if next.Int(t, "EXISTS", "l") == 0 {
				lostLocks++
			}
			c.Close()
			next.Do(t, "DEL", "l")
			follow(master, next)
			warm(t, next, 1)
		}
		t.Logf("%s: %d of %d held locks lost", tc.name, lostLocks, failovers)
		switch {
		case tc.acks > 0 && lostLocks > 0:
			t.Errorf("%d acknowledged locks lost", lostLocks)
		case tc.acks == 0 && lostLocks == 0:
			t.Error("none lost without: the test shows nothing")
		}
	}
}

// On a cluster the acknowledgements are those of the master that the script ran on, also after its
// slot has moved: a WAIT that stays behind at the old place would count replicas that have nothing
// to acknowledge.
func TestReplicaAcksOnACluster(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	c := open(t, cluster(set), acks(1, 5*time.Second), func(cfg *redlatch.Config) { cfg.LeaseTime = 15 * time.Second })
	for _, n := range set.Masters(t) {
		eventually(t, 20*time.Second, "acknowledgements", func() bool { return n.Int(t, "WAIT", "1", "1000") == 1 })
	}
	const name = "acked"
	l := c.RLock(name, redlatch.Fenced())
	for range 20 { // the links' first acknowledgements take a second
		h, err := l.Lock(within(t, 30*time.Second))
		if err == nil {
			bed.Unlock(t, h)
			break
		}
		if !errors.Is(err, redlatch.ErrReplicaAcks) {
			t.Fatal(err)
		}
	}
	bed.Unlock(t, mustLock(t, within(t, 30*time.Second), l))

	// The slot moves to a master whose replica stalls. The client does not know.
	slot := testbed.Slot(name)
	from := set.NodeOfSlot(t, slot)
	to := set.Masters(t)[0]
	if to == from {
		to = set.Masters(t)[1]
	}
	replica := set.ReplicasOf(t, to)[0]
	set.MigrateSlot(t, slot, to)
	replica.Freeze(t)
	h, err := l.Lock(within(t, 30*time.Second))
	if !errors.Is(err, redlatch.ErrReplicaAcks) {
		t.Errorf("with a stalled replica at the new place: %v, %v", h, err)
	}
	if n := to.Int(t, "EXISTS", name); n != 0 {
		t.Error("it was not undone")
	}
	replica.Thaw(t)
	eventually(t, 30*time.Second, "the lock with acknowledgements", func() bool {
		h, err := l.Lock(within(t, 30*time.Second))
		if err != nil {
			return false
		}
		bed.Unlock(t, h)
		return true
	})
}
