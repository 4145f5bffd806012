package multi

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestNothingKeptBesideABusyMember: while one member is busy none of the others is kept, or, in one command, even
// taken; its message wakes who waits, and so does that of the next one.
func TestNothingKeptBesideABusyMember(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	for what, on := range map[string][]*testbed.Server{"one node": {list[0], list[0], list[0]}, "three nodes": list} {
		t.Run(what, func(t *testing.T) {
			cs, others := clients(t, on), clients(t, on)
			if what == "one node" {
				cs = []*redlatch.Client{cs[0], cs[0], cs[0]}
			}
			name := []string{what + " a", what + " b", what + " c"}
			m := redlatch.MultiLock(cs[0].RLock(name[0]), cs[1].RLock(name[1]), cs[2].RLock(name[2]))
			b := bed.Lock(t, t.Context(), others[1].RLock(name[1]))
			_, err := m.TryLock(t.Context(), 0, 0)
			busy := bed.As[*redlatch.NotAcquiredError](t, err)
			if busy.Name != name[1] || busy.Holder == "" || busy.Remaining <= 0 {
				t.Errorf("%+v", err)
			}
			free(t, on[0], name[0])
			free(t, on[2], name[2])

			bed.Listeners(t, 0, name[1], on[1])
			got := bed.Async(t.Context(), m)
			bed.Listeners(t, 1, name[1], on[1])
			becomeFree(t, name[0], on[0]) // a round may be under way
			becomeFree(t, name[2], on[2])
			for range 20 {
				free(t, on[0], name[0])
				free(t, on[2], name[2])
			}
			blocked(t, got)
			a := bed.Lock(t, t.Context(), others[0].RLock(name[0]))
			bed.Unlock(t, b)
			bed.Listeners(t, 1, name[0], on[0])
			becomeFree(t, name[1], on[1])
			bed.Unlock(t, a)
			h := bed.HoldWithin(t, woken, got)
			for i, n := range name {
				held(t, on[i], n)
			}
			bed.Unlock(t, h)
		})
	}
}

// count is the count of a lock's one owner.
func count(t *testing.T, s *testbed.Server, name, want string) {
	t.Helper()
	if all := s.Hash(t, "HGETALL", name); len(all) != 1 || !strings.HasSuffix(fmt.Sprint(all), ":"+want+"]") {
		t.Errorf("%s: %v, want a count of %s", name, all, want)
	}
}

// Re-entry is counted for each member, whichever lock it was taken through.
func TestGroupReentryPerMember(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	outer := bed.Lock(t, t.Context(), c.RLock("b"))
	h := bed.Lock(t, outer.Context(), redlatch.MultiLock(plain(c, "a", "b", "c")...))
	count(t, s, "b", "2")
	inner := bed.Lock(t, h.Context(), c.RLock("c"))
	again := bed.Lock(t, h.Context(), redlatch.MultiLock(plain(c, "c", "b", "a")...))
	count(t, s, "c", "3")
	bed.Unlock(t, h)
	held(t, s, "a", "b", "c")
	bed.Unlock(t, again)
	free(t, s, "a")
	bed.Unlock(t, inner)
	free(t, s, "c")
	count(t, s, "b", "1")
	bed.Unlock(t, outer)
	free(t, s, "b")
}

// An owner that holds one of the locks as another kind, which is not released together with others, is refused: nothing
// is taken, and what it holds stays as it was. Alone it re-enters.
func TestGroupReentryOfAnotherKind(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	outer := bed.Lock(t, t.Context(), c.FairLock("b"))
	_, err := redlatch.MultiLock(plain(c, "a", "b")...).TryLock(outer.Context(), 0, 0)
	testbed.Equal(t, bed.As[*redlatch.InvalidOptionError](t, err).Option, "MultiLock", "what is refused")
	free(t, s, "a")
	count(t, s, "b", "1")
	bed.Unlock(t, bed.Lock(t, outer.Context(), c.RLock("b")))
	bed.Unlock(t, outer)
	free(t, s, "b")
}

// The whole is held when all its members are; ForceUnlock frees them all. A quorum is held while a majority is.
func TestStateAndForceUnlockOfTheWhole(t *testing.T) {
	t.Parallel()
	x := quorums(t, 3)
	c := x.Through[0]
	m := redlatch.MultiLock(c.RLock("a", redlatch.Fenced()), c.FairLock("b"))
	is := func(l *multiLock, isHeld bool, holders int, token uint64) {
		t.Helper()
		st, err := l.State(t.Context())
		if err != nil || st.Held != isHeld || len(st.Holders) != holders || st.Token != token || isHeld != (st.Remaining > bed.Lease/3) {
			t.Errorf("%+v, %v", st, err)
		}
	}
	is(m, false, 0, 0)
	bed.Unlock(t, bed.Lock(t, t.Context(), m))
	half := bed.Lock(t, t.Context(), c.RLock("a", redlatch.Fenced()))
	is(m, false, 1, half.Token())
	bed.Unlock(t, half)
	h := bed.Lock(t, t.Context(), m)
	is(m, true, 2, h.Token())
	for _, was := range []bool{true, false} {
		if ok, err := m.ForceUnlock(t.Context()); ok != was || err != nil {
			t.Errorf("force: %v, %v", ok, err)
		}
	}
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)

	q := quorum(x.Through, "q")
	h = bed.Lock(t, t.Context(), q)
	x.Servers[0].Kill(t)
	if st, err := q.State(t.Context()); err != nil || !st.Held || st.Remaining <= 0 {
		t.Errorf("quorum: %+v, %v", st, err)
	}
	bed.Unlock(t, h)
}

// What remains of a whole is what remains of the member whose lease ends first, of a quorum of the
// first in the majority that lasts longest; also where an int has 32 bits (GOARCH=386).
func TestRemainingOfTheWhole(t *testing.T) {
	t.Parallel()
	cs := clients(t, servers(t, 3))
	q, m := copies(cs, "q"), copies(cs, "m")
	for _, order := range [][]int{{50, 20, 30}, {20, 50, 30}, {30, 50, 20}} {
		var holds []redlatch.Hold
		for i, minutes := range order {
			for _, l := range []redlatch.Member{q[i], m[i]} {
				holds = append(holds, bed.Lock(t, t.Context(), l, redlatch.WithLease(time.Duration(minutes)*time.Minute)))
			}
		}
		for _, tc := range []struct {
			lock *multiLock
			want time.Duration
		}{{redlatch.MultiLock(m...), 20 * time.Minute}, {redlatch.QuorumLock(q...), 30 * time.Minute}} {
			// A copy whose busy server does not answer in time is left out of one answer, not of all.
			bed.Eventually(t, fmt.Sprintf("leases of %d minutes: %v remain of %s", order, tc.want, tc.lock.Name()), func() bool {
				st, err := tc.lock.State(t.Context())
				return err == nil && st.Held && st.Remaining <= tc.want && st.Remaining >= tc.want-bed.Patience
			})
		}
		bed.Unlock(t, holds...)
	}
}

// Every kind is a member of a MultiLock: fair, both halves of a read-write lock, a quorum, nested ones, the same lock
// twice. It excludes others, whatever their order, and ends with any of its members.
func TestEveryKindOfMember(t *testing.T) {
	t.Parallel()
	list := servers(t, 2)
	cs, others := clients(t, list), clients(t, list)
	build := func(cs []*redlatch.Client, shuffle bool) *multiLock {
		rw := cs[0].ReadWriteLock("rw")
		members := []redlatch.Member{
			cs[0].RLock("a"), cs[0].RLock("b"), cs[0].FairLock("f"), rw.ReadLock(), rw.WriteLock(),
			redlatch.QuorumLock(cs[1].RLock("u")),
			redlatch.MultiLock(cs[1].RLock("n"), cs[0].RLock("b"), redlatch.MultiLock(cs[0].RLock("o"))),
		}
		if shuffle {
			rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		}
		return redlatch.MultiLock(members...)
	}
	m := build(cs, false)
	testbed.Equal(t, m.Name(), "[a b f rw ×2 u [n b [o]]]", "its name")
	h := bed.Lock(t, t.Context(), m)
	held(t, list[0], "a", "f", "o")
	held(t, list[1], "u", "n")
	count(t, list[0], "b", "1") // though it is named twice
	bed.Unlock(t, bed.Lock(t, h.Context(), build(cs, true)))
	got := bed.Async(t.Context(), build(others, true))
	_, err := build(others, true).TryLock(t.Context(), 200*time.Millisecond, 0)
	bed.Want(t, err, redlatch.ErrNotAcquired)
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Hold(t, got))

	// A quorum is waited for by its own means.
	hu := bed.Lock(t, t.Context(), others[1].RLock("u"))
	got = bed.Async(t.Context(), m)
	bed.Listeners(t, 1, "u", list[1])
	for _, name := range []string{"a", "b", "f", "o", "rw"} {
		becomeFree(t, name, list[0])
	}
	bed.Unlock(t, hu)
	h = bed.Hold(t, got)
	list[1].Do(t, "DEL", "n")
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrLeaseLost)
}

// TestOwnerLivesWhileAMultiLockWaits: the last hold of the owner that a waiting
// MultiLock inherited is unlocked: all members are that owner's still, and the hold's
// context leads to it.
func TestOwnerLivesWhileAMultiLockWaits(t *testing.T) {
	t.Parallel()
	for what, whole := range map[string]func(cs []*redlatch.Client) redlatch.Member{
		"units":  func(cs []*redlatch.Client) redlatch.Member { return redlatch.MultiLock(copies(cs, "l")...) },
		"quorum": func(cs []*redlatch.Client) redlatch.Member { return quorum(cs, "l") },
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			list := servers(t, 2)
			cs := clients(t, list)
			before := bed.Lock(t, t.Context(), cs[0].RLock("before"))
			busy := bed.Lock(t, t.Context(), bed.Client(t, list[0].Addr()).RLock("l"))
			got := bed.Async(context.WithoutCancel(before.Context()), whole(cs))
			bed.Listeners(t, 1, "l", list[0])
			bed.Unlock(t, before, busy)
			h := bed.Hold(t, got)
			bed.Alive(t, h)
			for i, s := range list {
				inner := bed.Lock(t, h.Context(), cs[i].RLock("l"))
				count(t, s, "l", "2")
				testbed.Equal(t, inner.Owner().Owner, before.Owner().Owner, "who holds it, and who has asked")
				bed.Unlock(t, inner)
			}
			bed.Unlock(t, h)
		})
	}
}

// TestUnlockNeverStopsAtTheFirst: a member that is lost and one whose server does
// not answer do not keep the others from being freed; the errors are joined.
func TestUnlockNeverStopsAtTheFirst(t *testing.T) {
	t.Parallel()
	list := servers(t, 4)
	cs := clients(t, list, func(c *redlatch.Config) { c.UnlockTimeout = 3 * time.Second }) // a healthy server answers in time
	h := bed.Lock(t, t.Context(), across(cs))
	list[0].Do(t, "DEL", "a")
	list[1].Freeze(t)
	err := h.Unlock(t.Context())
	bed.Want(t, err, redlatch.ErrLeaseLost)
	bed.Want(t, err, redlatch.ErrUnavailable)
	testbed.Equal(t, bed.As[*redlatch.UnavailableError](t, err).Nodes[0].Node, list[1].Addr(), "who is away")
	free(t, list[2], "c")
	free(t, list[3], "d")
	list[1].Thaw(t)
	becomeFree(t, "b", list[1])
	bed.Want(t, h.Unlock(t.Context()), nil) // for the member without an answer
	bed.Want(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
}

// TestPassingRefusalOfOneMember: a release that the server refuses for a while is tried again for each member, whatever
// the first one's answer. The first one needs no write here, since its owner goes on holding it.
func TestPassingRefusalOfOneMember(t *testing.T) {
	t.Parallel()
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
			bed.Want(t, <-said, nil)
			becomeFree(t, "{a}2", s)
			becomeFree(t, "{a}3", s)
			bed.Unlock(t, outer)
			free(t, s, "a")
		})
	}
}

// A member whose key the user may not touch any more stays held, and is told of; the others, of the same command, are freed.
func TestRefusalOfOneMemberForGood(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := bed.Client(t, s.Addr())
	h := bed.Lock(t, t.Context(), redlatch.MultiLock(plain(c, "a", "b", "c")...))
	s.Do(t, "ACL", "SETUSER", "default", "resetkeys", "~a", "~c", "~redlatch_*")
	err := h.Unlock(t.Context())
	s.Do(t, "ACL", "SETUSER", "default", "allkeys")
	testbed.Equal(t, bed.As[*redlatch.ServerError](t, err).Name, "b", "what is refused")
	testbed.Equal(t, strings.Contains(err.Error(), "~a"), false, "it tells of another's key:", err)
	free(t, s, "a", "c")
	testbed.Equal(t, s.Int(t, "DEL", "b"), int64(1), "locks that stay")
}

// TestNoLivelockInLockstep: two that each hold what the other one lacks give it back and try again. On
// servers that answer in step they would do so in step, for ever; the random pauses take them apart.
func TestNoLivelockInLockstep(t *testing.T) {
	t.Parallel()
	const oneWay, turns = 20 * time.Millisecond, 20
	x := quorums(t, 2)
	for _, p := range x.Proxies {
		p.Delay(testbed.Requests, oneWay)
		p.Delay(testbed.Replies, oneWay)
	}
	done, begin := make(chan error, 2), make(chan struct{})
	for range 2 {
		m := across(x.Fresh(t))
		bed.Unlock(t, bed.Lock(t, t.Context(), m)) // the connections stand
		go func() {
			<-begin
			var err error
			for n := 0; n < turns && err == nil; n++ {
				err = m.Do(t.Context(), func(context.Context) error { return nil })
			}
			done <- err
		}()
	}
	close(begin)
	for range 2 {
		bed.Want(t, bed.Receive(t, 30*time.Second, done), nil) // it takes 7 s; 40 to 70 s without the pauses
	}
}

// TestNoLivelockInQueues: crowds that each wait for another one of some fair locks first do not go on standing in the
// others' queues, each with the lock in hand that the others there lack, until they must give it back.
func TestNoLivelockInQueues(t *testing.T) {
	const crowd = 24
	cs := clients(t, servers(t, 3))
	members := []redlatch.Member{cs[0].FairLock("a"), cs[1].FairLock("b"), cs[2].FairLock("c")}
	for _, n := range []int{2, 3} {
		m, done := redlatch.MultiLock(members[:n]...), make(chan error, n*crowd)
		var holds []redlatch.Hold
		for i := range n { // who finds only the last one taken waits for that one first
			at := n - 1 - i
			holds = append(holds, bed.Lock(t, t.Context(), members[at]))
			for range crowd {
				go func() { done <- m.Do(t.Context(), func(context.Context) error { return nil }) }()
			}
			bed.Eventually(t, "a crowd waits", func() bool {
				i, err := cs[at].Inspect(t.Context(), "abc"[at:at+1])
				bed.Want(t, err, nil)
				return i.QueueLength == crowd
			})
		}
		bed.Unlock(t, holds...)
		for range n * crowd {
			bed.Want(t, bed.Receive(t, bed.Patience, done), nil) // all of it takes 0.1 s
		}
	}
}

// A group re-enters one member and takes the other. The hold of the first ends while the command is under way: what was
// taken is given back, and both are taken anew.
func TestAGroupWhoseReentryCameTooLate(t *testing.T) {
	t.Parallel()
	s := servers(t, 1)[0]
	proxy := testbed.NewProxy(t, s.Addr())
	c := bed.Client(t, proxy.Addr())
	ctx := redlatch.WithOwner(t.Context(), "one")
	outer := bed.Lock(t, ctx, c.RLock("{g}b"), redlatch.WithLease(300*time.Millisecond))
	reply := proxy.StallReply(bed.Of("{g}a"))
	got := bed.Async(ctx, redlatch.MultiLock(c.RLock("{g}a"), c.RLock("{g}b")))
	reply.Wait(t)
	bed.Want(t, bed.Ended(t, outer), redlatch.ErrLeaseLost)
	reply.Release()
	h := bed.Hold(t, got)
	for _, name := range []string{"{g}a", "{g}b"} {
		bed.Eventually(t, "one hold of "+name, func() bool { return slices.Equal(s.List(t, "HVALS", name), []string{"1"}) })
	}
	bed.Alive(t, h)
	bed.Unlock(t, h)
	free(t, s, "{g}a", "{g}b")
}
