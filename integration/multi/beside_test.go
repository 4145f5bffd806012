package multi

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestNobodyWaitsBehindAQuorum: a quorum that can't get its majority holds up nobody of its process who
// wants one of its copies alone, for whatever lock that copy is part of. Whoever has the others may be the one
// who asks: standing behind the quorum he would wait for ever.
func TestNobodyWaitsBehindAQuorum(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	cs := clients(t, addrs(list))
	lock := func(c *redlatch.Client, name string) redlatch.Member { return c.RLock(name) }
	write := func(c *redlatch.Client, name string) redlatch.Member { return c.ReadWriteLock(name).WriteLock() }
	calls := func(name string) string { return luascript.CallChannel(name) + "*" }
	for _, tc := range []struct {
		name  string
		copy  func(*redlatch.Client, string) redlatch.Member
		whole func(redlatch.Member) redlatch.Member
	}{
		{"plain", lock, func(l redlatch.Member) redlatch.Member { return l }},
		{"multi", lock, func(l redlatch.Member) redlatch.Member {
			return redlatch.MultiLock(l, cs[1].RLock("else"))
		}},
		{"group", lock, func(l redlatch.Member) redlatch.Member {
			return redlatch.MultiLock(l, cs[0].RLock("multi"))
		}},
		{"write", write, func(l redlatch.Member) redlatch.Member { return l }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var members []redlatch.Member
			for _, c := range cs {
				members = append(members, tc.copy(c, tc.name))
			}
			bed.Unlock(t, bed.Lock(t, t.Context(), redlatch.QuorumLock(members...))) // a majority will do from here on
			for _, s := range list {                                                 // that listened to nothing
				if got := s.List(t, "PUBSUB", "CHANNELS", calls(tc.name)); len(got) > 0 {
					t.Fatalf("a subscription of %v", got)
				}
			}
			b, c := bed.Lock(t, t.Context(), members[1]), bed.Lock(t, t.Context(), members[2])
			quorum := bed.Async(t.Context(), redlatch.QuorumLock(members...))
			for _, s := range list {
				bed.Eventually(t, "the quorum waits", func() bool {
					return len(s.List(t, "PUBSUB", "CHANNELS", calls(tc.name))) == 1
				})
			}
			becomesFree(t, list[0], tc.name) // it can't have it alone
			began := time.Now()
			a, err := tc.whole(members[0]).TryLock(t.Context(), woken, 0)
			if err != nil {
				t.Fatalf("a free lock was not acquired within %v: %v", time.Since(began), err)
			}
			blocked(t, quorum)

			// The quorum hears of each end, whoever else stands in line.
			behind := bed.Async(t.Context(), members[0])
			bed.Unlock(t, a)
			bed.Unlock(t, bed.Hold(t, behind))
			bed.Unlock(t, b)
			began = time.Now()
			h := bed.Hold(t, quorum)
			if took := time.Since(began); took > woken {
				t.Errorf("the quorum got its majority after %v", took)
			}
			bed.Unlock(t, h)
			bed.Unlock(t, c)
		})
	}
}

// TestQuorumRestsAside: a quorum that must rest, since what it asks for can't come now, leaves its turn to
// those of its process that can have what they ask for.
func TestQuorumRestsAside(t *testing.T) {
	t.Parallel()
	t.Run("other servers", func(t *testing.T) {
		list := servers(t, 5)
		cs := clients(t, addrs(list))
		// The quorums have a client in common, the one that keeps their lines.
		first := 0
		for i, c := range cs {
			if c.ID() < cs[first].ID() {
				first = i
			}
		}
		list[0], list[first], cs[0], cs[first] = list[first], list[0], cs[first], cs[0]
		away := redlatch.QuorumLock(copies(cs[:3], "q")...)
		here := redlatch.QuorumLock(copies([]*redlatch.Client{cs[0], cs[3], cs[4]}, "q")...)
		list[1].Kill(t)
		list[2].Kill(t)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resting := bed.Async(ctx, away)
		bed.Eventually(t, "the first one is refused", func() bool {
			_, err := away.TryLock(t.Context(), time.Millisecond, 0)
			return errors.Is(err, redlatch.ErrUnavailable)
		})
		bed.Unlock(t, bed.Lock(t, t.Context(), here))
		blocked(t, resting)
		cancel()
		if r := <-resting; r.Err == nil {
			t.Error("a quorum without a majority")
		}
	})
	t.Run("too short a lease", func(t *testing.T) {
		list := servers(t, 3)
		var proxied []string
		var proxies []*testbed.Proxy
		for _, s := range list {
			proxies = append(proxies, testbed.NewProxy(t, s.Addr()))
			proxied = append(proxied, proxies[len(proxies)-1].Addr())
		}
		q := redlatch.QuorumLock(copies(clients(t, proxied), "q")...)
		bed.Unlock(t, bed.Lock(t, t.Context(), q))
		for _, p := range proxies {
			p.Delay(testbed.Replies, 40*time.Millisecond)
		}
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		resting := bed.Async(ctx, q, redlatch.WithLease(100*time.Millisecond)) // 10 ms for an answer
		bed.Eventually(t, "the first one asks", func() bool {
			return list[0].Int(t, "EXISTS", "q") == 1
		})
		bed.Unlock(t, bed.Lock(t, t.Context(), q))
		blocked(t, resting)
		cancel()
		if r := <-resting; r.Err == nil {
			t.Error("a hold whose lease was over before the answer")
		}
		for _, s := range list {
			becomesFree(t, s, "q")
		}
	})
}
