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

// outcome is what an error must say of an acquisition that ended without a hold.
func outcome(t *testing.T, err error, notAcquired, unavailable bool) {
	t.Helper()
	if errors.Is(err, redlatch.ErrNotAcquired) != notAcquired || errors.Is(err, redlatch.ErrUnavailable) != unavailable {
		t.Errorf("not acquired should be %v, unavailable %v: %v", notAcquired, unavailable, err)
	}
	if err != nil && strings.ContainsAny(err.Error(), "\r\n") {
		t.Errorf("more than one line: %q", err)
	}
}

// TestErrorsOfAMultiLock: a busy member and a server that is away are both told, of which the outage decides.
func TestErrorsOfAMultiLock(t *testing.T) {
	list := servers(t, 2)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	m := across(cs, []string{"a", "b"})
	bed.Unlock(t, bed.Lock(t, t.Context(), m))
	h := bed.Lock(t, t.Context(), others[0].RLock("a"))
	list[1].Kill(t) // one busy, one away: it is both
	_, err := m.TryLock(t.Context(), 0, 0)
	if outcome(t, err, false, true); err == nil {
		t.FailNow()
	}
	var busy *redlatch.NotAcquiredError
	var un *redlatch.UnavailableError
	if !errors.As(err, &busy) || busy.Holder == "" || !errors.As(err, &un) || len(un.Nodes) == 0 || un.Nodes[0].Node != list[1].Addr() {
		t.Errorf("details %v", err)
	}
	if text := err.Error(); !strings.Contains(text, `"a"`) || !strings.Contains(text, "[a b]") {
		t.Errorf("names are missing: %v", err)
	}
	bed.Unlock(t, h)
	free(t, list[0], "a")
}

// A MultiLock whose members have equal names asks the servers who they are, to order them, within
// the wait.
func TestErrorsOfEqualNames(t *testing.T) {
	list := servers(t, 2)
	cs := clients(t, addrs(list)) // silent is what has not answered for a second
	list[1].Freeze(t)
	// One server is asked after the other: the longer wait leaves a second after a late answer of the first.
	for _, wait := range []time.Duration{20 * time.Millisecond, 2500 * time.Millisecond} {
		began := time.Now()
		_, err := redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("x")).TryLock(t.Context(), wait, 0)
		took := time.Since(began)
		late := took >= time.Second // the machine stood still, and silence may be told of
		silent := wait > time.Second || late && errors.Is(err, redlatch.ErrUnavailable)
		outcome(t, err, !silent, silent)
		if took > wait+2*time.Second {
			t.Errorf("a wait of %v took %v", wait, took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("x")).Lock(ctx)
	outcome(t, err, false, true)
	want(t, err, context.DeadlineExceeded)
	list[1].Thaw(t)
	bed.Unlock(t, bed.Lock(t, t.Context(), redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("x"))))
}

// A quorum is unavailable only if no majority answered.
func TestErrorsOfAQuorum(t *testing.T) {
	list := servers(t, 3)
	proxies := make([]*testbed.Proxy, len(list))
	through := make([]string, len(list))
	for i, s := range list {
		proxies[i] = testbed.NewProxy(t, s.Addr())
		through[i] = proxies[i].Addr()
	}
	// Each node is given half a second, the most. A busy machine's may be later, and is rightly told of then, too.
	cs, others := clients(t, through, lease(20*time.Second)), clients(t, addrs(list), lease(time.Minute))
	q := redlatch.QuorumLock(copies(cs, "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q))

	h := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(others, "q")...))
	list[2].Freeze(t) // a minority
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		bed.Eventually(t, "an attempt that both living nodes answer in time", func() bool {
			_, err := q.TryLock(t.Context(), wait, 0)
			var un *redlatch.UnavailableError
			late := errors.As(err, &un) && slices.ContainsFunc(un.Nodes, func(n redlatch.NodeError) bool { return n.Node != through[2] })
			outcome(t, err, true, late)
			return !late
		})
	}
	proxies[1].Refuse() // and now no majority
	proxies[1].Cut()
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		bed.Eventually(t, "an attempt that tells of the two that are away, in their order, and not of the living one", func() bool {
			_, err := q.TryLock(t.Context(), wait, 0)
			outcome(t, err, false, true)
			var un *redlatch.UnavailableError
			return errors.As(err, &un) && len(un.Nodes) == 2 && un.Nodes[0].Node == through[1] && un.Nodes[1].Node == through[2]
		})
	}
	// Who stands behind others in this process is told, too.
	front, cancel := context.WithCancel(t.Context())
	got := bed.Async(front, q)
	bed.Eventually(t, "it is in front", func() bool { return testbed.GoroutinesIn("multilock.(*quorum).run") == 1 })
	_, err := q.TryLock(t.Context(), time.Second, 0)
	outcome(t, err, false, true)
	cancel()
	outcome(t, (<-got).Err, false, true)
	proxies[1].Admit(t)
	list[2].Thaw(t)
	bed.Unlock(t, h)
	for _, s := range list {
		becomesFree(t, s, "q")
	}
}

// TestQuorumWithoutINFO: nodes that may not say who they are can be trusted in no
// round. That is said at once when they leave no majority.
func TestQuorumWithoutINFO(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	for _, s := range list[1:] {
		s.SetUser(t, "app", "on", ">secret", "~*", "&*", "+@all", "-info")
	}
	list[0].SetUser(t, "app", "on", ">secret", "~*", "&*", "+@all")
	cs := clients(t, addrs(list), lease(4*time.Second), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "app", "secret" })
	q := redlatch.QuorumLock(copies(cs, "q")...)
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
	defer cancel()
	r := <-bed.Async(ctx, q)
	outcome(t, r.Err, false, false)
	var refused *redlatch.ServerError
	if !errors.As(r.Err, &refused) || refused.Name != "q" {
		t.Fatalf("details %v", r.Err)
	}
	for _, s := range list[1:] {
		if !strings.Contains(r.Err.Error(), s.Addr()) {
			t.Errorf("node %s is not named: %v", s.Addr(), r.Err)
		}
	}
	for _, s := range list {
		becomesFree(t, s, "q")
	}
	list[1].Do(t, "ACL", "SETUSER", "app", "+info") // one without is a minority
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	for _, s := range list {
		becomesFree(t, s, "q")
	}
}

// TestQuorumLeaseIsBounded: no copy is asked for more than LeaseTime, whatever the acquisition, a re-entry or
// Extend ask for: a restarted server stays out of others' quorums for as long.
func TestQuorumLeaseIsBounded(t *testing.T) {
	const leaseTime = 10 * time.Second
	list := servers(t, 3)
	cs := clients(t, addrs(list), lease(leaseTime))
	q := redlatch.QuorumLock(copies(cs, "q")...)
	for _, first := range []time.Duration{0, 6 * time.Second, 20 * time.Second} {
		h := bed.Lock(t, t.Context(), q, redlatch.WithLease(first))
		if err := h.Extend(t.Context(), time.Hour); err != nil {
			t.Errorf("Extend: %v", err)
		}
		again := bed.Lock(t, h.Context(), q, redlatch.WithLease(time.Hour))
		if err := again.Extend(t.Context(), 2*time.Hour); err != nil {
			t.Errorf("Extend of a re-entry: %v", err)
		}
		for _, s := range list {
			if ttl := s.Int(t, "PTTL", "q"); ttl > leaseTime.Milliseconds() {
				t.Errorf("a TTL of %d ms", ttl)
			}
		}
		for _, of := range []redlatch.Hold{h, again} {
			if left := time.Until(of.ValidUntil()); left > leaseTime {
				t.Errorf("it counts on %v", left)
			}
		}
		bed.Unlock(t, again)
		bed.Unlock(t, h)
		for _, s := range list {
			becomesFree(t, s, "q")
		}
	}
}

// A fenced re-entry of a quorum without a token is refused, at once: 0 would be no token, and no
// other try would make one.
func TestFencedReentryOfAQuorumWithoutToken(t *testing.T) {
	t.Parallel()
	cs := clients(t, addrs(servers(t, 3)))
	h := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(cs, "q")...))
	fenced := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
	ctx, cancel := context.WithTimeout(h.Context(), bed.Patience)
	defer cancel()
	r := <-bed.Async(ctx, fenced)
	want(t, r.Err, redlatch.ErrInvalidOption)
	if ctx.Err() != nil {
		t.Error("it went on trying")
	}
	bed.Unlock(t, h)
	h = bed.Lock(t, t.Context(), fenced)
	if h.Token() == 0 {
		t.Error("no token")
	}
	bed.Unlock(t, h)
}

// TestErrorsOfAQuorumsLine: also who stands behind others of its process hears who holds the lock.
func TestErrorsOfAQuorumsLine(t *testing.T) {
	list := servers(t, 3)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	h := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(others, "q")...))
	results := make(chan error, 6)
	for range cap(results) {
		go func() { // ends with the wait
			_, err := redlatch.QuorumLock(copies(cs, "q")...).TryLock(context.Background(), 3*time.Second, 0)
			results <- err
		}()
	}
	for range cap(results) {
		err := <-results
		outcome(t, err, true, false)
		var busy *redlatch.NotAcquiredError
		if !errors.As(err, &busy) || busy.Holder == "" || busy.Remaining <= 0 {
			t.Errorf("no holder: %v", err)
		}
	}
	bed.Unlock(t, h)
}

// Two kinds of lock on one key are refused: the second would wait for the first.
func TestErrorsOfTwoKindsOnOneKey(t *testing.T) {
	c := clients(t, addrs(servers(t, 1)))[0]
	for _, other := range []redlatch.Member{c.RLock("l"), c.FairLock("l")} {
		_, err := redlatch.MultiLock(c.ReadWriteLock("l").WriteLock(), other).Lock(t.Context())
		want(t, err, redlatch.ErrInvalidOption)
	}
}
