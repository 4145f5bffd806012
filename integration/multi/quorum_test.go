package multi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestQuorumWithTwoAway: any two of five down, stopped, slow or cut off: lock and
// unlock work, and cost one time limit of a node, not two and not more. What a machine
// that is busy adds to one call says nothing of the cost, so the cheapest of some counts;
// each must still be far from the time after which a silent connection is given up. What stays on
// the two, of a hold from before and of attempts without an answer, is freed when they are back.
func TestQuorumWithTwoAway(t *testing.T) {
	const (
		limit   = 500 * time.Millisecond // of a node
		silence = 4 * time.Second        // until a connection counts as broken
	)
	for what, goes := range away {
		t.Run(what, func(t *testing.T) {
			x := quorums(t, 5, redlatch.WithLeaseTime(20*time.Second))
			q := x.Lock("q")
			h := whole(t, t.Context(), q)
			token := h.Token()
			var back []func()
			for _, i := range []int{1, 3} {
				back = append(back, goes(t, x.Servers[i], x.Proxies[i]))
			}
			bed.Unlock(t, h)
			lockCost, unlockCost := silence, silence
			for range 4 {
				began := time.Now()
				h := bed.Lock(t, t.Context(), q)
				took := time.Since(began)
				began = time.Now()
				bed.Unlock(t, h)
				freed := time.Since(began)
				testbed.AtMost(t, max(took, freed), silence-limit, "the slower of Lock and Unlock took")
				lockCost, unlockCost = min(lockCost, took), min(unlockCost, freed)
				testbed.AtLeast(t, h.Token(), token+1, "its token")
				token = h.Token()
			}
			testbed.AtMost(t, lockCost, limit+limit/2, "Lock took, at best")
			testbed.AtMost(t, unlockCost, limit+limit/2, "Unlock took, at best")
			for _, f := range back {
				f()
			}
			becomeFree(t, "q", x.Servers...)
		})
	}
}

// TestQuorumThreeDown: a quorum is unavailable only if no majority answers: ErrUnavailable then, with each
// node's error, within the wait, and nothing stays locked on the living two. A living node that answers later than
// within 500 ms, its limit, is rightly told of, too: a busy machine does that now and then, not in every attempt.
func TestQuorumThreeDown(t *testing.T) {
	t.Parallel()
	const most = 3500 * time.Millisecond                      // in 4 s a connection counts as broken
	x := quorums(t, 5, redlatch.WithLeaseTime(3*time.Minute)) // what is left behind stays for longer than the test waits
	q := x.Lock("q")
	tells := func(unavailable bool, of ...int) {
		t.Helper()
		var exact []string
		for _, i := range of {
			exact = append(exact, x.Proxies[i].Addr())
		}
		for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
			bed.Eventually(t, "an attempt that tells of all that are away, in their order, and of no living one", func() bool {
				began := time.Now()
				_, err := q.TryLock(t.Context(), wait, 0)
				testbed.Between(t, time.Since(began), wait, wait+most, "the wait took")
				var told []string
				if un, is := errors.AsType[*redlatch.UnavailableError](err); is {
					for _, n := range un.Nodes {
						told = append(told, n.Node)
					}
				}
				outcome(t, err, !unavailable && told == nil, unavailable || told != nil)
				return slices.Equal(told, exact)
			})
		}
	}
	h := bed.Lock(t, t.Context(), x.Beside("q"))
	x.Servers[2].Freeze(t)
	tells(false) // it is held, and a majority says so
	for _, i := range []int{0, 4} {
		x.Proxies[i].Refuse()
		x.Proxies[i].Cut()
	}
	tells(true, 0, 2, 4)
	bed.Unlock(t, h)
	tells(true, 0, 2, 4)
	becomeFree(t, "q", x.Servers[1], x.Servers[3])
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err := q.Lock(ctx)
	bed.Want(t, err, context.DeadlineExceeded)
	outcome(t, err, false, true)

	// One comes back: a Lock that waits goes on.
	got := bed.Async(t.Context(), q)
	x.Servers[2].Thaw(t)
	bed.Unlock(t, bed.Hold(t, got))
	becomeFree(t, "q", x.Servers[1:4]...)
}

// TestWaitEndsBesideASilentQuorum: a wait ends in time though a majority of servers is silent, also that of a MultiLock
// that the quorum is a member of: it does not last as long as a node may take to answer, 500 ms. A busy machine can be
// slow once, not each time.
func TestWaitEndsBesideASilentQuorum(t *testing.T) {
	t.Parallel()
	const wait = 20 * time.Millisecond
	x := quorums(t, 3, redlatch.WithLeaseTime(20*time.Second))
	q := quorum(x.Through, "q", redlatch.Fenced())
	both := redlatch.MultiLock(q, bed.Client(t, bed.Server(t).Addr()).RLock("other"))
	bed.Unlock(t, bed.Lock(t, t.Context(), both))
	for _, p := range x.Proxies[:2] {
		p.Pause(testbed.Requests)
		defer p.Resume(testbed.Requests)
	}
	for what, l := range map[string]redlatch.Locker{"the quorum": q, "the MultiLock": both} {
		least := time.Minute
		for range 5 {
			began := time.Now()
			if _, err := l.TryLock(t.Context(), wait, 0); err == nil {
				t.Fatalf("%s: acquired", what)
			}
			least = min(least, time.Since(began))
		}
		testbed.AtMost(t, least, 10*wait, what, "a wait of", wait, "took")
	}
}

// TestQuorumWithoutINFO: nodes that may not say who they are can be trusted in no
// round. That is said at once when they leave no majority.
func TestQuorumWithoutINFO(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	for i, s := range list {
		s.SetUser(t, "app", "on", ">secret", "~*", "&*", "+@all", []string{"+info", "-info", "-info"}[i])
	}
	q := quorum(clients(t, list, redlatch.WithLeaseTime(4*time.Second), func(c *redlatch.Config) {
		c.Redis.Username, c.Redis.Password = "app", "secret"
	}), "q")
	err := bed.Get(t, bed.Async(t.Context(), q)).Err
	outcome(t, err, false, false)
	testbed.Equal(t, bed.As[*redlatch.ServerError](t, err).Name, "q", "what is refused")
	for _, s := range list[1:] {
		if !strings.Contains(err.Error(), s.Addr()) {
			t.Errorf("node %s is not named: %v", s.Addr(), err)
		}
	}
	becomeFree(t, "q", list...)
	list[1].Do(t, "ACL", "SETUSER", "app", "+info") // one without is a minority
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	becomeFree(t, "q", list...)
}

// TestQuorumLoss: the hold ends when no majority is left, not before.
func TestQuorumLoss(t *testing.T) {
	t.Parallel()
	const leaseTime = 9 * time.Second // no stall of the machine ends it, or is as long as the time between two checks
	x := quorums(t, 5, redlatch.WithLeaseTime(leaseTime))
	h := whole(t, t.Context(), x.Lock("q"))
	x.Servers[0].Kill(t)
	x.Servers[1].Do(t, "DEL", "q")
	time.Sleep(leaseTime * 5 / 4) // over a lease: the other three keep it
	bed.Alive(t, h)
	testbed.AtLeast(t, time.Until(h.ValidUntil()), 1, "valid for")
	x.Servers[2].Freeze(t)
	lost, is := errors.AsType[*redlatch.LeaseLostError](bed.Ended(t, h))
	if late := time.Since(h.ValidUntil()); !is || lost.Reason != "member" || late > leaseTime/4 { // the checks are a third apart
		t.Errorf("%v, %v after its deadline, the lease is %v", context.Cause(h.Context()), late, leaseTime)
	}
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	x.Servers[2].Thaw(t)
	becomeFree(t, "q", x.Servers...)
}

// TestQuorumDoesNotWaitForAMinority: who waits for a quorum tries again when the leases of a
// majority have ended, though a dead holder left a long one on the third node.
func TestQuorumDoesNotWaitForAMinority(t *testing.T) {
	t.Parallel()
	x := quorums(t, 3)
	left := bed.Lock(t, t.Context(), x.Direct[2].RLock("q"), redlatch.WithLease(time.Hour))
	for i := range 2 {
		bed.Lock(t, t.Context(), x.Direct[i].RLock("q"), redlatch.WithLease(2*time.Second))
		x.Proxies[i].Delay(testbed.Replies, 20*time.Millisecond) // what the third node says comes first
	}
	bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock("q")))
	bed.Unlock(t, left)
}

// TestQuorumExtendsAllItsCopies: an Extend that a majority has answered goes on for the others,
// so that the hold can lose a node as before.
func TestQuorumExtendsAllItsCopies(t *testing.T) {
	t.Parallel()
	const short = 5 * time.Second
	x := quorums(t, 3)
	h := whole(t, t.Context(), x.Lock("q"), redlatch.WithLease(short))
	taken := time.Now()
	x.Proxies[2].Delay(testbed.Replies, 100*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	bed.Want(t, h.Extend(ctx, 25*time.Second), nil)
	cancel() // as one does when a call has returned
	time.Sleep(time.Until(taken.Add(short + 500*time.Millisecond)))
	testbed.Equal(t, heldOn(t, x.Servers, "q"), 3, "copies that are left after the first lease")
	x.Servers[0].Do(t, "DEL", "q")
	bed.Alive(t, h)
	bed.Unlock(t, h)
}

// TestValidUntilIsOfWhatIsHeld: a lost copy's deadline says nothing of how long the others last.
func TestValidUntilIsOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	const leaseTime = 12 * time.Second
	x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
	o := bed.Lock(t, t.Context(), bed.Client(t, x.Servers[0].Addr()).RLock("o"))
	h := whole(t, o.Context(), x.Lock("q"))
	x.Servers[2].Freeze(t)
	taken := time.Now() // the frozen node has renewed nothing since then
	bed.Eventually(t, "a renewal of two", func() bool { return h.ValidUntil().After(taken.Add(leaseTime + time.Second)) })
	x.Servers[0].Do(t, "DEL", "q")
	extended := make(chan error, 1)
	go func() { extended <- h.Extend(context.Background(), leaseTime) }() // finds out
	bed.Eventually(t, "the frozen node's deadline", func() bool { return h.ValidUntil().Before(taken.Add(leaseTime)) })
	bed.Alive(t, h)
	x.Servers[2].Thaw(t)
	bed.Want(t, <-extended, nil)
	bed.Eventually(t, "two renewed copies", func() bool { return h.ValidUntil().After(taken.Add(leaseTime)) })
	bed.Unlock(t, o)
	<-h.Context().Done() // with the context that it was acquired with, no more
	testbed.AtLeast(t, time.Until(h.ValidUntil()), 1, "valid after the end of its context for")
	bed.Unlock(t, h)
}
