package multi

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A quorum's tokens increase, whatever majority each holder got, and though a minority of nodes
// keeps losing its counters.
func TestQuorumTokensIncrease(t *testing.T) {
	const nodes, steps = 5, 120
	list := servers(t, nodes)
	cs := clients(t, addrs(list))
	unlock(t, mustLock(t, t.Context(), redlatch.QuorumLock(copies(cs, "q")...))) // a majority will do from here on
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
				blockers = append(blockers, mustLock(t, t.Context(), cs[i].RLock("q")))
			}
		}
		members := make([]redlatch.Member, nodes)
		for at, i := range rand.Perm(nodes) {
			members[at] = cs[i].RLock("q", redlatch.Fenced())
		}
		h := mustLock(t, t.Context(), redlatch.QuorumLock(members...))
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
		again := mustLock(t, h.Context(), redlatch.QuorumLock(members...))
		if again.Token() != token {
			t.Fatalf("step %d: token %d of a re-entry, %d before", step, again.Token(), token)
		}
		unlock(t, again)
		unlock(t, h)
		for _, b := range blockers {
			unlock(t, b)
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

// fence is a resource that refuses smaller tokens, and says so when it is used
// by two at once.
type fence struct {
	c    rueidis.Client
	name string
}

var fencedWrite = rueidis.NewLuaScript(`
local seen = tonumber(redis.call('GET', KEYS[1]) or '0')
if tonumber(ARGV[1]) < seen then return 0 end
redis.call('SET', KEYS[1], ARGV[1])
return redis.call('INCR', KEYS[2])
`)

// write reports whether the token was accepted.
func (f fence) write(token uint64) (bool, error) {
	n, err := fencedWrite.Exec(context.Background(), f.c, []string{"fenced:max:" + f.name, "fenced:writes:" + f.name},
		[]string{strconv.FormatUint(token, 10)}).AsInt64()
	return n > 0, err
}

// While a quorum's hold lives, no write of it is refused by a fence, whatever fails on at most two
// of five nodes at a time (killed and started empty, frozen, cut off, slow), with six clients that
// lock and work.
func TestQuorumUnderFaults(t *testing.T) {
	t.Parallel()
	const nodes, workers = 5, 6
	const leaseTime, span = 1500 * time.Millisecond, 15 * time.Second
	list := servers(t, nodes)
	resource := server(t)
	raw, err := rawClient(resource.Addr())
	if err != nil {
		t.Fatal(err)
	}
	defer raw.Close()
	f := fence{raw, "q"}
	proxies := make([]*testbed.Proxy, nodes)
	through := make([]string, nodes)
	for i, s := range list {
		proxies[i] = testbed.NewProxy(t, s.Addr())
		through[i] = proxies[i].Addr()
	}

	stop := make(chan struct{})
	var wg sync.WaitGroup
	var mu sync.Mutex
	got, lost, refused := 0, 0, 0
	for range workers {
		cs := clients(t, through, lease(leaseTime), func(c *redlatch.Config) { c.UnlockTimeout = time.Second })
		q := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				h, err := q.TryLock(context.Background(), 3*time.Second, 0)
				if err != nil {
					if !errors.Is(err, redlatch.ErrNotAcquired) && !errors.Is(err, redlatch.ErrUnavailable) {
						t.Errorf("TryLock: %v", err)
						return
					}
					continue
				}
				mu.Lock()
				got++
				mu.Unlock()
				for range 1 + rand.IntN(4) {
					ok, err := f.write(h.Token())
					if err != nil {
						t.Error(err)
						break
					}
					if !ok {
						// Refused: this one must know by now that it has lost the lock.
						mu.Lock()
						refused++
						if h.Context().Err() == nil && time.Now().Before(h.ValidUntil()) {
							t.Errorf("a holder with a valid hold was fenced off (token %d)", h.Token())
						}
						mu.Unlock()
						break
					}
					time.Sleep(time.Duration(rand.IntN(int(20 * time.Millisecond))))
				}
				if err := h.Unlock(context.Background()); errors.Is(err, redlatch.ErrLeaseLost) {
					mu.Lock()
					lost++
					mu.Unlock()
				}
			}
		})
	}

	end := time.Now().Add(span)
	var emptied time.Time   // a second node may be emptied only when the first counts again
	enough := func() bool { // on a loaded machine it takes longer
		mu.Lock()
		defer mu.Unlock()
		return got >= 100
	}
	for time.Now().Before(end) || !enough() && time.Now().Before(end.Add(2*time.Minute)) {
		p := rand.Perm(nodes)[:1+rand.IntN(2)]
		var back []func()
		for _, i := range p {
			s, proxy := list[i], proxies[i]
			kind := rand.IntN(4)
			if kind == 0 && time.Since(emptied) < 2*leaseTime+2*time.Second {
				kind = 1
			}
			switch kind {
			case 0:
				emptied = time.Now()
				s.Kill(t)
				back = append(back, func() { s.Restart(t, testbed.Empty) })
			case 1:
				s.Freeze(t)
				back = append(back, func() { s.Thaw(t) })
			case 2:
				proxy.Refuse()
				proxy.Cut()
				back = append(back, func() { proxy.Admit(t) })
			case 3:
				proxy.Delay(testbed.Replies, 300*time.Millisecond)
				back = append(back, func() { proxy.Delay(testbed.Replies, 0) })
			}
		}
		time.Sleep(time.Duration(rand.IntN(int(800 * time.Millisecond))))
		for _, b := range back {
			b()
		}
		time.Sleep(time.Duration(rand.IntN(int(400 * time.Millisecond))))
	}
	close(stop)
	wg.Wait()
	t.Logf("%d acquisitions, %d lost, %d writes refused", got, lost, refused)
	if got < 20 {
		t.Errorf("only %d acquisitions", got)
	}
	eventually(t, "all free", func() bool { return heldOn(t, list, "q") == 0 })
}

// TestLateCopyGetsTheToken: a copy that joins the hold after the round was won has
// the hold's token, too: it may outlive one of the majority, and then be all that
// the next quorum has in common with this one.
func TestLateCopyGetsTheToken(t *testing.T) {
	list := servers(t, 3)
	proxy := testbed.NewProxy(t, list[2].Addr())
	cs := clients(t, []string{list[0].Addr(), list[1].Addr(), proxy.Addr()}, lease(time.Minute))
	q := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
	unlock(t, mustLock(t, t.Context(), q)) // each server is known from here on
	counter := luascript.TokenKey("q")
	ahead := strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10)
	for _, s := range list[:2] {
		s.Do(t, "SET", counter, ahead)
	}
	proxy.Delay(testbed.Requests, 100*time.Millisecond) // less than a node's time limit
	var h redlatch.Hold
	// On a busy machine it may not be late, or later than its time limit: then it is no part of the hold,
	// also if the server has granted it.
	eventually(t, "a late third copy", func() bool {
		h = mustLock(t, t.Context(), q)
		late := list[2].Int(t, "EXISTS", "q") == 0
		for end := time.Now().Add(time.Second); late && time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
			if h.(redlatch.MultiHold).Tokens()[2] != 0 { //nolint:forcetypeassert // it is one
				return true
			}
		}
		unlock(t, h)
		return false
	})
	if n := list[2].List(t, "MGET", counter)[0]; n != strconv.FormatUint(h.Token(), 10) {
		t.Errorf("the counter of the third is %s, the hold's token %d", n, h.Token())
	}
	held(t, list[2], "q")
	unlock(t, h)
	proxy.Delay(testbed.Requests, 0)
}
