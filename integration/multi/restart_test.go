package multi

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// forgotten is the lock of a quorum that is held on the first two of three servers, of which the second has forgotten
// it: that one and the third are a majority, if it counted.
func forgotten(t *testing.T, x *bed.Site, l redlatch.Locker, opts ...redlatch.AcquireOption) (h redlatch.Hold, restarted time.Time) {
	t.Helper()
	busy := bed.Lock(t, t.Context(), bed.Client(t, x.Servers[2].Addr()).RLock("q"))
	h = bed.Lock(t, t.Context(), l, opts...)
	bed.Unlock(t, busy)
	restarted = time.Now()
	x.Servers[1].Restart(t, testbed.Empty)
	return h, restarted
}

// staysOut fails if somebody gets what is held.
func staysOut(t *testing.T, l redlatch.Locker, first redlatch.Hold) {
	t.Helper()
	h, err := l.TryLock(t.Context(), 0, 0)
	if err != nil {
		return
	}
	if first.Context().Err() == nil {
		t.Errorf("two holders, the first for %v from now", time.Until(first.ValidUntil()))
	}
	bed.Unlock(t, h)
}

// TestRestartedNodeStaysOut: a node that comes back empty counts in no quorum until a process has seen it for a
// LeaseTime, however long that one had seen it before, else a second holder could get a majority with it; nor does who
// asked for a longer lease, and stands still, hold the lock any more when it counts.
func TestRestartedNodeStaysOut(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second
	x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
	strangers := clients(t, x.Servers, redlatch.WithLeaseTime(leaseTime))
	time.Sleep(leaseTime * 5 / 4) // all of them count, and nobody asks them
	first, restarted := forgotten(t, x, x.Lock("q"), redlatch.WithLease(5*leaseTime))
	for _, p := range x.Proxies {
		p.Pause(testbed.Requests)
	}
	for range 3 {
		staysOut(t, x.Beside("q"), first)
		staysOut(t, x.Kind.New(strangers, "q"), first)
		time.Sleep(50 * time.Millisecond)
	}
	second := bed.Lock(t, t.Context(), x.Beside("q"))
	if first.Context().Err() == nil {
		t.Errorf("two holders, the first for %v from now", time.Until(first.ValidUntil()))
	}
	bed.Unlock(t, second)
	bed.Want(t, bed.Ended(t, first), redlatch.ErrLeaseLost)
	for _, p := range x.Proxies {
		p.Resume(testbed.Requests)
	}
	bed.Want(t, first.Unlock(t.Context()), redlatch.ErrLeaseLost)
	x.Servers[2].Kill(t)
	bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside("q")))
	testbed.AtLeast(t, time.Since(restarted), leaseTime, "the restarted node counted after")
}

// TestACopyThatIsLockedAloneToo: whatever its owner asked for of the copies alone, a quorum counts on none for longer
// than LeaseTime after an answer: by then a node that has forgotten it counts again.
func TestACopyThatIsLockedAloneToo(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second
	for what, c := range map[string]struct {
		before, inside func(t *testing.T, ctx context.Context, l redlatch.Locker) redlatch.Hold
	}{
		"extended inside": {inside: func(t *testing.T, ctx context.Context, l redlatch.Locker) redlatch.Hold {
			t.Helper()
			h := bed.Lock(t, ctx, l)
			testbed.Must(t, h.Extend(t.Context(), 5*leaseTime))
			return h
		}},
		"a fixed lease outside": {before: func(t *testing.T, ctx context.Context, l redlatch.Locker) redlatch.Hold {
			t.Helper()
			return bed.Lock(t, ctx, l, redlatch.WithLease(5*leaseTime))
		}},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
			time.Sleep(leaseTime * 5 / 4) // all of them count
			ctx, alone := redlatch.WithOwner(t.Context(), "both"), []redlatch.Hold{}
			each := func(lock func(t *testing.T, ctx context.Context, l redlatch.Locker) redlatch.Hold) {
				for i := 0; i < 2 && lock != nil; i++ {
					alone = append(alone, lock(t, ctx, x.Through[i].RLock("q", redlatch.Fenced())))
				}
			}
			busy := bed.Lock(t, t.Context(), bed.Client(t, x.Servers[2].Addr()).RLock("q"))
			each(c.before)
			first := bed.Lock(t, ctx, x.Lock("q"))
			each(c.inside)
			bed.Unlock(t, busy)
			x.Servers[1].Restart(t, testbed.Empty)
			for _, p := range x.Proxies {
				p.Pause(testbed.Requests)
			}
			second := bed.Lock(t, t.Context(), x.Beside("q"))
			if first.Context().Err() == nil {
				t.Errorf("two holders, the first for %v from now", time.Until(first.ValidUntil()))
			}
			bed.Unlock(t, second)
			for _, p := range x.Proxies {
				p.Resume(testbed.Requests)
			}
			for _, h := range append(alone, first) {
				_ = h.Unlock(t.Context())
			}
		})
	}
}

// TestRestartIsNoNewDeployment: a process that has seen a young server restart does not take the whole for a new
// deployment, whatever is free: what that server forgot may still be held. Nor does one that was started after the
// restart get what is held: as long as a majority has not restarted, a copy is left. What it gets of other locks says
// nothing of this one.
func TestRestartIsNoNewDeployment(t *testing.T) {
	t.Parallel()
	const leaseTime = 9 * time.Second
	began := time.Now()
	x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
	first, restarted := forgotten(t, x, x.Beside("q"))
	strangers := x.Fresh(t)
	saw, later := x.Lock("q"), x.Kind.New(strangers, "q")
	staysOut(t, saw, first)
	staysOut(t, later, first)
	_, err := x.Lock("free").TryLock(t.Context(), 0, 0)
	outcome(t, err, false, true)
	bed.Unlock(t, bed.Lock(t, t.Context(), x.Kind.New(strangers, "free")))
	staysOut(t, later, first)
	_ = first.Unlock(t.Context()) // it lost server 1 and with it the majority
	bed.Unlock(t, bed.Lock(t, t.Context(), later))
	testbed.AtMost(t, time.Since(restarted), leaseTime, "who came later waited for")
	bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock("free")))
	testbed.AtLeast(t, time.Since(began), leaseTime, "young servers count after")
}

// TestNewDeployment: in a new deployment each process needs all servers for its first acquisition of a lock, and a
// majority from then on; the same as ever once the servers are old enough.
func TestNewDeployment(t *testing.T) {
	t.Parallel()
	const leaseTime = 5 * time.Second
	began := time.Now()
	x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
	l := x.Lock("new")
	busy := bed.Lock(t, t.Context(), x.Direct[2].RLock("new"))
	_, err := l.TryLock(t.Context(), 0, 0)
	outcome(t, err, true, false)
	bed.Unlock(t, busy)
	h := bed.Lock(t, t.Context(), l)
	x.Proxies[2].Refuse()
	x.Proxies[2].Cut()
	bed.Unlock(t, bed.Lock(t, h.Context(), l)) // with two of three
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Lock(t, t.Context(), l))
	_, err = x.Lock("another").TryLock(t.Context(), 0, 0)
	outcome(t, err, false, true)
	bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock("another")))
	testbed.AtLeast(t, time.Since(began), leaseTime, "two of three servers counted after")
}

// TestAYoungCopyIsTheHoldsToo: when a majority of servers that count has granted the lock, nobody else has it: so the
// copy of a server that has just restarted is one of the hold's, which outlives the loss of another.
func TestAYoungCopyIsTheHoldsToo(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second
	x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
	time.Sleep(leaseTime * 5 / 4) // all of them count
	x.Servers[2].Restart(t, testbed.Empty)
	h := whole(t, t.Context(), x.Lock("q"))
	outlives(t, x, leaseTime, h)
	bed.Unlock(t, h)
}

// outlives: the hold of a quorum of three outlives its first node.
func outlives(t *testing.T, x *bed.Site, leaseTime time.Duration, h redlatch.Hold) {
	t.Helper()
	x.Servers[0].Kill(t)
	time.Sleep(leaseTime * 5 / 4)
	bed.Alive(t, h)
	x.Servers[0].Restart(t, testbed.Empty)
}

// opened makes clients by URLs, as a program does that knows of no option.
func opened(t *testing.T, addrs []string, opts ...redlatch.ConfigOption) []*redlatch.Client {
	t.Helper()
	out := make([]*redlatch.Client, len(addrs))
	for i, a := range addrs {
		c, err := redlatch.Open("redis://"+a, append(opts, redlatch.WithLogger(slog.New(slog.DiscardHandler)))...)
		testbed.Must(t, err)
		t.Cleanup(c.Close)
		out[i] = c
	}
	return out
}

// TestQuorumOpensWhileAServerIsAway: a program of three Opens and a QuorumLock starts while one server is down, frozen
// or cut off. The lock works as soon as the process has watched the others for a lease, the missing server counts as
// unavailable, and joins when it comes.
func TestQuorumOpensWhileAServerIsAway(t *testing.T) {
	t.Parallel()
	for _, what := range []string{"down", "stopped", "cut off"} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			list := servers(t, 3)
			proxy := testbed.NewProxy(t, list[1].Addr())
			back := away[what](t, list[1], proxy)
			addrs := []string{list[0].Addr(), proxy.Addr(), list[2].Addr()}
			cs := opened(t, addrs, redlatch.WithLeaseTime(3*time.Second))
			q := quorum(cs, "q")
			h := bed.Lock(t, t.Context(), q)
			held(t, list[0], "q")
			held(t, list[2], "q")
			_, err := cs[1].RLock("alone").TryLock(t.Context(), 0, 0)
			bed.Want(t, err, redlatch.ErrUnavailable)
			testbed.Equal(t, errors.Is(err, redlatch.ErrInvalidOption), false, "an invalid option:", err)
			bed.Unlock(t, h)
			back()
			bed.Eventually(t, "a quorum with all three", func() bool {
				h := bed.Lock(t, t.Context(), q)
				defer bed.Unlock(t, h)
				return heldOn(t, list, "q") == 3
			})
		})
	}
}

// TestQuorumWithACluster: a copy on a cluster counts whatever node the lock is on, also beside locks on other nodes,
// which are other runs of a server and no restarts.
func TestQuorumWithACluster(t *testing.T) {
	t.Parallel()
	list := servers(t, 2)
	cs := append(clients(t, list), bed.Client(t, testbed.Cluster(t).Addrs()[0]))
	for turn := range 2 {
		for _, name := range []string{"a", "b", "c"} { // one on each node
			began := time.Now()
			bed.Unlock(t, bed.Lock(t, t.Context(), quorum(cs, name)))
			testbed.AtMost(t, time.Since(began), woken, "turn", turn, name, "acquired after")
		}
		if turn == 0 {
			list[0].Kill(t) // the cluster's copy is needed now
		}
	}
}

// A server that was not there when the Client was made, and turns out to be a node of a cluster,
// has its locks refused, with what to change: a client of single servers does not hear all messages
// there.
func TestOpenMeetsAClusterLate(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t)
	proxy := testbed.NewProxy(t, set.Addrs()[0])
	proxy.Refuse()
	l := opened(t, []string{proxy.Addr()})[0].RLock("l")
	_, err := l.TryLock(t.Context(), 0, 0)
	bed.Want(t, err, redlatch.ErrUnavailable)
	proxy.Admit(t)
	err = bed.Get(t, bed.Async(context.Background(), l)).Err
	_ = bed.As[*redlatch.ServerError](t, err)
	testbed.Equal(t, bed.As[*redlatch.ConnectError](t, err).Reason, redlatch.ConnectTopology, "why")
	free(t, set.NodeOfKey(t, "l"), "l")
}
