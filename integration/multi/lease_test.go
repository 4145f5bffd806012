package multi

import (
	"cmp"
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestQuorumKeepsALongLease: a fixed lease beyond LeaseTime is renewed up to its end, a part at a time,
// also one that a re-entry or Extend asked for: no copy is asked for more than LeaseTime, since a restarted server
// stays out of others' quorums for as long. Then it ends as planned.
func TestQuorumKeepsALongLease(t *testing.T) {
	t.Parallel()
	const leaseTime, long = 3 * time.Second, 8 * time.Second
	x := quorums(t, 3, redlatch.WithLeaseTime(leaseTime))
	began := time.Now()
	outer := bed.Lock(t, t.Context(), x.Lock("again"))
	holds := map[string]redlatch.Hold{
		"fixed":    bed.Lock(t, t.Context(), x.Lock("fixed"), redlatch.WithLease(long)),
		"extended": bed.Lock(t, t.Context(), x.Lock("extended"), redlatch.WithLease(leaseTime/2)),
		"again":    bed.Lock(t, outer.Context(), x.Lock("again"), redlatch.WithLease(long)),
	}
	bed.Want(t, holds["extended"].Extend(t.Context(), long), nil)
	asked := time.Now()
	for ; time.Since(began) < long*2/3; time.Sleep(leaseTime / 10) {
		for name, h := range holds {
			bed.Alive(t, h)
			testbed.AtMost(t, time.Until(h.ValidUntil()), leaseTime, name, "counts on")
			for _, s := range x.Servers {
				testbed.AtMost(t, s.Int(t, "PTTL", name), leaseTime.Milliseconds(), name, "has a TTL of")
			}
		}
	}
	for name, h := range holds {
		bed.Want(t, bed.Ended(t, h), redlatch.ErrLeaseLost)
		if now := time.Now(); now.Before(began.Add(long-long/20)) || now.After(asked.Add(long+leaseTime)) {
			t.Errorf("%s: it ended %v after its beginning, it was to last for %v", name, now.Sub(began), long)
		}
	}
	becomeFree(t, "fixed", x.Servers...)
	becomeFree(t, "extended", x.Servers...)
	bed.Alive(t, outer)
	bed.Want(t, holds["again"].Unlock(t.Context()), redlatch.ErrLeaseLost)
	bed.Unlock(t, outer)
}

// TestLostHoldIsRenewedNoMore: when a member of a MultiLock, or the majority of a quorum, is lost, and nobody
// calls Unlock, what is left is there until its lease ends and no longer.
func TestLostHoldIsRenewedNoMore(t *testing.T) {
	const leaseTime = 3 * time.Second
	type whole = func(cs []*redlatch.Client) redlatch.Member
	majority := func(cs []*redlatch.Client) redlatch.Member { return quorum(cs, "l") }
	for name, tc := range map[string]struct {
		of    whole
		lease time.Duration
		gone  string // the key that goes; l: both
		lost  []int  // on which of three servers the lock goes
		left  int    // on which one it stays
	}{
		"multi": {
			of:   func(cs []*redlatch.Client) redlatch.Member { return redlatch.MultiLock(copies(cs, "l")...) },
			lost: []int{1}, left: 2,
		},
		"group": {
			of:   func(cs []*redlatch.Client) redlatch.Member { return redlatch.MultiLock(plain(cs[2], "l", "m")...) },
			gone: "m", lost: []int{2}, left: 2,
		},
		"quorum":           {of: majority, lost: []int{0, 1}, left: 2},
		"quorum, for long": {of: majority, lease: time.Hour, lost: []int{0, 1}, left: 2},
		"a quorum in a multi": {
			of: func(cs []*redlatch.Client) redlatch.Member {
				return redlatch.MultiLock(cs[1].RLock("m"), quorum(cs, "l"))
			},
			lost: []int{1}, left: 2,
		},
		"readers": {of: func(cs []*redlatch.Client) redlatch.Member {
			return redlatch.MultiLock(cs[0].ReadWriteLock("l").ReadLock(), cs[1].ReadWriteLock("l").ReadLock(), cs[2].RLock("l"))
		}, lost: []int{2}, left: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			list := servers(t, 3)
			cs := clients(t, list, redlatch.WithLeaseTime(leaseTime))
			h := bed.Lock(t, t.Context(), tc.of(cs), redlatch.WithLease(tc.lease))
			stays := func() bool { return list[tc.left].Int(t, "EXISTS", "l") == 1 }
			bed.Eventually(t, "the copy that is to stay", stays)
			time.Sleep(leaseTime / 2) // it is renewed
			for _, i := range tc.lost {
				list[i].Do(t, "DEL", cmp.Or(tc.gone, "l"), "m")
			}
			testbed.Equal(t, bed.As[*redlatch.LeaseLostError](t, bed.Ended(t, h)).Reason, "member", "why it ended")
			lost := time.Now()
			testbed.Equal(t, stays(), true, "left under the section")
			bed.Eventually(t, "the end of what is left", func() bool { return !stays() })
			testbed.Between(t, time.Since(lost), leaseTime/4, leaseTime+leaseTime/2, "freed after the loss")
			bed.Eventually(t, "no hold on record", func() bool {
				return len(cs[0].Held())+len(cs[1].Held())+len(cs[2].Held()) == 0
			})
			bed.Want(t, h.Extend(t.Context(), leaseTime), redlatch.ErrLeaseLost)
			bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
		})
	}
}

// TestLostHoldIsUnlocked: what is left of a lost hold stays while its section ends, and goes with Unlock at
// once. A hold of the same owner on a member lives on.
func TestLostHoldIsUnlocked(t *testing.T) {
	t.Parallel()
	const leaseTime = 4 * time.Second
	list := servers(t, 2)
	cs := clients(t, list, redlatch.WithLeaseTime(leaseTime))
	job := redlatch.WithOwner(t.Context(), "job")
	own := bed.Lock(t, job, cs[1].RLock("own"))
	h := bed.Lock(t, job, redlatch.MultiLock(cs[0].RLock("l"), cs[1].RLock("l"), cs[1].RLock("own")))
	list[0].Do(t, "DEL", "l")
	bed.Want(t, bed.Ended(t, h), redlatch.ErrLeaseLost)
	held(t, list[1], "l", "own")
	bed.Want(t, h.Extend(t.Context(), time.Hour), redlatch.ErrLeaseLost)
	testbed.AtMost(t, list[1].Int(t, "PTTL", "l"), leaseTime.Milliseconds(), "a lost hold was extended: it has a TTL of")
	time.Sleep(leaseTime / 4)
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
	free(t, list[1], "l")
	time.Sleep(leaseTime * 5 / 4)
	held(t, list[1], "own")
	bed.Alive(t, own)
	bed.Unlock(t, own)
}

// TestPatienceGoesByTheLeaseAskedFor: a MultiLock that has got one fair lock queues for the other
// for a tenth of the lease at most: of the one that the caller asked for, or it would hold the
// first for a good part of it, or beyond its end, for nothing.
func TestPatienceGoesByTheLeaseAskedFor(t *testing.T) {
	t.Parallel()
	const fixed = 4 * time.Second
	s := bed.Server(t)
	c, other := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
	fair, busy := map[string]*redlatch.FairLock{}, map[string]redlatch.Hold{}
	for _, name := range []string{"f", "g"} {
		fair[name] = other.FairLock(name)
		busy[name] = bed.Lock(t, t.Context(), fair[name])
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	got := bed.Async(ctx, redlatch.MultiLock(c.FairLock("f"), c.FairLock("g")), redlatch.WithLease(fixed))
	for turn := range 12 { // its patience grows from round to round; a place that it just left costs a turn
		var waitedFor string
		bed.Eventually(t, "the MultiLock waits for one of them", func() bool {
			for name, l := range fair {
				if st, err := l.State(t.Context()); err == nil && st.QueueLength == 1 {
					waitedFor = name
				}
			}
			return waitedFor != ""
		})
		bed.Unlock(t, busy[waitedFor])
		began := time.Now()
		busy[waitedFor] = bed.Lock(t, t.Context(), fair[waitedFor])
		testbed.AtMost(t, time.Since(began), fixed*3/4, "turn", turn, "it waited, and held", waitedFor, "for")
	}
	cancel()
	bed.Want(t, (<-got).Err, context.Canceled)
	for _, h := range busy {
		bed.Unlock(t, h)
	}
}
