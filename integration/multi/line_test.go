package multi

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// standing waits until n acquisitions stand in lines behind those that ask the servers. No other
// test may run meanwhile.
func standing(t *testing.T, n int) {
	t.Helper()
	bed.Eventually(t, "acquisitions in line", func() bool { return testbed.GoroutinesIn("multilock.(*line).enter") == n })
}

// TestQuorumOwnersEnterTogether: of several acquisitions of one owner each enters as soon as one
// has, though others of the process stand between them.
func TestQuorumOwnersEnterTogether(t *testing.T) {
	x := quorums(t, 3)
	q, job := x.Lock("q"), redlatch.WithOwner(t.Context(), "job")
	other := bed.Lock(t, t.Context(), x.Beside("q"))
	first := bed.Async(job, q)
	bed.Listeners(t, 1, "q", x.Servers...)
	between := bed.Async(t.Context(), q)
	standing(t, 1)
	second := bed.Async(job, q)
	standing(t, 2)
	bed.Unlock(t, other)
	a, b := bed.Hold(t, first), bed.Hold(t, second)
	blocked(t, between)
	bed.Unlock(t, a, b)
	bed.Unlock(t, bed.Hold(t, between))
}

// TestErrorsOfAQuorumsLine: who stands behind another one of its process until its wait is over hears what that one
// found: who holds the lock, and which nodes are of no use.
func TestErrorsOfAQuorumsLine(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		wrong func(t *testing.T, x *bed.Site)
		told  func(x *bed.Site, err error) bool
	}{
		"who holds the lock": {
			func(t *testing.T, x *bed.Site) {
				t.Helper()
				h := bed.Lock(t, t.Context(), x.Beside("q"))
				t.Cleanup(func() { bed.Unlock(t, h) })
			},
			func(_ *bed.Site, err error) bool {
				busy, is := errors.AsType[*redlatch.NotAcquiredError](err)
				return is && busy.Holder != "" && busy.Remaining > 0 && !errors.Is(err, redlatch.ErrUnavailable)
			},
		},
		"which nodes are of no use": {
			func(t *testing.T, x *bed.Site) {
				t.Helper()
				for _, s := range x.Servers[1:] {
					s.Restart(t, testbed.Empty)
				}
			},
			func(x *bed.Site, err error) bool {
				return errors.Is(err, redlatch.ErrUnavailable) && !errors.Is(err, redlatch.ErrNotAcquired) &&
					strings.Contains(err.Error(), x.Proxies[1].Addr()) && strings.Contains(err.Error(), x.Proxies[2].Addr())
			},
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := quorums(t, 3)
			tc.wrong(t, x)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			first := bed.Async(ctx, x.Lock("q"))
			if what == "who holds the lock" {
				bed.Listeners(t, 1, "q", x.Servers...) // it waits, and has the turn
			}
			bed.Eventually(t, "it hears "+what, func() bool {
				_, err := x.Lock("q").TryLock(t.Context(), 300*time.Millisecond, 0)
				return tc.told(x, err)
			})
			leave()
			bed.Want(t, (<-first).Err, context.Canceled)
		})
	}
}

// TestAQuorumsLineHearsNothingOfOthers: who stands in the line of its process is not told of an outage because another
// owner, or an acquisition of another lock, was refused by the same servers: they answer, and the lock is busy.
func TestAQuorumsLineHearsNothingOfOthers(t *testing.T) {
	t.Parallel()
	for what, tc := range map[string]struct {
		reads bool // the lock is held for reading
		want  error
		asks  func(cs []*redlatch.Client) redlatch.Locker // with the context of the hold
	}{
		"an owner that reads asks to write": {
			true, redlatch.ErrUpgrade,
			func(cs []*redlatch.Client) redlatch.Locker { _, write := readWrite(cs); return write },
		},
		"an owner without tokens asks for one": {
			false, redlatch.ErrInvalidOption,
			func(cs []*redlatch.Client) redlatch.Locker {
				_, write := readWrite(cs, redlatch.Fenced())
				return write
			},
		},
		"the keys of another lock hold data": {
			true, redlatch.ErrInvalidName,
			func(cs []*redlatch.Client) redlatch.Locker { return quorum(cs, "data") },
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			list := servers(t, 3)
			cs := clients(t, list)
			read, write := readWrite(cs)
			held := write
			if tc.reads {
				held = read
			}
			h := bed.Lock(t, t.Context(), held)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			first := bed.Async(ctx, write)
			for _, s := range list {
				s.Do(t, "SET", "data", "of an application")
				bed.Eventually(t, "it waits, and has the turn", func() bool { return s.Int(t, "ZCARD", luascript.RWMarksKey("rw")) == 1 })
			}
			bed.Listeners(t, 1, "rw", list...)
			time.Sleep(100 * time.Millisecond) // it looks once more, and not again for most of a second
			_, err := tc.asks(cs).TryLock(h.Context(), 0, 0)
			bed.Want(t, err, tc.want)
			_, err = write.TryLock(t.Context(), 300*time.Millisecond, 0)
			if !errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, tc.want) {
				t.Errorf("who stands in line was told: %v", err)
			}
			leave()
			bed.Want(t, (<-first).Err, context.Canceled)
			bed.Unlock(t, h)
			for _, s := range list {
				s.Do(t, "DEL", "data")
			}
		})
	}
}

// TestNobodyWaitsBehindAQuorum: a quorum that can't get its majority holds up nobody of its process who
// wants one of its copies alone, for whatever lock that copy is part of. Whoever has the others may be the one
// who asks: standing behind the quorum he would wait for ever.
func TestNobodyWaitsBehindAQuorum(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	cs := clients(t, list)
	alone := func(l redlatch.Member) redlatch.Member { return l }
	for name, whole := range map[string]func(redlatch.Member) redlatch.Member{
		"plain": alone,
		"multi": func(l redlatch.Member) redlatch.Member { return redlatch.MultiLock(l, cs[1].RLock("else")) },
		"group": func(l redlatch.Member) redlatch.Member { return redlatch.MultiLock(l, cs[0].RLock("multi")) },
		"write": alone,
	} {
		t.Run(name, func(t *testing.T) {
			members := copies(cs, name)
			for i, c := range cs {
				if name == "write" {
					members[i] = c.ReadWriteLock(name).WriteLock()
				}
			}
			bed.Unlock(t, bed.Lock(t, t.Context(), redlatch.QuorumLock(members...))) // a majority will do from here on
			b, c := bed.Lock(t, t.Context(), members[1]), bed.Lock(t, t.Context(), members[2])
			quorum := bed.Async(t.Context(), redlatch.QuorumLock(members...))
			bed.Listeners(t, 1, name, list...)
			becomeFree(t, name, list[0]) // it can't have it alone
			a, err := whole(members[0]).TryLock(t.Context(), woken, 0)
			testbed.Must(t, err)
			blocked(t, quorum)

			// The quorum hears of each end, whoever else stands in line.
			behind := bed.Async(t.Context(), members[0])
			bed.Unlock(t, a)
			bed.Unlock(t, bed.Hold(t, behind))
			bed.Unlock(t, b)
			bed.Unlock(t, bed.HoldWithin(t, woken, quorum))
			bed.Unlock(t, c)
		})
	}
}

// TestQuorumRestsAside: a quorum that must rest, since what it asks for can't come now, leaves its turn to
// those of its process that can have what they ask for.
func TestQuorumRestsAside(t *testing.T) {
	t.Parallel()
	x := quorums(t, 3)
	q := x.Lock("q")
	for _, p := range x.Proxies {
		p.Delay(testbed.Replies, 40*time.Millisecond)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	resting := bed.Async(ctx, q, redlatch.WithLease(100*time.Millisecond)) // 10 ms for an answer
	bed.Eventually(t, "it asks", func() bool { return x.Servers[0].Int(t, "EXISTS", "q") == 1 })
	bed.Unlock(t, bed.Lock(t, t.Context(), q))
	blocked(t, resting)
	cancel()
	bed.Want(t, (<-resting).Err, context.Canceled) // no hold whose lease was over before the answer
}

// TestSplitVotes: clients that each hold a part come apart by random pauses, not
// by waiting out the leases (which are longer than the test may take).
func TestSplitVotes(t *testing.T) {
	const processes, rounds = 3, 20
	x := quorums(t, 5)
	count, turns := 0, make(chan error) // the count is guarded by the lock
	for i := range processes {
		members := copies(clients(t, x.Servers), "q")
		members = append(members[2*i%5:], members[:2*i%5]...) // each asks the servers in another order
		q := redlatch.QuorumLock(members...)
		go func() {
			for range rounds {
				turns <- q.TryDo(context.Background(), bed.Patience, 0, func(context.Context) error { count++; return nil })
			}
		}()
	}
	for range processes * rounds {
		bed.Want(t, <-turns, nil)
	}
	testbed.Equal(t, count, processes*rounds, "the count")

	// Held in parts by hand: a stranger's two and another's two, freed at once.
	of := func(i, j int) redlatch.Member {
		return redlatch.MultiLock(x.Direct[i].RLock("q"), x.Direct[j].RLock("q"))
	}
	ha, hb := bed.Lock(t, t.Context(), of(0, 1)), bed.Lock(t, t.Context(), of(2, 3))
	got := bed.Async(t.Context(), x.Lock("q"))
	bed.Listeners(t, 1, "q", x.Servers[0])
	bed.Unlock(t, ha)
	bed.Unlock(t, bed.HoldWithin(t, woken, got))
	bed.Unlock(t, hb)
}

// TestAQuorumLeavesNoPlaceWhereItWasRefused: who won a majority, or tried once, waits for no other copy, so its client
// does not stay on the list of those that a release calls.
func TestAQuorumLeavesNoPlaceWhereItWasRefused(t *testing.T) {
	t.Parallel()
	for what, wait := range map[string]time.Duration{"it waits": bed.Patience, "one attempt": 0} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := quorums(t, 3)
			other := bed.Lock(t, t.Context(), x.Direct[2].RLock("q"))
			h, err := x.Lock("q").TryLock(t.Context(), wait, 0)
			testbed.Must(t, err)
			bed.Eventually(t, "nobody waits at the third server", func() bool {
				return x.Servers[2].Int(t, "EXISTS", "redlatch_wait:{q}") == 0
			})
			bed.Unlock(t, h, other)
		})
	}
}

// TestALateCopyWakesNobody: a quorum that waits for a majority sleeps, though the copy that it could have is on a slow
// server: that it gives this one back when the answer comes is no news.
func TestALateCopyWakesNobody(t *testing.T) {
	t.Parallel()
	for _, kind := range []string{"plain", "write"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			x := quorums(t, 3)
			wanted, taken := quorum(x.Through, "late"), copies(x.Direct, "late")
			if kind == "write" {
				_, wanted = readWrite(x.Through)
				for i, c := range x.Direct {
					taken[i] = c.ReadWriteLock("rw").WriteLock()
				}
			}
			bed.Unlock(t, bed.Lock(t, t.Context(), wanted)) // a majority will do from here on
			a, b := bed.Lock(t, t.Context(), taken[1]), bed.Lock(t, t.Context(), taken[2])
			x.Proxies[0].Delay(testbed.Replies, 10*time.Millisecond)
			ctx, leave := context.WithCancel(t.Context())
			defer leave()
			waits := bed.Async(ctx, wanted)
			asked := func() int64 {
				return x.Servers[1].Int(t, "EVAL", "return tonumber(string.match(redis.call('INFO', 'commandstats'), 'cmdstat_evalsha:calls=(%d+)'))", "0")
			}
			time.Sleep(time.Second)
			before := asked()
			time.Sleep(2 * time.Second)
			if n := asked() - before; n > 40 {
				t.Errorf("in two seconds it has sent %d scripts to a server where another one has the lock", n)
			}
			bed.Unlock(t, a)
			bed.Unlock(t, bed.HoldWithin(t, woken, waits))
			bed.Unlock(t, b)
		})
	}
}
