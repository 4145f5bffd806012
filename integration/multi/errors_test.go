package multi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
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

// TestErrorsOfAMultiLock: whatever ends because its wait or ctx is over says so,
// and that a server failed only when one did.
func TestErrorsOfAMultiLock(t *testing.T) {
	list := servers(t, 2)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	m := across(cs, []string{"a", "b"})
	unlock(t, mustLock(t, t.Context(), m))
	h := mustLock(t, t.Context(), others[0].RLock("a"))
	for _, wait := range []time.Duration{0, time.Millisecond, 100 * time.Millisecond} {
		_, err := m.TryLock(t.Context(), wait, 0)
		outcome(t, err, true, false)
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("two\nlines"))
	_, err := m.Lock(ctx)
	outcome(t, err, true, false)
	want(t, err, context.Canceled)
	ctx, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	_, err = m.Lock(ctx)
	outcome(t, err, true, false)
	want(t, err, context.DeadlineExceeded)

	list[1].Kill(t) // one busy, one away: it is both
	_, err = m.TryLock(t.Context(), 0, 0)
	outcome(t, err, true, true)
	var busy *redlatch.NotAcquiredError
	var un *redlatch.UnavailableError
	if !errors.As(err, &busy) || busy.Holder == "" || !errors.As(err, &un) || un.Nodes[0].Node != list[1].Addr() {
		t.Errorf("details %v", err)
	}
	if text := err.Error(); !strings.Contains(text, `"a"`) || !strings.Contains(text, "[a b]") {
		t.Errorf("names are missing: %v", err)
	}
	unlock(t, h)
	free(t, list[0], "a")
}

// TestErrorsOfEqualNames: to order its members a MultiLock asks the servers who they
// are, within the wait.
func TestErrorsOfEqualNames(t *testing.T) {
	list := servers(t, 2)
	cs := clients(t, addrs(list)) // silent is what has not answered for a second
	list[1].Freeze(t)
	for _, wait := range []time.Duration{20 * time.Millisecond, 1500 * time.Millisecond} {
		began := time.Now()
		_, err := redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("x")).TryLock(t.Context(), wait, 0)
		outcome(t, err, true, wait > time.Second)
		if took := time.Since(began); took > wait+2*time.Second {
			t.Errorf("a wait of %v took %v", wait, took)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("x")).Lock(ctx)
	outcome(t, err, true, true)
	want(t, err, context.DeadlineExceeded)
	list[1].Thaw(t)
	unlock(t, mustLock(t, t.Context(), redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("x"))))
}

// TestErrorsOfAQuorum: it is unavailable only if no majority answered.
func TestErrorsOfAQuorum(t *testing.T) {
	list := servers(t, 3)
	proxies := make([]*testbed.Proxy, len(list))
	through := make([]string, len(list))
	for i, s := range list {
		proxies[i] = testbed.NewProxy(t, s.Addr())
		through[i] = proxies[i].Addr()
	}
	// Each node is given a second, so that a busy machine's are not taken for silent ones.
	cs, others := clients(t, through, lease(20*time.Second)), clients(t, addrs(list), lease(time.Minute))
	q := redlatch.QuorumLock(copies(cs, "q")...)
	unlock(t, mustLock(t, t.Context(), q))

	for _, p := range proxies { // slow, and not given the time
		p.Delay(testbed.Replies, 40*time.Millisecond)
	}
	_, err := q.TryLock(t.Context(), 2*time.Millisecond, 0)
	outcome(t, err, true, false)
	for _, p := range proxies {
		p.Delay(testbed.Replies, 0)
	}
	for _, s := range list {
		becomesFree(t, s, "q")
	}

	h := mustLock(t, t.Context(), redlatch.QuorumLock(copies(others, "q")...))
	list[2].Freeze(t) // a minority
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		_, err := q.TryLock(t.Context(), wait, 0)
		outcome(t, err, true, false)
	}
	proxies[1].Refuse() // and now no majority
	proxies[1].Cut()
	for _, wait := range []time.Duration{0, 300 * time.Millisecond} {
		_, err := q.TryLock(t.Context(), wait, 0)
		outcome(t, err, true, true)
		var un *redlatch.UnavailableError
		if !errors.As(err, &un) || len(un.Nodes) != 2 || un.Nodes[0].Node != through[1] || un.Nodes[1].Node != through[2] {
			t.Errorf("details %v", err)
		}
	}
	// Who stands behind others in this process is told, too.
	front, cancel := context.WithCancel(t.Context())
	got := async(front, q)
	time.Sleep(100 * time.Millisecond) // it is in front
	_, err = q.TryLock(t.Context(), time.Second, 0)
	outcome(t, err, true, true)
	cancel()
	outcome(t, (<-got).err, true, true)
	proxies[1].Admit(t)
	list[2].Thaw(t)
	unlock(t, h)
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
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	r := <-async(ctx, q)
	outcome(t, r.err, false, false)
	var refused *redlatch.ServerError
	if !errors.As(r.err, &refused) || refused.Name != "q" {
		t.Fatalf("details %v", r.err)
	}
	for _, s := range list[1:] {
		if !strings.Contains(r.err.Error(), s.Addr()) {
			t.Errorf("node %s is not named: %v", s.Addr(), r.err)
		}
	}
	for _, s := range list {
		becomesFree(t, s, "q")
	}
	list[1].Do(t, "ACL", "SETUSER", "app", "+info") // one without is a minority
	unlock(t, mustLock(t, t.Context(), q))
	for _, s := range list {
		becomesFree(t, s, "q")
	}
}

// TestQuorumLeaseIsBounded: restarted nodes stay out of others' quorums for as long
// as the first acquisition asked for; no later lease may be longer.
func TestQuorumLeaseIsBounded(t *testing.T) {
	list := servers(t, 3)
	cs := clients(t, addrs(list), lease(5*time.Second))
	q := redlatch.QuorumLock(copies(cs, "q")...)
	for _, tc := range []struct{ first, most time.Duration }{
		{0, 5 * time.Second},
		{2 * time.Second, 5 * time.Second},
		{20 * time.Second, 20 * time.Second},
	} {
		h := mustLock(t, t.Context(), q, redlatch.WithLease(tc.first))
		want(t, h.Extend(t.Context(), tc.most+time.Second), redlatch.ErrInvalidOption)
		_, err := q.Lock(h.Context(), redlatch.WithLease(tc.most+time.Second))
		want(t, err, redlatch.ErrInvalidOption)
		for _, s := range list {
			if ttl := s.Int(t, "PTTL", "q"); ttl > tc.most.Milliseconds() {
				t.Errorf("a TTL of %d ms", ttl)
			}
		}
		again := mustLock(t, h.Context(), q, redlatch.WithLease(tc.most))
		if err := again.Extend(t.Context(), tc.most); err != nil {
			t.Errorf("Extend by %v: %v", tc.most, err)
		}
		want(t, again.Extend(t.Context(), tc.most+time.Second), redlatch.ErrInvalidOption)
		unlock(t, again)
		unlock(t, h)
		for _, s := range list {
			becomesFree(t, s, "q")
		}
	}
}

// TestFencedReentryOfAQuorumWithoutToken is refused, at once: 0 would be no token, and no other
// try would make one.
func TestFencedReentryOfAQuorumWithoutToken(t *testing.T) {
	t.Parallel()
	cs := clients(t, addrs(servers(t, 3)))
	h := mustLock(t, t.Context(), redlatch.QuorumLock(copies(cs, "q")...))
	fenced := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
	ctx, cancel := context.WithTimeout(h.Context(), patience)
	defer cancel()
	r := <-async(ctx, fenced)
	want(t, r.err, redlatch.ErrInvalidOption)
	if ctx.Err() != nil {
		t.Error("it went on trying")
	}
	unlock(t, h)
	h = mustLock(t, t.Context(), fenced)
	if h.Token() == 0 {
		t.Error("no token")
	}
	unlock(t, h)
}

// TestErrorsOfABadOwner: no server is asked, and no other try would make it better.
func TestErrorsOfABadOwner(t *testing.T) {
	list := servers(t, 3)
	cs := clients(t, addrs(list))
	ctx, cancel := context.WithTimeout(redlatch.WithOwner(t.Context(), ""), 20*time.Second)
	defer cancel()
	for _, l := range []redlatch.Locker{redlatch.QuorumLock(copies(cs, "q")...), redlatch.MultiLock(plain(cs[0], "a", "b")...)} {
		_, err := l.Lock(ctx)
		outcome(t, err, false, false)
		want(t, err, redlatch.ErrInvalidOption)
	}
}

// TestErrorsOfAQuorumsLine: also who stands behind others of its process hears who holds the lock.
func TestErrorsOfAQuorumsLine(t *testing.T) {
	list := servers(t, 3)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	h := mustLock(t, t.Context(), redlatch.QuorumLock(copies(others, "q")...))
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
	unlock(t, h)
}

// TestErrorsOfTwoKindsOnOneKey: the second would wait for the first.
func TestErrorsOfTwoKindsOnOneKey(t *testing.T) {
	c := clients(t, addrs(servers(t, 1)))[0]
	for _, other := range []redlatch.Locker{c.RLock("l"), c.FairLock("l")} {
		_, err := redlatch.MultiLock(c.ReadWriteLock("l").WriteLock(), other).Lock(t.Context())
		want(t, err, redlatch.ErrInvalidOption)
	}
}
