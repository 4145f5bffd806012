package multi

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// A second Unlock asks for what is left when the first one got no answer in time, within its own
// time.
func TestSecondUnlockGoesOnWhereTheFirstGaveUp(t *testing.T) {
	t.Parallel()
	const limit = 4 * time.Second
	list := servers(t, 2)
	cs := clients(t, addrs(list), func(c *redlatch.Config) { c.UnlockTimeout = limit })
	h := bed.Lock(t, t.Context(), across(cs, []string{"a", "b"}))
	list[1].Freeze(t)
	first, second := make(chan error, 1), make(chan error, 1)
	go func() { first <- h.Unlock(context.Background()) }()
	<-h.Context().Done()
	time.Sleep(limit / 4 * 3) // so that the second has as much left when the first gives up
	go func() { second <- h.Unlock(context.Background()) }()
	want(t, <-first, redlatch.ErrUnavailable)
	list[1].Thaw(t)
	if err := <-second; err != nil {
		t.Errorf("the second Unlock, for the member without an answer: %v", err)
	}
	free(t, list[0], "a")
	free(t, list[1], "b")
	want(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
}

// TestUnlockBlocksForOneUnlockTimeout: however many members do not answer, they are waited for
// together.
func TestUnlockBlocksForOneUnlockTimeout(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second
	list := servers(t, 4)
	cs := clients(t, addrs(list), func(c *redlatch.Config) { c.UnlockTimeout = limit })
	h := bed.Lock(t, t.Context(), across(cs, []string{"a", "b", "c", "d"}))
	for _, s := range list {
		s.Freeze(t)
	}
	began := time.Now()
	err := h.Unlock(t.Context())
	took := time.Since(began)
	for _, s := range list {
		s.Thaw(t)
	}
	want(t, err, redlatch.ErrUnavailable)
	if took >= 2*limit {
		t.Errorf("Unlock blocked for %v with an UnlockTimeout of %v", took, limit)
	}
	for i, n := range []string{"a", "b", "c", "d"} {
		becomesFree(t, list[i], n)
	}
}

// TestPassingRefusalOfOneMember: a release that the server refuses for a while is tried again for each member, whatever
// the first one's answer. The first one needs no write here, since its owner goes on holding it.
func TestPassingRefusalOfOneMember(t *testing.T) {
	for refusal, set := range map[string][2][]string{
		"NOREPLICAS": {{"CONFIG", "SET", "min-replicas-to-write", "1"}, {"CONFIG", "SET", "min-replicas-to-write", "0"}},
		"READONLY":   {{"REPLICAOF", "127.0.0.1", "1"}, {"REPLICAOF", "NO", "ONE"}},
	} {
		t.Run(refusal, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			c := bed.Client(t, s.Addr())
			m := redlatch.MultiLock(plain(c, "a", "{a}2", "{a}3")...)
			bed.Unlock(t, bed.Lock(t, t.Context(), m)) // the scripts are loaded
			outer := bed.Lock(t, t.Context(), c.RLock("a"), redlatch.WithLease(time.Minute))
			h := bed.Lock(t, outer.Context(), m, redlatch.WithLease(time.Minute))
			s.Do(t, set[0]...)
			before := s.CommandStats(t)
			said := make(chan error, 1)
			go func() { said <- h.Unlock(context.Background()) }()
			bed.Eventually(t, "a release", func() bool { return s.CommandStats(t).Sub(before).Calls["evalsha"] > 0 })
			s.Do(t, set[1]...)
			if err := <-said; err != nil {
				t.Errorf("Unlock: %v", err)
			}
			becomesFree(t, s, "{a}2", "{a}3")
			bed.Unlock(t, outer)
			free(t, s, "a")
		})
	}
}
