package multi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// five starts 5 masters and a client of each.
func five(t *testing.T, change ...func(*redlatch.Config)) ([]*testbed.Server, []*redlatch.Client) {
	t.Helper()
	list := servers(t, 5)
	return list, clients(t, addrs(list), change...)
}

// heldBy counts the servers on which the lock is taken.
func heldOn(t *testing.T, list []*testbed.Server, name string) int {
	t.Helper()
	n := 0
	for _, s := range list {
		if s.Running() && s.Int(t, "EXISTS", name) == 1 {
			n++
		}
	}
	return n
}

// lockAll takes a quorum with a copy on each server, of the clients cs. A copy that was not answered for in time,
// on a busy machine, is given back, though its server may have granted it: then the quorum is taken again.
func lockAll(
	t *testing.T, ctx context.Context, q redlatch.Member, //nolint:revive // as mustLock
	list []*testbed.Server, cs []*redlatch.Client, opts ...redlatch.AcquireOption,
) redlatch.Hold {
	t.Helper()
	for range 3 {
		h := bed.Lock(t, ctx, q, opts...)
		missing := func(c *redlatch.Client) bool {
			return !slices.ContainsFunc(c.Held(), func(l redlatch.HeldLock) bool { return l.Name == h.Name() })
		}
		for end := time.Now().Add(time.Second); time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
			tokens := h.(redlatch.MultiHold).Tokens() //nolint:forcetypeassert // it is one
			behind := h.Token() > 0 && slices.Contains(tokens, 0)
			if heldOn(t, list, h.Name()) == len(list) && !slices.ContainsFunc(cs, missing) && !behind {
				return h
			}
		}
		testbed.Untested(t, "that the first quorum has all its copies in a second: another one was taken")
		bed.Unlock(t, h)
	}
	t.Fatal("three quorums, and none had all its copies")
	return nil
}

// TestQuorumWithTwoAway: any two of five down, stopped, slow or cut off: lock and
// unlock work, and cost one time limit of a node, not two and not more. What a machine
// that is busy adds to one call says nothing of the cost, so the cheapest of some counts;
// each must still be far from the time after which a silent connection is given up.
func TestQuorumWithTwoAway(t *testing.T) {
	const (
		leaseTime = 20 * time.Second
		limit     = 500 * time.Millisecond // of a node
		silence   = 4 * time.Second        // until a connection counts as broken
	)
	for _, tc := range []struct {
		name string
		away func(t *testing.T, s *testbed.Server, p *testbed.Proxy) (back func())
	}{
		{"down", func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) func() {
			s.Kill(t)
			return func() { s.Restart(t, testbed.Empty) }
		}},
		{"stopped", func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) func() {
			s.Freeze(t)
			return func() { s.Thaw(t) }
		}},
		{"slow", func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) func() {
			p.Delay(testbed.Replies, 2*time.Second)
			return func() { p.Delay(testbed.Replies, 0) }
		}},
		{"cut off", func(t *testing.T, _ *testbed.Server, p *testbed.Proxy) func() {
			p.Refuse()
			p.Cut()
			return func() { p.Admit(t) }
		}},
		{"silent", func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) func() {
			p.Pause(testbed.Requests)
			return func() { p.Resume(testbed.Requests) }
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			list := servers(t, 5)
			proxies := make([]*testbed.Proxy, 5)
			through := make([]string, 5)
			for i, s := range list {
				proxies[i] = testbed.NewProxy(t, s.Addr())
				through[i] = proxies[i].Addr()
			}
			cs := clients(t, through, lease(leaseTime))
			q := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
			h := bed.Lock(t, t.Context(), q)
			token := h.Token()
			bed.Unlock(t, h)
			var back []func()
			for _, i := range []int{1, 3} {
				back = append(back, tc.away(t, list[i], proxies[i]))
			}
			lockCost, unlockCost := silence, silence
			for range 4 {
				began := time.Now()
				h := bed.Lock(t, t.Context(), q)
				took := time.Since(began)
				began = time.Now()
				bed.Unlock(t, h)
				freed := time.Since(began)
				t.Logf("lock %v, unlock %v", took, freed)
				if took > silence-limit || freed > silence-limit {
					t.Errorf("Lock took %v, Unlock %v: until a connection was given up", took, freed)
				}
				lockCost, unlockCost = min(lockCost, took), min(unlockCost, freed)
				if h.Token() <= token {
					t.Errorf("token %d after %d", h.Token(), token)
				}
				token = h.Token()
			}
			if lockCost > limit+limit/2 || unlockCost > limit+limit/2 {
				t.Errorf("Lock took %v and Unlock %v at best, a node's limit is %v", lockCost, unlockCost, limit)
			}
			for _, f := range back {
				f()
			}
			// What was left on the two by attempts without an answer is freed.
			bed.Eventually(t, "free on all five", func() bool { return heldOn(t, list, "q") == 0 })
		})
	}
}

// TestQuorumThreeDown: no quorum of answers: ErrUnavailable with each node's
// error, within the wait, and nothing stays locked on the living two. A living node
// that answers later than within 500 ms, its limit, is rightly told of, too, and may be
// the third that ends the attempt before the frozen one's limit: a busy machine does
// that now and then, not in every attempt.
func TestQuorumThreeDown(t *testing.T) {
	t.Parallel()
	const silence = 4 * time.Second           // until a connection counts as broken
	list, cs := five(t, lease(3*time.Minute)) // what is left behind stays for longer than the test waits
	q := redlatch.QuorumLock(copies(cs, "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	list[0].Kill(t)
	list[2].Freeze(t)
	list[4].Kill(t)
	exact := 0
	for _, wait := range []time.Duration{0, 700 * time.Millisecond, 0} {
		began := time.Now()
		_, err := q.TryLock(t.Context(), wait, 0)
		took := time.Since(began)
		outcome(t, err, false, true)
		var un *redlatch.UnavailableError
		if !errors.As(err, &un) {
			t.Fatalf("details %v", err)
		}
		told := map[string]error{}
		var order []int
		for _, n := range un.Nodes {
			told[n.Node] = n.Err
			order = append(order, slices.Index(addrs(list), n.Node))
		}
		down := 0
		for i, s := range list {
			switch err := told[s.Addr()]; {
			case i%2 == 0 && err != nil:
				down++
			case i%2 != 0 && err != nil && !strings.Contains(err.Error(), "no answer within the time limit"):
				t.Errorf("%s lives: %v", s.Addr(), err)
			}
		}
		if len(told) < 3 {
			t.Errorf("%d are told of, three are down: %v", len(told), un)
		}
		if len(told) != len(un.Nodes) || !slices.IsSorted(order) {
			t.Errorf("not each node once and in their order: %v", un)
		}
		if len(told) == 3 && down == 3 {
			exact++
		}
		if took < wait || took > wait+silence-500*time.Millisecond {
			t.Errorf("a wait of %v took %v", wait, took)
		}
		for _, i := range []int{1, 3} {
			becomesFree(t, list[i], "q")
		}
	}
	if exact == 0 {
		t.Error("the living two are told of each time")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := q.Lock(ctx)
	want(t, err, context.DeadlineExceeded)
	outcome(t, err, false, true)

	// They come back: a Lock that waits goes on.
	got := bed.Async(t.Context(), q)
	list[2].Thaw(t)
	bed.Unlock(t, bed.Hold(t, got))
	for _, i := range []int{1, 2, 3} {
		becomesFree(t, list[i], "q")
	}
}

// TestQuorumLoss: the hold ends when no majority is left, not before.
func TestQuorumLoss(t *testing.T) {
	t.Parallel()
	const leaseTime = 9 * time.Second // no stall of the machine ends it, or is as long as the time between two checks
	list, cs := five(t, lease(leaseTime))
	q := redlatch.QuorumLock(copies(cs, "q")...)
	h := lockAll(t, t.Context(), q, list, cs)
	list[0].Kill(t)
	list[1].Do(t, "DEL", "q")
	time.Sleep(leaseTime * 5 / 4) // over a lease: the other three keep it
	if h.Context().Err() != nil {
		t.Fatalf("the hold ended with a majority left: %v", context.Cause(h.Context()))
	}
	if left := time.Until(h.ValidUntil()); left <= 0 {
		t.Errorf("valid for %v", left)
	}
	list[2].Freeze(t)
	began := time.Now()
	cause := ended(t, h)
	var lost *redlatch.LeaseLostError
	if !errors.As(cause, &lost) || lost.Reason != "member" {
		t.Errorf("cause %v", cause)
	}
	if late := time.Since(h.ValidUntil()); late > leaseTime/4 { // the checks are a third apart; the machine may be slow to tell
		t.Errorf("ended %v after its deadline, %v after the loss, the lease is %v", late, time.Since(began), leaseTime)
	}
	want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	list[2].Thaw(t)
	bed.Eventually(t, "all free", func() bool { return heldOn(t, list, "q") == 0 })
}

// TestRestartedNodeStaysOut: a node that comes back empty counts in no quorum
// until it has been up for a lease, else a second holder could get a majority
// with it.
func TestRestartedNodeStaysOut(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second
	list := servers(t, 3)
	cs, others := clients(t, addrs(list), lease(leaseTime)), clients(t, addrs(list), lease(leaseTime))
	strangers := func() []*redlatch.Client { return clients(t, addrs(list), lease(leaseTime)) }
	q, o := redlatch.QuorumLock(copies(cs, "q")...), redlatch.QuorumLock(copies(others, "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), o)) // it knows the servers
	list[2].Freeze(t)
	h := bed.Lock(t, t.Context(), q) // on 0 and 1 only
	list[2].Thaw(t)
	becomesFree(t, list[2], "q")
	list[1].Kill(t)
	restarted := time.Now()
	list[1].Restart(t, testbed.Empty)

	// 1 has forgotten the lock, 2 never had it: a majority, if 1 counted.
	for _, who := range []*multiLock{o, redlatch.QuorumLock(copies(strangers(), "q")...)} {
		for range 3 {
			oh, err := who.TryLock(t.Context(), 0, 0)
			if took := time.Since(restarted); err == nil && took < leaseTime {
				t.Fatal("two hold the quorum: a restarted node counted after", took)
			} else if err == nil { // late: the node has been up for a lease
				bed.Unlock(t, oh)
			}
			time.Sleep(50 * time.Millisecond)
		}
	}
	_ = h.Unlock(t.Context()) // it lost node 1 and with it the majority
	oh := bed.Lock(t, t.Context(), o)
	bed.Unlock(t, oh)
	// Nodes 0 and 2 are a majority without 1; alone with 1, 0 is not, for a lease.
	list[2].Kill(t)
	oh = bed.Lock(t, t.Context(), o)
	if took := time.Since(restarted); took < leaseTime {
		t.Errorf("a restarted node counted after %v", took)
	}
	bed.Unlock(t, oh)
}

// TestRestartedNodeAndALongLease: a restarted node stays out for LeaseTime, though a lock that it has forgotten
// was taken for longer: its holder has counted on no more, and knows by then that it has lost the copy.
func TestRestartedNodeAndALongLease(t *testing.T) {
	t.Parallel()
	const short, long = 3 * time.Second, time.Minute
	list := servers(t, 3)
	cs, others := clients(t, addrs(list), lease(short)), clients(t, addrs(list), lease(short))
	q, o := redlatch.QuorumLock(copies(cs, "q")...), redlatch.QuorumLock(copies(others, "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), o, redlatch.WithLease(long))) // both know the servers as new
	bed.Unlock(t, bed.Lock(t, t.Context(), q, redlatch.WithLease(long)))
	list[2].Freeze(t)
	h := bed.Lock(t, t.Context(), q, redlatch.WithLease(long)) // on 0 and 1 only
	// A node is waited for half a second, so 2 will not join late.
	time.Sleep(2 * time.Second)
	list[2].Thaw(t)
	becomesFree(t, list[2], "q")
	list[1].Kill(t)
	list[1].Restart(t, testbed.Empty)

	brief := redlatch.QuorumLock(copies(others, "brief")...)
	list[0].Freeze(t)
	bed.Unlock(t, bed.Lock(t, t.Context(), brief)) // waits until 1 counts for a short lease
	list[0].Thaw(t)
	for range 3 {
		oh, err := o.TryLock(t.Context(), 0, long)
		if err == nil && h.Context().Err() == nil {
			t.Fatal("two hold the quorum: a restarted node counted", oh.ValidUntil())
		}
		if err == nil {
			bed.Unlock(t, oh)
		}
		time.Sleep(50 * time.Millisecond)
	}
	want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost) // it lost node 1 and with it the majority
}

// TestStaleLockOnANodeThatComesBack: a node that was cut off during the release
// has a stale lock of ours, which is freed as soon as it is back.
func TestStaleLockOnANodeThatComesBack(t *testing.T) {
	t.Parallel()
	list, cs := five(t, lease(20*time.Second))
	q := redlatch.QuorumLock(copies(cs, "q")...)
	h := lockAll(t, t.Context(), q, list, cs)
	list[3].Freeze(t)
	bed.Unlock(t, h)
	list[3].Thaw(t)
	began := time.Now()
	becomesFree(t, list[3], "q")
	if took := time.Since(began); took > 5*time.Second {
		t.Errorf("freed after %v", took)
	}
}

// TestSplitVotes: clients that each hold a part come apart by random pauses, not
// by waiting out the leases (which are longer than the test may take).
func TestSplitVotes(t *testing.T) {
	list := servers(t, 5)
	const clientsN, rounds = 3, 20
	var wg sync.WaitGroup
	count, worst := 0, time.Duration(0) // guarded by the lock
	began := time.Now()
	for i := range clientsN {
		cs := clients(t, addrs(list), lease(60*time.Second))
		// Each asks the servers in another order.
		members := copies(cs, "q")
		for range i {
			members = append(members[2:], members[:2]...)
		}
		q := redlatch.QuorumLock(members...)
		wg.Go(func() {
			for range rounds {
				start := time.Now()
				err := q.Do(context.Background(), func(context.Context) error {
					worst = max(worst, time.Since(start))
					count++
					return nil
				})
				if err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	t.Logf("%d acquisitions in %v, the longest wait was %v", clientsN*rounds, time.Since(began), worst)
	if worst > 15*time.Second {
		t.Errorf("waited %v", worst)
	}
	if count != clientsN*rounds {
		t.Errorf("count %d, want %d", count, clientsN*rounds)
	}

	// Held in parts by hand: a stranger's two and another's two, freed at once.
	cs, a, b := clients(t, addrs(list)), clients(t, addrs(list)), clients(t, addrs(list))
	bed.Unlock(t, bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(cs, "s")...))) // a majority will do from here on
	ha := bed.Lock(t, t.Context(), redlatch.MultiLock(a[0].RLock("s"), a[1].RLock("s")))
	hb := bed.Lock(t, t.Context(), redlatch.MultiLock(b[2].RLock("s"), b[3].RLock("s")))
	got := bed.Async(t.Context(), redlatch.QuorumLock(copies(cs, "s")...))
	listens(t, list[0], "s")
	bed.Unlock(t, ha)
	bed.Unlock(t, bed.Hold(t, got))
	bed.Unlock(t, hb)
}

// TestAQuorumLeavesNoPlaceWhereItWasRefused: who won a majority, or tried once, waits for no other copy, so its client
// does not stay on the list of those that a release calls.
func TestAQuorumLeavesNoPlaceWhereItWasRefused(t *testing.T) {
	for what, take := range map[string]func(l redlatch.Locker) (redlatch.Hold, error){
		"Lock":       func(l redlatch.Locker) (redlatch.Hold, error) { return l.Lock(t.Context()) },
		"TryLock(0)": func(l redlatch.Locker) (redlatch.Hold, error) { return l.TryLock(t.Context(), 0, 0) },
	} {
		t.Run(what, func(t *testing.T) {
			list := servers(t, 3)
			other := bed.Lock(t, t.Context(), bed.Client(t, list[2].Addr()).RLock("l"))
			defer bed.Unlock(t, other)
			q := redlatch.QuorumLock(copies(clients(t, addrs(list), lease(2*time.Second)), "l")...)
			bed.Eventually(t, "two of three count", func() bool {
				h, err := q.TryLock(t.Context(), 0, 0)
				return err == nil && h.Unlock(t.Context()) == nil
			})
			h, err := take(q)
			if err != nil {
				t.Fatal(err)
			}
			defer bed.Unlock(t, h)
			bed.Eventually(t, "nobody waits at the third server", func() bool {
				return list[2].Int(t, "EXISTS", "redlatch_wait:{l}") == 0
			})
		})
	}
}
