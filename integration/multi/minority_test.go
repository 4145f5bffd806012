package multi

import (
	"context"
	"log/slog"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestQuorumDoesNotWaitForAMinority: who waits for a quorum tries again when the leases of a
// majority have ended, though a dead holder left a long one on the third node.
func TestQuorumDoesNotWaitForAMinority(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	others := clients(t, addrs(list))
	through := addrs(list)
	proxies := []*testbed.Proxy{testbed.NewProxy(t, through[0]), testbed.NewProxy(t, through[1])}
	for i, p := range proxies {
		through[i] = p.Addr()
	}
	q := redlatch.QuorumLock(copies(clients(t, through), "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q)) // a majority will do from here on
	left := bed.Lock(t, t.Context(), others[2].RLock("q"), redlatch.WithLease(time.Hour))
	for _, c := range others[:2] {
		bed.Lock(t, t.Context(), c.RLock("q"), redlatch.WithLease(2*time.Second))
	}
	for _, p := range proxies { // what the third node says comes first
		p.Delay(testbed.Replies, 20*time.Millisecond)
	}
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	bed.Unlock(t, left)
}

// TestQuorumExtendsAllItsCopies: an Extend that a majority has answered goes on for the others,
// so that the hold can lose a node as before.
func TestQuorumExtendsAllItsCopies(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	proxy := testbed.NewProxy(t, list[2].Addr())
	cs := clients(t, []string{list[0].Addr(), list[1].Addr(), proxy.Addr()})
	q := redlatch.QuorumLock(copies(cs, "q")...)
	const short = 5 * time.Second
	h := lockAll(t, t.Context(), q, list, cs, redlatch.WithLease(short))
	taken := time.Now()
	proxy.Delay(testbed.Replies, 100*time.Millisecond)
	ctx, cancel := context.WithCancel(t.Context())
	if err := h.Extend(ctx, 25*time.Second); err != nil {
		t.Fatal(err)
	}
	cancel() // as one does when a call has returned
	proxy.Delay(testbed.Replies, 0)
	time.Sleep(time.Until(taken.Add(short + 500*time.Millisecond)))
	if n := heldOn(t, list, "q"); n != 3 {
		t.Errorf("%d copies are left after the first lease", n)
	}
	list[0].Do(t, "DEL", "q")
	if h.Context().Err() != nil {
		t.Errorf("the hold ended: %v", context.Cause(h.Context()))
	}
	bed.Unlock(t, h)
}

// outlives: the hold of a quorum of three outlives its first node.
func outlives(t *testing.T, list []*testbed.Server, leaseTime time.Duration, holds ...redlatch.Hold) {
	t.Helper()
	list[0].Kill(t)
	time.Sleep(leaseTime + leaseTime/4)
	for _, h := range holds {
		if h.Context().Err() != nil {
			t.Errorf("the hold ended with its first node: %v", context.Cause(h.Context()))
		}
	}
	list[0].Restart(t, testbed.Empty)
}

// TestFencedQuorumKeepsALateCopy: a copy that came after the round was won is one of the hold's,
// though its server's clock gave it a newer token.
func TestFencedQuorumKeepsALateCopy(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second // no stall of the machine ends it
	list := servers(t, 3)
	proxy := testbed.NewProxy(t, list[2].Addr())
	log := make(lateGrants, 16)
	cs := clients(t, []string{list[0].Addr(), list[1].Addr(), proxy.Addr()}, lease(leaseTime),
		func(c *redlatch.Config) { c.Logger = slog.New(log) })
	q, h := lateCopy(t, list[2], proxy, cs, log, leaseTime/20)
	token := h.Token()
	outlives(t, list, leaseTime, h)
	again := bed.Lock(t, h.Context(), q)
	if h.Token() != token || again.Token() != token {
		t.Errorf("tokens %d and, of a re-entry, %d; it was granted %d", h.Token(), again.Token(), token)
	}
	bed.Unlock(t, again)
	bed.Unlock(t, h)
	next := bed.Lock(t, t.Context(), q)
	if next.Token() <= token {
		t.Errorf("token %d after %d", next.Token(), token)
	}
	bed.Unlock(t, next)
}

// lateGrants is the handler of a logger. It sends the name of each lock of which a grant came so
// late that it was given back.
type lateGrants chan string

func (lateGrants) Enabled(context.Context, slog.Level) bool { return true }
func (g lateGrants) WithAttrs([]slog.Attr) slog.Handler     { return g }
func (g lateGrants) WithGroup(string) slog.Handler          { return g }
func (g lateGrants) Handle(_ context.Context, r slog.Record) error {
	if strings.Contains(r.Message, "late grant given back") {
		r.Attrs(func(a slog.Attr) bool {
			if a.Key == "lock" {
				g <- a.Value.String()
			}
			return true
		})
	}
	return nil
}

// lateCopy takes a quorum whose third copy comes after the hold was granted, and is the hold's.
// A node has limit to answer, and the hold waits for the third one for a part of that. Where the
// machine stands still for longer, the copy is given back, as it must be. That proves nothing, and
// another lock is taken; one that is given back within the limit fails the test.
func lateCopy(
	t *testing.T, third *testbed.Server, proxy *testbed.Proxy, cs []*redlatch.Client, log lateGrants, limit time.Duration,
) (redlatch.Member, redlatch.Hold) {
	t.Helper()
	for start := time.Now(); time.Since(start) < bed.Patience; {
		name := "q" + strconv.FormatInt(int64(time.Since(start)), 10)
		q := redlatch.QuorumLock(copies(cs, name, redlatch.Fenced())...)
		first := bed.Lock(t, t.Context(), q) // two of the servers will do from here on
		whole := false                       // else its third copy is given back, too, and told of
		for end := time.Now().Add(limit); !whole && time.Now().Before(end); time.Sleep(time.Millisecond) {
			whole = first.(redlatch.MultiHold).Tokens()[2] != 0 //nolint:forcetypeassert // it is one
		}
		bed.Unlock(t, first)
		if !whole {
			continue
		}
		trap := proxy.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA, name))
		began := time.Now()
		h := bed.Lock(t, t.Context(), q)
		if n := h.(redlatch.MultiHold).Tokens(); n[2] != 0 { //nolint:forcetypeassert // it is one
			t.Fatalf("tokens %d: the third server has not been asked", n)
		}
		sent := false
		for over := began.Add(2 * limit); !sent && time.Now().Before(over); time.Sleep(time.Millisecond) {
			sent = len(trap.Hits()) > 0
		}
		trap.Release()
		for given := !sent; !given; {
			if h.(redlatch.MultiHold).Tokens()[2] != 0 { //nolint:forcetypeassert // as above
				return q, h
			}
			select {
			case of := <-log:
				if given = of == name; given && time.Since(began) < limit {
					t.Fatalf("the third copy was given back after %v, within the limit of a node", time.Since(began))
				}
			case <-time.After(2 * time.Millisecond):
				// One whose token came too late is given back without a line.
				given = time.Since(began) > bed.Patience/10 && third.Int(t, "EXISTS", name) == 0
				if time.Since(began) > bed.Patience {
					t.Fatal("the third copy is not the hold's")
				}
			}
		}
		bed.Unlock(t, h)
	}
	t.Fatalf("no third copy was in time in %v", bed.Patience)
	return nil, nil
}

// A copy that only a re-entry got, since another had it when the hold was granted, is one of the
// hold's.
func TestFencedReentryTakesTheFreeCopy(t *testing.T) {
	t.Parallel()
	const leaseTime = 6 * time.Second // no stall of the machine ends it
	list := servers(t, 3)
	cs := clients(t, addrs(list), lease(leaseTime))
	q := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	busy := bed.Lock(t, t.Context(), bed.Client(t, list[2].Addr()).RLock("q"))
	job := redlatch.WithOwner(t.Context(), "job") // so that the one's end is not the other's
	h := bed.Lock(t, job, q)
	bed.Unlock(t, busy)
	again := lockAll(t, job, q, list, cs)
	if again.Token() != h.Token() {
		t.Errorf("token %d, of a re-entry %d", h.Token(), again.Token())
	}
	outlives(t, list, leaseTime, again)
	bed.Unlock(t, again)
	_ = h.Unlock(t.Context()) // it had two copies, one on the node that was lost
}

// TestFencedQuorumAfterALostOne: an owner that lost a majority, and still has a copy of it, takes
// the lock anew: with a token that is newer than those of the holders between.
func TestFencedQuorumAfterALostOne(t *testing.T) {
	t.Parallel()
	const leaseTime = 5 * time.Second // no stall of the machine ends it
	list := servers(t, 3)
	cs, others := clients(t, addrs(list), lease(leaseTime)), clients(t, addrs(list), lease(leaseTime))
	q := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
	job := redlatch.WithOwner(t.Context(), "job")
	o := redlatch.QuorumLock(copies(others, "q", redlatch.Fenced())...)
	bed.Unlock(t, bed.Lock(t, t.Context(), o)) // a majority will do from here on
	lost := lockAll(t, job, q, list, cs)
	first := lost.Token()
	for _, s := range list[1:] {
		s.Do(t, "DEL", "q")
	}
	want(t, ended(t, lost), redlatch.ErrLeaseLost)
	between := bed.Lock(t, t.Context(), o)
	bed.Unlock(t, between)
	held(t, list[0], "q")
	h := bed.Lock(t, job, q)
	if h.Token() <= between.Token() {
		t.Errorf("token %d after %d", h.Token(), between.Token())
	}
	if lost.Token() != first {
		t.Errorf("the lost hold's token became %d, it was %d: its late writes would pass", lost.Token(), first)
	}
	bed.Unlock(t, h)
	want(t, lost.Unlock(t.Context()), redlatch.ErrLeaseLost)
}

// TestValidUntilIsOfWhatIsHeld: a lost copy's deadline says nothing of how long the others last.
func TestValidUntilIsOfWhatIsHeld(t *testing.T) {
	t.Parallel()
	const leaseTime = 12 * time.Second
	list := servers(t, 3)
	outer := bed.Client(t, list[0].Addr(), lease(time.Minute))
	cs := clients(t, addrs(list), lease(leaseTime))
	q := redlatch.QuorumLock(copies(cs, "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q)) // each server is known from here on
	o := bed.Lock(t, t.Context(), outer.RLock("o"))
	h := lockAll(t, o.Context(), q, list, cs)
	list[2].Freeze(t)
	taken := time.Now() // the frozen node has renewed nothing since then
	bed.Eventually(t, "a renewal of two", func() bool { return h.ValidUntil().After(taken.Add(leaseTime + time.Second)) })
	list[0].Do(t, "DEL", "q")
	extended := make(chan error, 1)
	go func() { extended <- h.Extend(context.Background(), leaseTime) }() // finds out
	bed.Eventually(t, "the frozen node's deadline", func() bool { return h.ValidUntil().Before(taken.Add(leaseTime)) })
	if h.Context().Err() != nil {
		t.Error("the hold has ended")
	}
	list[2].Thaw(t)
	if err := <-extended; err != nil {
		t.Errorf("Extend: %v", err)
	}
	bed.Eventually(t, "two renewed copies", func() bool { return h.ValidUntil().After(taken.Add(leaseTime)) })
	bed.Unlock(t, o)
	<-h.Context().Done() // with the context that it was acquired with, no more
	if !h.ValidUntil().After(time.Now()) {
		t.Error("the hold has ended with its context")
	}
	bed.Unlock(t, h)
}

// A fenced re-entry has the token of its hold, also when a copy of the hold is slow, and a free one
// is there in its stead.
func TestFencedReentryHasTheTokenOfItsHold(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	proxy := testbed.NewProxy(t, list[1].Addr())
	through := addrs(list)
	through[1] = proxy.Addr()
	cs := clients(t, through, lease(6*time.Second))
	q := redlatch.QuorumLock(copies(cs, "q", redlatch.Fenced())...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	busy := bed.Lock(t, t.Context(), bed.Client(t, list[2].Addr()).RLock("q"))
	h := bed.Lock(t, t.Context(), q)
	bed.Unlock(t, busy)
	proxy.Pause(testbed.Replies)
	again, err := q.TryLock(h.Context(), 0, 0)
	proxy.Resume(testbed.Replies)
	if err == nil {
		if again.Token() != h.Token() {
			t.Errorf("token %d, of a re-entry %d", h.Token(), again.Token())
		}
		bed.Unlock(t, again)
	} else {
		want(t, err, redlatch.ErrNotAcquired)
	}
	again = bed.Lock(t, h.Context(), q)
	if again.Token() != h.Token() {
		t.Errorf("token %d, of a re-entry %d", h.Token(), again.Token())
	}
	bed.Unlock(t, again)
	bed.Unlock(t, h)
}

// TestQuorumReadsWithTheTokenOfItsWrite: who reads under its own write lock has that one's token,
// though a server's counter is ahead: what it writes afterwards must not be refused for what it
// has read.
func TestQuorumReadsWithTheTokenOfItsWrite(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	var reads, writes []redlatch.Member
	for _, c := range clients(t, addrs(list)) {
		rw := c.ReadWriteLock("rw", redlatch.Fenced())
		reads, writes = append(reads, rw.ReadLock()), append(writes, rw.WriteLock())
	}
	job := redlatch.WithOwner(t.Context(), "job") // so that the one's end is not the other's
	w := bed.Lock(t, job, redlatch.QuorumLock(writes...))
	list[2].Do(t, "SET", luascript.TokenKey("rw"), strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10))
	r := bed.Lock(t, job, redlatch.QuorumLock(reads...))
	if w.Token() != r.Token() {
		t.Errorf("it writes with token %d, and reads with %d", w.Token(), r.Token())
	}
	bed.Unlock(t, w)
	again := bed.Lock(t, job, redlatch.QuorumLock(reads...))
	if again.Token() != r.Token() {
		t.Errorf("token %d, of a re-entry %d", r.Token(), again.Token())
	}
	bed.Unlock(t, again)
	bed.Unlock(t, r)
	next := bed.Lock(t, t.Context(), redlatch.QuorumLock(writes...))
	if next.Token() <= r.Token() {
		t.Errorf("token %d after %d", next.Token(), r.Token())
	}
	bed.Unlock(t, next)
}
