package multi

import (
	"math/rand/v2"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A quorum's tokens increase, whatever majority each holder got, and though a minority of nodes
// keeps losing its counters.
func TestQuorumTokensIncrease(t *testing.T) {
	const nodes, steps = 5, 120
	list := servers(t, nodes)
	cs := clients(t, addrs(list))
	bed.Unlock(t, bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(cs, "q")...))) // a majority will do from here on
	counter := "redisson_lock_token:{q}"
	var last uint64
	for step := range steps {
		// A random majority, by asking only these.
		order := rand.Perm(nodes)
		down := map[int]bool{}
		for _, i := range order[:rand.IntN(3)] {
			down[i] = true
		}
		var blockers []redlatch.Hold
		for i := range nodes {
			if down[i] { // taken by another: this node can't be part of it
				blockers = append(blockers, bed.Lock(t, t.Context(), cs[i].RLock("q")))
			}
		}
		members := make([]redlatch.Member, nodes)
		for at, i := range rand.Perm(nodes) {
			members[at] = cs[i].RLock("q", redlatch.Fenced())
		}
		h := bed.Lock(t, t.Context(), redlatch.QuorumLock(members...))
		token := h.Token()
		if token <= last {
			t.Fatalf("step %d: token %d after %d", step, token, last)
		}
		last = token
		// The largest stands on a majority.
		have := 0
		for _, s := range list {
			if n := s.Do(t, "GET", counter); !n.IsNil() && s.Text(t, "GET", counter) == strconv.FormatUint(token, 10) {
				have++
			}
		}
		if have < majority(nodes) {
			t.Fatalf("step %d: the token stands on %d nodes", step, have)
		}
		again := bed.Lock(t, h.Context(), redlatch.QuorumLock(members...))
		if again.Token() != token {
			t.Fatalf("step %d: token %d of a re-entry, %d before", step, again.Token(), token)
		}
		bed.Unlock(t, again)
		bed.Unlock(t, h)
		for _, b := range blockers {
			bed.Unlock(t, b)
		}
		p := rand.Perm(nodes)
		switch {
		case step%3 == 0:
			// One node's counter is ahead, as after a holder that never got its majority.
			list[p[0]].Do(t, "SET", counter, strconv.FormatUint(last+uint64(rand.IntN(50_000)), 10))
		case last < uint64(time.Now().UnixMicro()):
			// A minority loses its counters: the clock, which is past the token,
			// goes on where they were.
			list[p[0]].Do(t, "DEL", counter)
			list[p[1]].Do(t, "DEL", counter)
		}
	}
}

func majority(n int) int { return n/2 + 1 }

// TestLateCopyGetsTheToken: a copy that joins the hold after the round was won has
// the hold's token, too: it may outlive one of the majority, and then be all that
// the next quorum has in common with this one.
func TestLateCopyGetsTheToken(t *testing.T) {
	list := servers(t, 3)
	proxy := testbed.NewProxy(t, list[2].Addr())
	cs := clients(t, []string{list[0].Addr(), list[1].Addr(), proxy.Addr()}, lease(time.Minute))
	q := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q)) // each server is known from here on
	counter := luascript.TokenKey("q")
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	for _, s := range list[:2] {
		s.Do(t, "SET", counter, ahead)
	}
	proxy.Delay(testbed.Requests, 100*time.Millisecond) // less than a node's time limit
	var h redlatch.Hold
	// On a busy machine it may not be late, or later than its time limit: then it is no part of the hold,
	// also if the server has granted it.
	bed.Eventually(t, "a late third copy", func() bool {
		h = bed.Lock(t, t.Context(), q)
		late := list[2].Int(t, "EXISTS", "q") == 0
		for end := time.Now().Add(time.Second); late && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if h.(redlatch.MultiHold).Tokens()[2] != 0 { //nolint:forcetypeassert // it is one
				return true
			}
		}
		bed.Unlock(t, h)
		return false
	})
	if n := list[2].List(t, "MGET", counter)[0]; n != strconv.FormatUint(h.Token(), 10) {
		t.Errorf("the counter of the third is %s, the hold's token %d", n, h.Token())
	}
	held(t, list[2], "q")
	bed.Unlock(t, h)
	proxy.Delay(testbed.Requests, 0)
}
