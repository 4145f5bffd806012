package multi

import (
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
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

// Members on several servers are one lock: held together, re-entered, waited for, and freed.
func TestAcrossNodes(t *testing.T) {
	list := servers(t, 3)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	m := across(cs, []string{"a", "b", "c"})
	h := mustLock(t, t.Context(), m)
	for i, n := range []string{"a", "b", "c"} {
		held(t, list[i], n)
	}
	again := mustLock(t, h.Context(), m)
	if n := count(t, list[1], "b"); n != "2" {
		t.Errorf("count %s after a re-entry", n)
	}
	unlock(t, again)

	// Others wait for it, and are told of its end.
	got := async(t.Context(), across(others, []string{"a", "b", "c"}))
	listens(t, list[0], "a")
	began := time.Now()
	unlock(t, h)
	h = get(t, got)
	if took := time.Since(began); took > woken {
		t.Errorf("woken %v after the unlock", took)
	}
	unlock(t, h)

	// One busy member: nothing of the others is kept, and its unlock message wakes.
	hb := mustLock(t, t.Context(), others[1].RLock("b"))
	_, err := m.TryLock(t.Context(), 0, 0)
	want(t, err, redlatch.ErrNotAcquired)
	free(t, list[0], "a")
	free(t, list[2], "c")
	unheard(t, list[1], "b") // the others may have waited for it
	got = async(t.Context(), m)
	listens(t, list[1], "b")
	becomesFree(t, list[0], "a") // its first round may be under way
	becomesFree(t, list[2], "c")
	for range 20 { // while it waits, nothing is kept
		free(t, list[0], "a")
		free(t, list[2], "c")
	}
	began = time.Now()
	unlock(t, hb)
	h = get(t, got)
	if took := time.Since(began); took > woken {
		t.Errorf("woken %v after the unlock", took)
	}
	unlock(t, h)

	// The wait ends: nothing is kept.
	hb = mustLock(t, t.Context(), others[2].RLock("c"))
	began = time.Now()
	_, err = m.TryLock(t.Context(), time.Second, 0)
	want(t, err, redlatch.ErrNotAcquired)
	if took := time.Since(began); took < time.Second || took > 4*time.Second {
		t.Errorf("a wait of 1 s took %v", took)
	}
	ctx, cancel := context.WithCancel(t.Context())
	got = async(ctx, m)
	listens(t, list[2], "c")
	cancel()
	r := <-got
	want(t, r.err, context.Canceled)
	becomesFree(t, list[0], "a") // given back in the background when ctx has ended
	becomesFree(t, list[1], "b")
	unlock(t, hb)
}

// TestUnlockNeverStopsAtTheFirst: a member that is lost and one whose server does
// not answer do not keep the others from being freed; the errors are joined.
func TestUnlockNeverStopsAtTheFirst(t *testing.T) {
	t.Parallel()
	const limit = 3 * time.Second // a healthy server answers in time
	list := servers(t, 4)
	cs := clients(t, addrs(list), lease(30*time.Second), func(c *redlatch.Config) { c.UnlockTimeout = limit })
	h := mustLock(t, t.Context(), across(cs, []string{"a", "b", "c", "d"}))
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
	eventually(t, "the frozen server's lock freed", func() bool { return list[1].Int(t, "EXISTS", "b") == 0 })
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
	got := async(t.Context(), m)
	list[1].Restart(t, testbed.Empty)
	unlock(t, get(t, got))
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
	h := mustLock(t, t.Context(), m)
	held(t, list[0], "a", "b", "f", "o")
	held(t, list[1], "u", "n")
	if n := count(t, list[0], "b"); n != "1" {
		t.Errorf("count %s of a lock named twice", n)
	}
	again := mustLock(t, h.Context(), build(cs, true))
	unlock(t, again)
	got := async(t.Context(), build(others, true))
	_, err := build(others, true).TryLock(t.Context(), 200*time.Millisecond, 0)
	want(t, err, redlatch.ErrNotAcquired)
	unlock(t, h)
	h = get(t, got)
	unlock(t, h)
	free(t, list[0], "a", "b", "f", "o")
	free(t, list[1], "u", "n")

	// A quorum is waited for by its own means.
	hu := mustLock(t, t.Context(), others[1].RLock("u"))
	got = async(t.Context(), m)
	listens(t, list[1], "u")
	becomesFree(t, list[0], "a", "b", "f", "o")
	unlock(t, hu)
	h = get(t, got)

	// Losing a member of a nested one ends the whole.
	list[1].Do(t, "DEL", "n")
	unlockErr := make(chan error, 1)
	go func() { unlockErr <- h.Unlock(context.Background()) }()
	want(t, <-unlockErr, redlatch.ErrLeaseLost)
}

// TestSameNameOnTwoServers: the order of equal names is that of the servers.
func TestSameNameOnTwoServers(t *testing.T) {
	list := servers(t, 2)
	cs, others := clients(t, addrs(list)), clients(t, addrs(list))
	m := redlatch.MultiLock(cs[0].RLock("x"), cs[1].RLock("x"))
	o := redlatch.MultiLock(others[1].RLock("x"), others[0].RLock("x"))
	h := mustLock(t, t.Context(), m)
	held(t, list[0], "x")
	held(t, list[1], "x")
	got := async(t.Context(), o)
	unlock(t, h)
	unlock(t, get(t, got))
}

// database is one of a server.
func database(n int) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.Redis.SelectDB = n }
}

// One name in two databases is two locks of one server. Two clients with the same one are found
// out: nobody waits for himself.
func TestSameNameInTwoDatabases(t *testing.T) {
	s := server(t)
	zero, one := dial(t, s.Addr()), dial(t, s.Addr(), database(1))
	others := clients(t, []string{s.Addr()}, database(1))[0]
	m := redlatch.MultiLock(one.RLock("x"), zero.RLock("x"))
	o := redlatch.MultiLock(dial(t, s.Addr()).RLock("x"), others.RLock("x"))
	h := mustLock(t, t.Context(), m)
	for _, c := range []*redlatch.Client{zero, one} {
		if st, err := c.RLock("x").State(t.Context()); err != nil || !st.Held {
			t.Errorf("%+v, %v", st, err)
		}
	}
	got := async(t.Context(), o)
	blocked(t, got)
	unlock(t, h)
	unlock(t, get(t, got))

	h = mustLock(t, t.Context(), others.RLock("x")) // in the second one alone
	_, err := m.TryLock(t.Context(), 0, 0)
	outcome(t, err, true, false)
	free(t, s, "x")
	unlock(t, h)
	unlock(t, mustLock(t, t.Context(), m))

	for what, l := range map[string]redlatch.Member{
		"one database": redlatch.MultiLock(zero.RLock("x"), one.RLock("x"), others.RLock("x")),
		"a quorum":     redlatch.QuorumLock(zero.RLock("x"), one.RLock("x"), dial(t, s.Addr(), database(2)).RLock("x")),
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
	s := server(t)
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
	zero, one := dial(t, s.Addr()), dial(t, s.Addr(), database(1))
	for _, stranger := range []*redlatch.Client{borrow(opt), borrow(rueidis.ClientOption{})} {
		unlock(t, mustLock(t, t.Context(), redlatch.MultiLock(stranger.RLock("x"), zero.RLock("x"))))
		_, err := redlatch.MultiLock(one.RLock("x"), stranger.RLock("x")).TryLock(t.Context(), 10*time.Second, 0)
		want(t, err, redlatch.ErrInvalidOption)
	}
}

// One explicit owner enters two MultiLocks of two clients.
func TestOwnerOfAllClients(t *testing.T) {
	list := servers(t, 2)
	cs := clients(t, addrs(list))
	ctx := redlatch.WithOwner(t.Context(), "job 7")
	h := mustLock(t, ctx, across(cs, []string{"a", "b"}))
	again := mustLock(t, ctx, redlatch.MultiLock(cs[1].RLock("b"), cs[0].RLock("a")))
	if n := count(t, list[0], "a"); n != "2" {
		t.Errorf("count %s", n)
	}
	unlock(t, h)
	held(t, list[0], "a")
	unlock(t, again)
	free(t, list[0], "a")
	// A single lock with the whole's context re-enters, on either client.
	h = mustLock(t, t.Context(), across(cs, []string{"a", "b"}))
	for i, n := range []string{"a", "b"} {
		unlock(t, mustLock(t, h.Context(), cs[i].RLock(n)))
	}
	_, err := cs[0].RLock("a").TryLock(t.Context(), 0, 0)
	want(t, err, redlatch.ErrNotAcquired)
	unlock(t, h)
}

// Close of one of the clients ends the whole's wait and the whole's hold.
func TestCloseEndsTheWaitAndTheHold(t *testing.T) {
	t.Parallel()
	list := servers(t, 2)
	cs, others := clients(t, addrs(list), lease(5*time.Second)), clients(t, addrs(list), lease(5*time.Second))
	h := mustLock(t, t.Context(), across(cs, []string{"a", "b"}))
	got := async(t.Context(), across(others, []string{"a", "b"}))
	listens(t, list[0], "a")
	others[0].Close()
	r := <-got
	want(t, r.err, redlatch.ErrClosed)
	cs[1].Close()
	want(t, ended(t, h), redlatch.ErrClosed)
	want(t, h.Unlock(t.Context()), redlatch.ErrClosed)
	free(t, list[0], "a")
	eventually(t, "the end of the closed client's lease", func() bool { return list[1].Int(t, "EXISTS", "b") == 0 })
}

// contend is one process of TestContention.
type contend struct {
	Addrs      []string
	Goroutines int
	Rounds     int
}

func init() {
	testbed.Role("multi-contend", func(ctx context.Context, w *testbed.Worker) error {
		var args contend
		if err := w.Args(&args); err != nil {
			return err
		}
		cs := make([]*redlatch.Client, len(args.Addrs))
		for i, a := range args.Addrs {
			c, err := newClient(a)
			if err != nil {
				return err
			}
			defer c.Close()
			cs[i] = c
		}
		raw, err := rawClient(args.Addrs[0])
		if err != nil {
			return err
		}
		defer raw.Close()
		var wg sync.WaitGroup
		errs := make([]error, args.Goroutines)
		for g := range args.Goroutines {
			wg.Go(func() {
				for range args.Rounds {
					members := []redlatch.Member{
						cs[0].RLock("a"), cs[0].RLock("b"), cs[1].RLock("c"), cs[2].RLock("d"),
					}
					rand.Shuffle(len(members), func(i, j int) { members[i], members[j] = members[j], members[i] })
					// Some leave a member out: sets that overlap.
					members = members[:3+rand.IntN(2)]
					errs[g] = redlatch.MultiLock(members...).Do(ctx, func(context.Context) error {
						for _, m := range members {
							if err := bump(ctx, raw, m.(interface{ Name() string }).Name()); err != nil {
								return err
							}
						}
						return nil
					})
					if errs[g] != nil {
						return
					}
				}
			})
		}
		wg.Wait()
		for _, err := range errs {
			if err != nil {
				return err
			}
		}
		w.Say("done")
		return nil
	})
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
		unlock(t, mustLock(t, t.Context(), m)) // the connections stand
		go func() {
			<-begin
			began := time.Now()
			for range turns {
				unlock(t, mustLock(t, t.Context(), m))
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

// TestContention: 16 goroutines × 4 processes over the same members in any
// order, also over overlapping sets: all make progress, and a counter per member
// that is not updated atomically comes out right.
func TestContention(t *testing.T) {
	const processes, goroutines, rounds = 4, 16, 4
	list := servers(t, 3)
	var ps []*testbed.Process
	began := time.Now()
	for range processes {
		ps = append(ps, testbed.Spawn(t, "multi-contend", contend{addrs(list), goroutines, rounds}))
	}
	for _, p := range ps {
		select {
		case line := <-p.Lines():
			if !strings.HasPrefix(line, "done") {
				t.Fatalf("%q: %s", line, p.Stderr())
			}
		case <-time.After(90 * time.Second):
			t.Fatal("no progress")
		}
	}
	t.Logf("%d acquisitions in %v", processes*goroutines*rounds, time.Since(began))
	var sum int64
	for _, n := range []string{"a", "b", "c", "d"} {
		sum += list[0].Int(t, "GET", "fenced:count:"+n)
		if bad := list[0].Int(t, "EXISTS", "fenced:bad:"+n); bad != 0 {
			t.Errorf("two were inside with %s", n)
		}
	}
	if sum < 3*processes*goroutines*rounds {
		t.Errorf("%d updates, want at least %d", sum, 3*processes*goroutines*rounds)
	}
	for _, p := range ps {
		if err := p.Wait(t); err != nil {
			t.Error(err)
		}
	}
	for i, l := range [][]string{{"a", "b"}, {"c"}, {"d"}} {
		free(t, list[i], l...)
	}
}
