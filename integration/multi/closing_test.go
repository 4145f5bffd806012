package multi

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestQuorumWaitersOfClosedClients: whoever waits for a quorum goes on when one of three clients is closed, and ends
// when no majority is left, whether it asks the servers itself or stands in the line of its process, and whenever it came.
func TestQuorumWaitersOfClosedClients(t *testing.T) {
	t.Parallel()
	for what, over := range map[string]error{"one": nil, "two": redlatch.ErrClosed} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			x := quorums(t, 3)
			other := bed.Lock(t, t.Context(), x.Beside("q"))
			said := make(chan error, 7)
			wait := func(n int) {
				for range n {
					go func() { // ends with the test's waits
						said <- redlatch.Do(context.Background(), x.Lock("q"), func(context.Context) error { return nil })
					}()
				}
			}
			wait(1)
			bed.Listeners(t, 1, "q", x.Servers...)
			wait(3) // they stand behind it, or are about to
			ends := slices.Clone(x.Through)
			slices.SortFunc(ends, func(a, b *redlatch.Client) int { return strings.Compare(a.ID(), b.ID()) })
			ends[0].Close() // the one that keeps the line
			wait(3)
			if over != nil {
				ends[1].Close()
			} else {
				bed.Unlock(t, other)
			}
			for range cap(said) {
				bed.Want(t, bed.Receive(t, bed.Patience, said), over) // no waiter is forgotten
			}
			if over != nil {
				bed.Unlock(t, other)
			}
		})
	}
}

// TestClosedClientEndsTheNextTry: who waits for the lock of one client, or for a quorum, hears at its next try that
// another one's, which it needs too, can't come any more, and keeps nothing. Who comes later asks no server.
func TestClosedClientEndsTheNextTry(t *testing.T) {
	t.Parallel()
	type whole = func(cs []*redlatch.Client) redlatch.Member
	lock := func(i int, name string) whole {
		return func(cs []*redlatch.Client) redlatch.Member { return cs[i].RLock(name) }
	}
	majority := func(cs []*redlatch.Client) redlatch.Member { return quorum(cs[:3], "q") }
	both := func(a, b whole) whole {
		return func(cs []*redlatch.Client) redlatch.Member { return redlatch.MultiLock(a(cs), b(cs)) }
	}
	for what, end := range map[string]func(c *redlatch.Client){
		"Close":    func(c *redlatch.Client) { c.Close() },
		"Shutdown": func(c *redlatch.Client) { _ = c.Shutdown(context.Background()) },
	} {
		for name, tc := range map[string]struct {
			busy, asked whole
			at          int // the server at which it waits, and for what
			of          string
			ends        []int
		}{
			"a lock is waited for":               {lock(0, "a"), both(lock(0, "a"), lock(1, "b")), 0, "a", []int{1}},
			"a quorum waited for asks":           {majority, both(majority, lock(3, "z")), 0, "q", []int{3}},
			"a quorum waited for stands in line": {majority, both(majority, lock(3, "z")), 0, "q", []int{3}},
			"a quorum is needed, too":            {lock(3, "a"), both(majority, lock(3, "a")), 3, "a", []int{0, 1}},
			"a quorum alone":                     {majority, majority, 0, "q", []int{0, 1}},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				list := append(servers(t, 3), bed.Server(t, "z")) // what a first round took is left
				cs, others := clients(t, list), clients(t, list)
				busy := bed.Lock(t, t.Context(), tc.busy(others))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var front <-chan bed.Attempt
				if strings.HasSuffix(name, "stands in line") {
					front = bed.Async(ctx, majority(cs))
					bed.Listeners(t, 1, "q", list[0])
				}
				got := bed.Async(t.Context(), tc.asked(cs))
				bed.Listeners(t, 1, tc.of, list[tc.at])
				time.Sleep(20 * time.Millisecond) // so that most runs find it waiting; it is right without
				for _, i := range tc.ends {
					end(cs[i])
				}
				cancel()
				if front != nil {
					<-front
				}
				bed.Unlock(t, busy)
				bed.Want(t, bed.Get(t, got).Err, redlatch.ErrClosed)
				open := list[0] // the server of a client that goes on
				if slices.Contains(tc.ends, 0) {
					open = list[2]
				}
				open.AwaitQuiet(t)
				before := open.CommandStats(t)
				_, err := tc.asked(cs).Lock(t.Context())
				bed.Want(t, err, redlatch.ErrClosed)
				testbed.AtMost(t, open.CommandStats(t).Sub(before).Calls["evalsha"], 0, "commands that were sent")
				bed.Unlock(t, bed.Lock(t, t.Context(), tc.busy(others)))
			})
		}
	}
}

// TestNothingOfAWholeEndsAfterClose: when Close or Shutdown has returned, the context of a MultiLock's
// hold has ended, with all that was derived from it.
func TestNothingOfAWholeEndsAfterClose(t *testing.T) {
	t.Parallel()
	const short = 2 * time.Second // Shutdown waits for the lock to be unlocked, or lost
	list := servers(t, 3)
	for _, tc := range []struct {
		name         string
		whole        func(cs []*redlatch.Client) redlatch.Member
		closed, shut int // so many of the clients: any of them may find the lock lost first
	}{
		{"one client", func(cs []*redlatch.Client) redlatch.Member { return redlatch.MultiLock(plain(cs[0], "a", "b")...) }, 1, 1},
		{"two", func(cs []*redlatch.Client) redlatch.Member { return across(cs[:2]) }, 1, 2},
		{"a quorum inside", func(cs []*redlatch.Client) redlatch.Member {
			return redlatch.MultiLock(quorum(cs[:3], "q"), cs[3].RLock("a"))
		}, 2, 4},
	} {
		for what, way := range map[string]struct {
			end   func(c *redlatch.Client) error
			ends  int
			lease time.Duration
			cause error
		}{
			"Close":    {func(c *redlatch.Client) error { c.Close(); return nil }, tc.closed, time.Minute, redlatch.ErrClosed},
			"Shutdown": {func(c *redlatch.Client) error { return c.Shutdown(context.Background()) }, tc.shut, short, redlatch.ErrLeaseLost},
		} {
			t.Run(tc.name+"/"+what, func(t *testing.T) {
				cs := clients(t, append(slices.Clone(list), list[0]))
				h := bed.Lock(t, t.Context(), tc.whole(cs), redlatch.WithLease(way.lease))
				// So many that ending them takes a while.
				below := make([]context.Context, 100_000)
				for i := range below {
					var cancel context.CancelFunc
					below[i], cancel = context.WithCancel(h.Context())
					defer cancel()
				}
				for _, c := range cs[:way.ends] {
					bed.Want(t, way.end(c), nil)
				}
				if slices.ContainsFunc(below, func(ctx context.Context) bool { return ctx.Err() == nil }) {
					t.Error("some of the section's contexts go on")
				}
				bed.Want(t, context.Cause(h.Context()), way.cause)
				bed.Want(t, h.Unlock(context.Background()), way.cause) // the others' locks are free
				if tc.name == "two" && what == "Close" {
					free(t, list[1], "b")
				}
				for _, s := range list {
					s.Do(t, "FLUSHALL")
				}
			})
		}
	}
}

// Whoever gives back what a round took, and gets no answer, ends with its clients at once.
func TestShutdownEndsWhoGivesBack(t *testing.T) {
	t.Parallel()
	list := servers(t, 2)
	proxy := testbed.NewProxy(t, list[0].Addr())
	cs := []*redlatch.Client{bed.Client(t, proxy.Addr()), bed.Client(t, list[1].Addr())}
	other := bed.Lock(t, t.Context(), bed.Client(t, list[1].Addr()).RLock("m"))
	trap := proxy.StallRequest(testbed.Contains("EVALSHA", luascript.Release.SHA))
	got := bed.Async(t.Context(), redlatch.MultiLock(copies(cs, "m")...))
	trap.Wait(t)
	began := time.Now()
	for _, c := range cs {
		go func() { _ = c.Shutdown(context.Background()) }()
	}
	a := bed.Get(t, got)
	bed.Want(t, a.Err, redlatch.ErrClosed)
	testbed.AtMost(t, a.At.Sub(began), redlatch.DefaultUnlockTimeout/2, "it took")
	trap.Release()
	bed.Unlock(t, other)
	becomeFree(t, "m", list[0])
}

// A writer reads during a Shutdown, through a MultiLock and a quorum as through the lock alone.
func TestAWriterReadsDuringShutdown(t *testing.T) {
	t.Parallel()
	cs := clients(t, servers(t, 3))
	read, write := readWrite(cs)
	w := bed.Lock(t, t.Context(), write)
	down := make(chan error, len(cs))
	for _, c := range cs {
		go func() { down <- c.Shutdown(context.Background()) }() // ends with what is held
	}
	for _, c := range cs {
		bed.Eventually(t, "nobody else gets in", func() bool {
			h, err := c.RLock("x").TryLock(t.Context(), 0, 0)
			if err == nil {
				bed.Unlock(t, h)
			}
			return errors.Is(err, redlatch.ErrClosed)
		})
	}
	one := cs[0].ReadWriteLock("rw").ReadLock()
	for what, l := range map[string]redlatch.Locker{"alone": one, "MultiLock": redlatch.MultiLock(one), "quorum": read} {
		r, err := l.TryLock(w.Context(), 0, 0)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			continue
		}
		bed.Unlock(t, r)
	}
	bed.Unlock(t, w)
	for range cs {
		bed.Want(t, bed.Receive(t, bed.Patience, down), nil)
	}
}

// TestAContextThatOutlivesItsHoldDelaysNobody: code behind a section that keeps no more than the values of its context
// hears at once why it can't have the lock again.
func TestAContextThatOutlivesItsHoldDelaysNobody(t *testing.T) {
	t.Parallel()
	for what, again := range map[string]func(ctx context.Context) (context.Context, context.CancelFunc){
		"without an end": func(ctx context.Context) (context.Context, context.CancelFunc) { return ctx, func() {} },
		"with one of its own": func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Hour)
		},
	} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			cs := clients(t, servers(t, 3))
			locks := []redlatch.Locker{across(cs), quorum(cs, "q")}
			ctxs := make([]context.Context, len(locks))
			for i, l := range locks {
				h := bed.Lock(t, t.Context(), l)
				ctx, cancel := again(context.WithoutCancel(h.Context()))
				defer cancel()
				ctxs[i] = ctx
				bed.Unlock(t, h)
			}
			for _, c := range cs {
				c.Close()
			}
			for i, l := range locks {
				began := time.Now()
				_, err := l.TryLock(ctxs[i], 0, 0)
				bed.Want(t, err, redlatch.ErrClosed)
				if took := time.Since(began); took > time.Second/2 {
					t.Errorf("it took %v to say %v", took, err)
				}
			}
		})
	}
}
