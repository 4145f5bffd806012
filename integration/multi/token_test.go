package multi

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// last is the largest fencing token, 2^53-1.
const last = 1<<53 - 1

// fencedKinds are locks of all kinds with one name. A reader's token is the last writer's.
func fencedKinds(c *redlatch.Client, name string) map[string]redlatch.Member {
	rw := c.ReadWriteLock(name, redlatch.Fenced())
	return map[string]redlatch.Member{
		"plain": c.RLock(name, redlatch.Fenced()), "fair": c.FairLock(name, redlatch.Fenced()),
		"write": rw.WriteLock(), "read": rw.ReadLock(),
		"group": redlatch.MultiLock(c.RLock(name, redlatch.Fenced()), c.RLock(name+"2", redlatch.Fenced())),
	}
}

// refusedCounter reports whether an error is a server's that blames the fencing counter.
func refusedCounter(err error) bool {
	_, refused := errors.AsType[*redlatch.ServerError](err)
	return refused && strings.Contains(err.Error(), "fencing counter")
}

// TestCounterThatIsNoToken: a counter that is no number, or one that doubles can't count on from, gives no
// token, of any kind: it would be the same one for ever. The error is typed, and nothing is held.
func TestCounterThatIsNoToken(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	for i, bad := range []string{
		"inf", "nan", "-inf", "9007199254740992", "9007199254740991", "1e300", "1e3", "-5", "0", "0x10", "12.5", "x", " 7", "",
		strings.Repeat("9", 400), "0123456789012345", "12345678901234.5", // as long as the usual ones
	} {
		name := "l" + strconv.Itoa(i)
		for kind, l := range fencedKinds(c, name) {
			if kind == "read" && bad == strconv.Itoa(last) {
				continue // a writer had it
			}
			s.Do(t, "SET", luascript.TokenKey(name), bad)
			_, err := l.TryLock(t.Context(), 0, 0)
			if got := s.Text(t, "GET", luascript.TokenKey(name)); !refusedCounter(err) || got != bad {
				t.Errorf("%s: counter %.20q: %v, and it is %.20q", kind, bad, err, got)
			}
			becomeFree(t, name, s)
			becomeFree(t, name+"2", s)
			s.Do(t, "DEL", luascript.TokenKey(name))
		}
	}
	// What is left is given out to the last.
	l := c.RLock("end", redlatch.Fenced())
	s.Do(t, "SET", luascript.TokenKey("end"), strconv.Itoa(last-1))
	h := bed.Lock(t, t.Context(), l)
	bed.Unlock(t, h)
	if _, err := l.TryLock(t.Context(), 0, 0); h.Token() != last || err == nil {
		t.Errorf("token %d, want %d, and after it %v", h.Token(), last, err)
	}
}

// TestQuorumTakesNoMembersWord: a counter of one member that is wrong is not written to the others, whose
// tokens would be used up with it; and two of them leave no majority, which is said.
func TestQuorumTakesNoMembersWord(t *testing.T) {
	t.Parallel()
	x := quorums(t, 3)
	token := uint64(1)
	for _, bad := range []string{"", strconv.Itoa(last - 1), strconv.Itoa(last), "inf"} {
		if bad != "" {
			x.Servers[0].Do(t, "SET", luascript.TokenKey("q"), bad)
		}
		h := bed.Lock(t, t.Context(), x.Lock("q"))
		if h.Token() <= token || h.Token() > token+1e15 && bad != "" {
			t.Errorf("counter %s on one server: token %d after %d", bad, h.Token(), token)
		}
		token = h.Token()
		bed.Unlock(t, h)
		for _, s := range x.Servers[1:] {
			testbed.AtMost(t, s.Int(t, "GET", luascript.TokenKey("q")), 1<<52, bad, "on one; another one's counter")
		}
		becomeFree(t, "q", x.Servers...)
	}
	x.Servers[1].Do(t, "SET", luascript.TokenKey("q"), strconv.Itoa(last-1))
	if err := bed.Get(t, bed.Async(t.Context(), x.Lock("q"))).Err; !refusedCounter(err) {
		t.Errorf("two wrong counters: %v", err)
	}
	becomeFree(t, "q", x.Servers...)
}

// A quorum's tokens increase, whatever majority each holder got, and though a minority of nodes
// keeps losing its counters.
func TestQuorumTokensIncrease(t *testing.T) {
	const nodes, steps = 5, 120
	x := quorums(t, nodes)
	counter := luascript.TokenKey("q")
	var last uint64
	for step := range steps {
		var blockers []redlatch.Hold // taken by another: these nodes can't be part of it
		for _, i := range rand.Perm(nodes)[:rand.IntN(3)] {
			blockers = append(blockers, bed.Lock(t, t.Context(), x.Direct[i].RLock("q")))
		}
		members := copies(x.Direct, "q", redlatch.Fenced())
		rand.Shuffle(nodes, func(i, j int) { members[i], members[j] = members[j], members[i] })
		q := redlatch.QuorumLock(members...)
		h := bed.Lock(t, t.Context(), q)
		token := h.Token()
		again := bed.Lock(t, h.Context(), q)
		if token <= last || again.Token() != token {
			t.Fatalf("step %d: token %d after %d, and %d of a re-entry", step, token, last, again.Token())
		}
		last = token
		have := 0 // the largest stands on a majority
		for _, s := range x.Servers {
			if s.List(t, "MGET", counter)[0] == strconv.FormatUint(token, 10) {
				have++
			}
		}
		testbed.AtLeast(t, have, nodes/2+1, "nodes that have the token, in step", step)
		bed.Unlock(t, append(blockers, again, h)...)
		p := rand.Perm(nodes)
		switch {
		case step%3 == 0:
			// One node's counter is ahead, as after a holder that never got its majority.
			x.Servers[p[0]].Do(t, "SET", counter, strconv.FormatUint(last+uint64(rand.IntN(50_000)), 10))
		case last < uint64(time.Now().UnixMicro()):
			// A minority loses its counters: the clock, which is past the token,
			// goes on where they were.
			x.Servers[p[0]].Do(t, "DEL", counter)
			x.Servers[p[1]].Do(t, "DEL", counter)
		}
	}
}

// TestFencedQuorumKeepsALateCopy: a copy that came after the round was won is one of the hold's, with its token,
// though its server's clock gave it a newer one, or its counter is behind: it may outlive one of the majority, and then
// be all that the next quorum has in common with this one.
func TestFencedQuorumKeepsALateCopy(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second // no stall of the machine ends it
	for what, behind := range map[string]bool{"its token is newer": false, "its counter is behind": true} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
			q, counter := x.Lock("q"), luascript.TokenKey("q")
			x.Proxies[2].Delay(testbed.Requests, leaseTime/60) // a node has leaseTime/20 to answer
			var h redlatch.Hold
			bed.Eventually(t, "a late third copy", func() bool { // on a busy machine it is too late, or not late
				for _, s := range x.Servers[:2] {
					if behind {
						s.Do(t, "SET", counter, strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10))
					}
				}
				h = bed.Lock(t, t.Context(), q)
				late := tokens(h)[2] == 0
				for end := time.Now().Add(time.Second); late && time.Now().Before(end); time.Sleep(2 * time.Millisecond) {
					if tokens(h)[2] != 0 {
						return true
					}
				}
				bed.Unlock(t, h)
				return false
			})
			if n := x.Servers[2].Int(t, "GET", counter); behind != (n == int64(h.Token())) {
				t.Errorf("the counter of the third is %d, the hold's token %d", n, h.Token())
			}
			outlives(t, x, leaseTime, h)
			again := bed.Lock(t, h.Context(), q)
			bed.Unlock(t, again, h)
			next := bed.Lock(t, t.Context(), q)
			bed.Unlock(t, next)
			if again.Token() != h.Token() || next.Token() <= h.Token() {
				t.Errorf("token %d, of a re-entry %d, of the next one %d", h.Token(), again.Token(), next.Token())
			}
		})
	}
}

// A copy that only a re-entry got, since another had it when the hold was granted, is one of the
// hold's.
func TestFencedReentryTakesTheFreeCopy(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second // no stall of the machine ends it
	x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
	busy := bed.Lock(t, t.Context(), x.Direct[2].RLock("q"))
	job := redlatch.WithOwner(t.Context(), "job") // so that the one's end is not the other's
	h := bed.Lock(t, job, x.Lock("q"))
	bed.Unlock(t, busy)
	again := whole(t, job, x.Lock("q"))
	testbed.Equal(t, again.Token(), h.Token(), "the token of a re-entry")
	outlives(t, x, leaseTime, again)
	bed.Unlock(t, again)
	_ = h.Unlock(t.Context()) // it had two copies, one on the node that was lost
}

// A fenced re-entry has the token of its hold, also when a copy of the hold is slow, and a free one
// is there in its stead.
func TestFencedReentryHasTheTokenOfItsHold(t *testing.T) {
	t.Parallel()
	x := quorums(t, 3, redlatch.WithLeaseTime(6*time.Second))
	busy := bed.Lock(t, t.Context(), x.Direct[2].RLock("q"))
	h := bed.Lock(t, t.Context(), x.Lock("q"))
	bed.Unlock(t, busy)
	x.Proxies[1].Pause(testbed.Replies)
	slow, err := x.Lock("q").TryLock(h.Context(), 0, 0)
	x.Proxies[1].Resume(testbed.Replies)
	again := []redlatch.Hold{bed.Lock(t, h.Context(), x.Lock("q"))}
	if err == nil {
		again = append(again, slow)
	} else {
		bed.Want(t, err, redlatch.ErrNotAcquired)
	}
	for _, a := range again {
		testbed.Equal(t, a.Token(), h.Token(), "the token of a re-entry")
		bed.Unlock(t, a)
	}
	bed.Unlock(t, h)
}

// TestFencedQuorumAfterALostOne: an owner that lost a majority, and still has a copy of it, takes
// the lock anew: with a token that is newer than those of the holders between.
func TestFencedQuorumAfterALostOne(t *testing.T) {
	t.Parallel()
	x := quorums(t, 3, redlatch.WithLeaseTime(5*time.Second)) // no stall of the machine ends it
	job := redlatch.WithOwner(t.Context(), "job")
	lost := whole(t, job, x.Lock("q"))
	first := lost.Token()
	for _, s := range x.Servers[1:] {
		s.Do(t, "DEL", "q")
	}
	bed.Want(t, bed.Ended(t, lost), redlatch.ErrLeaseLost)
	between := bed.Lock(t, t.Context(), x.Beside("q"))
	bed.Unlock(t, between)
	held(t, x.Servers[0], "q")
	h := bed.Lock(t, job, x.Lock("q"))
	if h.Token() <= between.Token() || lost.Token() != first {
		t.Errorf("token %d after %d; the lost hold's, whose late writes must not pass, is %d, and was %d",
			h.Token(), between.Token(), lost.Token(), first)
	}
	bed.Unlock(t, h)
	bed.Want(t, lost.Unlock(t.Context()), redlatch.ErrLeaseLost)
}

// A fenced re-entry of a quorum without a token is refused, at once: 0 would be no token, and no
// other try would make one.
func TestFencedReentryOfAQuorumWithoutToken(t *testing.T) {
	t.Parallel()
	x := quorums(t, 3)
	h := bed.Lock(t, t.Context(), quorum(x.Through, "q"))
	bed.Want(t, bed.Get(t, bed.Async(h.Context(), x.Lock("q"))).Err, redlatch.ErrInvalidOption)
	bed.Unlock(t, h)
}

// Each fenced member has its token; the whole's is the highest of them.
func TestTokensPerMember(t *testing.T) {
	t.Parallel()
	c := bed.Client(t, bed.Server(t).Addr())
	fenced := func(name string) redlatch.Member { return c.RLock(name, redlatch.Fenced()) }
	m := redlatch.MultiLock(fenced("b"), c.RLock("plain"), redlatch.MultiLock(fenced("a"), fenced("c")))
	before := []uint64{0, 0, 0}
	for range 3 {
		h := bed.Lock(t, t.Context(), m)
		again := bed.Lock(t, h.Context(), m)
		got := tokens(h)
		if len(got) != 3 || got[0] <= before[0] || got[1] != 0 || got[2] <= before[2] {
			t.Fatalf("tokens %v after %v", got, before)
		}
		if h.Token() != slices.Max(got) || !slices.Equal(tokens(again), got) {
			t.Errorf("token %d of %v, %v of the re-entry", h.Token(), got, tokens(again))
		}
		before = got
		bed.Unlock(t, again, h)
	}
}

// TestFenceOfALockNamedTwice: what is fenced once is fenced, of whatever kind.
func TestFenceOfALockNamedTwice(t *testing.T) {
	t.Parallel()
	c := bed.Client(t, bed.Server(t).Addr())
	rw, fencedRW := c.ReadWriteLock("l"), c.ReadWriteLock("l", redlatch.Fenced())
	bed.Unlock(t, bed.Lock(t, t.Context(), fencedRW.WriteLock())) // a reader's token is that of the last writer
	for what, pair := range map[string][2]redlatch.Member{
		"plain": {c.RLock("l"), c.RLock("l", redlatch.Fenced())},
		"fair":  {c.FairLock("l"), c.FairLock("l", redlatch.Fenced())},
		"read":  {rw.ReadLock(), fencedRW.ReadLock()},
		"write": {rw.WriteLock(), fencedRW.WriteLock()},
		"both":  {rw.ReadLock(), fencedRW.WriteLock()},
	} {
		for _, m := range []redlatch.Member{redlatch.MultiLock(pair[0], pair[1]), redlatch.MultiLock(pair[1], pair[0])} {
			h := bed.Lock(t, t.Context(), m)
			testbed.Equal(t, slices.Contains(tokens(h), 0), false, what, "without a token:", tokens(h))
			bed.Unlock(t, h)
		}
	}
}
