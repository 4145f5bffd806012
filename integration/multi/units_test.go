package multi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// across makes a lock of one plain lock per client, all of different names.
func across(cs []*redlatch.Client, list []string) *multiLock {
	members := make([]redlatch.Member, len(cs))
	for i, c := range cs {
		members[i] = c.RLock(list[i])
	}
	return redlatch.MultiLock(members...)
}

// TestUnlockNeverStopsAtTheFirst: a member that is lost and one whose server does
// not answer do not keep the others from being freed; the errors are joined.
func TestUnlockNeverStopsAtTheFirst(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second // a healthy server answers in time
	list := servers(t, 4)
	cs := clients(t, addrs(list), lease(30*time.Second), func(c *redlatch.Config) { c.UnlockTimeout = limit })
	h := bed.Lock(t, t.Context(), across(cs, []string{"a", "b", "c", "d"}))
	list[0].Do(t, "DEL", "a")
	list[1].Freeze(t)
	err := h.Unlock(t.Context())
	want(t, err, redlatch.ErrLeaseLost)
	want(t, err, redlatch.ErrUnavailable)
	var un *redlatch.UnavailableError
	if !errors.As(err, &un) || un.Nodes[0].Node != list[1].Addr() {
		t.Errorf("details %v", err)
	}
	free(t, list[2], "c")
	free(t, list[3], "d")
	list[1].Thaw(t)
	bed.Eventually(t, "the frozen server's lock freed", func() bool { return list[1].Int(t, "EXISTS", "b") == 0 })
	if err := h.Unlock(t.Context()); err != nil {
		t.Errorf("the second Unlock, for the member without an answer: %v", err)
	}
	want(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
}

// TestNodeDownForAll: a member's server is down: nothing is taken on the others.
func TestNodeDownForAll(t *testing.T) {
	list := servers(t, 2)
	cs := clients(t, addrs(list))
	m := across(cs, []string{"a", "b"})
	list[1].Kill(t)
	for _, wait := range []time.Duration{0, 500 * time.Millisecond} {
		began := time.Now()
		_, err := m.TryLock(t.Context(), wait, 0)
		outcome(t, err, false, true)
		var un *redlatch.UnavailableError // a busy machine's other server may be told of, too
		if !errors.As(err, &un) || !slices.ContainsFunc(un.Nodes, func(n redlatch.NodeError) bool { return n.Node == list[1].Addr() }) {
			t.Errorf("details %v", err)
		}
		if took := time.Since(began); took > wait+3*time.Second {
			t.Errorf("took %v", took)
		}
		if wait == 0 {
			free(t, list[0], "a")
		} else {
			becomesFree(t, list[0], "a") // given back in the background when the wait is over
		}
	}
	got := bed.Async(t.Context(), m)
	list[1].Restart(t, testbed.Empty)
	bed.Unlock(t, bed.Hold(t, got))
}

// Every kind is a member of a MultiLock: fair, a quorum, nested ones, the same lock twice.
func TestEveryKindOfMember(t *testing.T) {
	list := servers(t, 2)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	build := func(cs []*redlatch.Client, shuffle bool) *multiLock {
		members := []redlatch.Member{
			cs[0].RLock("a"), cs[0].RLock("b"), cs[0].FairLock("f"),
			redlatch.QuorumLock(cs[1].RLock("u")),
			redlatch.MultiLock(cs[1].RLock("n"), cs[0].RLock("b"), redlatch.MultiLock(cs[0].RLock("o"))),
		}
		if shuffle {
			rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
		}
		return redlatch.MultiLock(members...)
	}
	m := build(cs, false)
	if m.Name() != "[a b f u [n b [o]]]" {
		t.Errorf("name %s", m.Name())
	}
	h := bed.Lock(t, t.Context(), m)
	held(t, list[0], "a", "b", "f", "o")
	held(t, list[1], "u", "n")
	if n := count(t, list[0], "b"); n != "1" {
		t.Errorf("count %s of a lock named twice", n)
	}
	again := bed.Lock(t, h.Context(), build(cs, true))
	bed.Unlock(t, again)
	got := bed.Async(t.Context(), build(others, true))
	_, err := build(others, true).TryLock(t.Context(), 200*time.Millisecond, 0)
	want(t, err, redlatch.ErrNotAcquired)
	bed.Unlock(t, h)
	h = bed.Hold(t, got)
	bed.Unlock(t, h)
	free(t, list[0], "a", "b", "f", "o")
	free(t, list[1], "u", "n")

	// A quorum is waited for by its own means.
	hu := bed.Lock(t, t.Context(), others[1].RLock("u"))
	got = bed.Async(t.Context(), m)
	listens(t, list[1], "u")
	becomesFree(t, list[0], "a", "b", "f", "o")
	bed.Unlock(t, hu)
	h = bed.Hold(t, got)

	// Losing a member of a nested one ends the whole.
	list[1].Do(t, "DEL", "n")
	unlockErr := make(chan error, 1)
	go func() { unlockErr <- h.Unlock(context.Background()) }()
	want(t, <-unlockErr, redlatch.ErrLeaseLost)
}

// database is one of a server.
func database(n int) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.Redis.SelectDB = n }
}

// One name in two databases is two locks of one server. Two clients with the same one are found
// out: nobody waits for himself.
func TestSameNameInTwoDatabases(t *testing.T) {
	s := bed.Server(t)
	zero, one := bed.Client(t, s.Addr()), bed.Client(t, s.Addr(), database(1))
	others := clients(t, []string{s.Addr()}, database(1))[0]
	m := redlatch.MultiLock(one.RLock("x"), zero.RLock("x"))
	o := redlatch.MultiLock(bed.Client(t, s.Addr()).RLock("x"), others.RLock("x"))
	h := bed.Lock(t, t.Context(), m)
	for _, c := range []*redlatch.Client{zero, one} {
		if st, err := c.RLock("x").State(t.Context()); err != nil || !st.Held {
			t.Errorf("%+v, %v", st, err)
		}
	}
	got := bed.Async(t.Context(), o)
	blocked(t, got)
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Hold(t, got))

	h = bed.Lock(t, t.Context(), others.RLock("x")) // in the second one alone
	_, err := m.TryLock(t.Context(), 0, 0)
	outcome(t, err, true, false)
	free(t, s, "x")
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Lock(t, t.Context(), m))

	for what, l := range map[string]redlatch.Member{
		"one database": redlatch.MultiLock(zero.RLock("x"), one.RLock("x"), others.RLock("x")),
		"a quorum":     redlatch.QuorumLock(zero.RLock("x"), one.RLock("x"), bed.Client(t, s.Addr(), database(2)).RLock("x")),
	} {
		_, err := l.TryLock(t.Context(), 10*time.Second, 0) // known when the server has answered
		if !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestSameNameInADatabaseThatIsNotKnown: of an application's client only its options say which one it
// uses; what is one lock shows without them.
func TestSameNameInADatabaseThatIsNotKnown(t *testing.T) {
	s := bed.Server(t)
	opt := rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true, ForceSingleClient: true, SelectDB: 1}
	raw, err := rueidis.NewClient(opt)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(raw.Close)
	borrow := func(opt rueidis.ClientOption) *redlatch.Client {
		c, err := redlatch.NewWithClient(raw, redlatch.Config{Redis: opt, Logger: slog.New(slog.DiscardHandler)})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Close)
		return c
	}
	zero, one := bed.Client(t, s.Addr()), bed.Client(t, s.Addr(), database(1))
	for _, stranger := range []*redlatch.Client{borrow(opt), borrow(rueidis.ClientOption{})} {
		bed.Unlock(t, bed.Lock(t, t.Context(), redlatch.MultiLock(stranger.RLock("x"), zero.RLock("x"))))
		_, err := redlatch.MultiLock(one.RLock("x"), stranger.RLock("x")).TryLock(t.Context(), 10*time.Second, 0)
		want(t, err, redlatch.ErrInvalidOption)
	}
}

// TestNoLivelockInLockstep: two that each hold what the other one lacks give it back and try again. On
// servers that answer in step they would do so in step, for ever; the random pauses take them apart.
func TestNoLivelockInLockstep(t *testing.T) {
	t.Parallel()
	const oneWay, turns = 20 * time.Millisecond, 20
	list := servers(t, 2)
	var far []string
	for _, s := range list {
		p := testbed.NewProxy(t, s.Addr())
		p.Delay(testbed.Requests, oneWay)
		p.Delay(testbed.Replies, oneWay)
		far = append(far, p.Addr())
	}
	took := make(chan time.Duration, 2)
	begin := make(chan struct{})
	for range 2 {
		cs := clients(t, far)
		m := redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("y"))
		bed.Unlock(t, bed.Lock(t, t.Context(), m)) // the connections stand
		go func() {
			<-begin
			began := time.Now()
			for range turns {
				bed.Unlock(t, bed.Lock(t, t.Context(), m))
			}
			took <- time.Since(began)
		}()
	}
	close(begin)
	for range 2 {
		select {
		case d := <-took:
			t.Logf("%d turns in %v", turns, d)
		case <-time.After(30 * time.Second): // it takes 7 s; 40 to 70 s without the pauses
			t.Fatal("no progress")
		}
	}
}

// TestContention: many who take the same members, in any order, and sets that overlap, from clients of their own, all make
// progress, and nobody is inside with another one: the race detector sees it, and the counters come out right.
func TestContention(t *testing.T) {
	const sets, goroutines, rounds = 4, 16, 4
	list := servers(t, 3)
	counts := map[string]*int{"a": new(int), "b": new(int), "c": new(int), "d": new(int)} // each guarded by its lock
	var all sync.WaitGroup
	var took atomic.Int64
	for range sets {
		cs := clients(t, addrs(list))
		for range goroutines {
			all.Go(func() {
				for range rounds {
					members := []*redlatch.RLock{cs[0].RLock("a"), cs[0].RLock("b"), cs[1].RLock("c"), cs[2].RLock("d")}
					rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
					members = members[:3+rand.IntN(2)] // some leave one out
					var of []redlatch.Member
					for _, m := range members {
						of = append(of, m)
					}
					err := redlatch.MultiLock(of...).Do(t.Context(), func(context.Context) error {
						for _, m := range members {
							was := *counts[m.Name()]
							time.Sleep(rand.N(300 * time.Microsecond))
							*counts[m.Name()] = was + 1
						}
						return nil
					})
					if err != nil {
						t.Error(err)
						return
					}
					took.Add(int64(len(members)))
				}
			})
		}
	}
	all.Wait()
	if sum := *counts["a"] + *counts["b"] + *counts["c"] + *counts["d"]; int64(sum) != took.Load() || took.Load() < 3*sets*goroutines*rounds {
		t.Errorf("%d updates of %d", sum, took.Load())
	}
	for i, l := range [][]string{{"a", "b"}, {"c"}, {"d"}} {
		free(t, list[i], l...)
	}
}
