package multi

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// TestLostHoldIsRenewedNoMore: when a member of a MultiLock, or the majority of a quorum, is lost, and nobody
// calls Unlock, what is left is there until its lease ends and no longer.
func TestLostHoldIsRenewedNoMore(t *testing.T) {
	const leaseTime = 3 * time.Second
	for name, tc := range map[string]struct {
		of    func(cs []*redlatch.Client) redlatch.Member
		lease time.Duration
		gone  string // the key that goes; l: both
		lost  []int  // on which of three servers the lock goes
		left  int    // on which one it stays
	}{
		"multi": {of: func(cs []*redlatch.Client) redlatch.Member { return redlatch.MultiLock(copies(cs, "l")...) }, lost: []int{1}, left: 2},
		"group": {of: func(cs []*redlatch.Client) redlatch.Member {
			return redlatch.MultiLock(cs[2].RLock("l"), cs[2].RLock("m"))
		}, gone: "m", lost: []int{2}, left: 2},
		"quorum":           {of: func(cs []*redlatch.Client) redlatch.Member { return redlatch.QuorumLock(copies(cs, "l")...) }, lost: []int{0, 1}, left: 2},
		"quorum, for long": {of: func(cs []*redlatch.Client) redlatch.Member { return redlatch.QuorumLock(copies(cs, "l")...) }, lease: time.Hour, lost: []int{0, 1}, left: 2},
		"a quorum in a multi": {of: func(cs []*redlatch.Client) redlatch.Member {
			return redlatch.MultiLock(cs[1].RLock("m"), redlatch.QuorumLock(copies(cs, "l")...))
		}, lost: []int{1}, left: 2},
		"readers": {of: func(cs []*redlatch.Client) redlatch.Member {
			return redlatch.MultiLock(cs[0].ReadWriteLock("l").ReadLock(), cs[1].ReadWriteLock("l").ReadLock(), cs[2].RLock("l"))
		}, lost: []int{2}, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := servers(t, 3)
			cs := clients(t, addrs(list), lease(leaseTime))
			h := bed.Lock(t, t.Context(), tc.of(cs), redlatch.WithLease(tc.lease))
			for end := time.Now().Add(time.Second); heldOn(t, list, "l") < 3 && time.Now().Before(end); {
				time.Sleep(2 * time.Millisecond)
			}
			stays := func() bool { return list[tc.left].Int(t, "EXISTS", "l") == 1 }
			if !stays() {
				t.Fatal("the copy that is to stay is not there: the test tests nothing")
			}
			time.Sleep(leaseTime / 2) // it is renewed
			for _, i := range tc.lost {
				list[i].Do(t, "DEL", cmp.Or(tc.gone, "l"), "m")
			}
			if lost, is := errors.AsType[*redlatch.LeaseLostError](ended(t, h)); !is || lost.Reason != "member" {
				t.Errorf("cause %v", context.Cause(h.Context()))
			}
			lost := time.Now()
			if !stays() {
				t.Error("it was freed under the section")
			}
			bed.Eventually(t, "the end of what is left", func() bool { return !stays() })
			if took := time.Since(lost); took < leaseTime/4 {
				t.Errorf("freed %v after the loss, before its lease had ended", took)
			} else if took > leaseTime+leaseTime/2 {
				t.Errorf("it stayed for %v, LeaseTime is %v", took, leaseTime)
			}
			bed.Eventually(t, "no hold on record", func() bool {
				return len(cs[0].Held())+len(cs[1].Held())+len(cs[2].Held()) == 0
			})
			want(t, h.Extend(t.Context(), leaseTime), redlatch.ErrLeaseLost)
			want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
		})
	}
}

// TestLostHoldIsUnlocked: what is left of a lost hold stays while its section ends, and goes with Unlock at
// once. A hold of the same owner on a member lives on.
func TestLostHoldIsUnlocked(t *testing.T) {
	t.Parallel()
	const leaseTime = 4 * time.Second
	list := servers(t, 2)
	cs := clients(t, addrs(list), lease(leaseTime))
	job := redlatch.WithOwner(t.Context(), "job")
	own := bed.Lock(t, job, cs[1].RLock("own"))
	h := bed.Lock(t, job, redlatch.MultiLock(cs[0].RLock("l"), cs[1].RLock("l"), cs[1].RLock("own")))
	list[0].Do(t, "DEL", "l")
	want(t, ended(t, h), redlatch.ErrLeaseLost)
	held(t, list[1], "l", "own")
	want(t, h.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
	if ttl := list[1].Int(t, "PTTL", "l"); ttl > leaseTime.Milliseconds() {
		t.Errorf("a TTL of %d ms: a lost hold was extended", ttl)
	}
	time.Sleep(leaseTime / 4)
	want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	free(t, list[1], "l")
	time.Sleep(leaseTime * 5 / 4)
	held(t, list[1], "own")
	if own.Context().Err() != nil {
		t.Errorf("the owner's other hold ended: %v", context.Cause(own.Context()))
	}
	bed.Unlock(t, own)
	free(t, list[1], "own")
}
