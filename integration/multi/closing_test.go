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

// lineUp takes a lock from n goroutines, each of which unlocks it at once and says what came of it.
func lineUp(ctx context.Context, n int, l redlatch.Member, said chan<- error) {
	for range n {
		go func() {
			h, err := l.Lock(ctx)
			if err == nil {
				err = h.Unlock(context.WithoutCancel(ctx))
			}
			said <- err
		}()
	}
}

// inLine is a quorum of three whose copies somebody else holds, and a process that waits for
// it: one acquisition asks the servers, and three stand behind it, or are about to. home is the
// client that keeps the line.
func inLine(t *testing.T) (q redlatch.Member, other redlatch.Hold, home *redlatch.Client, rest []*redlatch.Client, said chan error) {
	t.Helper()
	list := servers(t, 3)
	cs := clients(t, addrs(list))
	q = redlatch.QuorumLock(copies(cs, "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q)) // a majority will do from here on
	other = bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(clients(t, addrs(list)), "q")...))
	said = make(chan error, 16)
	lineUp(t.Context(), 1, q, said)
	for _, s := range list {
		listens(t, s, "q")
	}
	lineUp(t.Context(), 3, q, said)
	i := slices.IndexFunc(cs, func(c *redlatch.Client) bool {
		return !slices.ContainsFunc(cs, func(o *redlatch.Client) bool { return strings.Compare(o.ID(), c.ID()) < 0 })
	})
	return q, other, cs[i], slices.Delete(slices.Clone(cs), i, i+1), said
}

// TestQuorumWaitersOfClosedClients: whoever waits for a quorum goes on when one of three clients is closed, and ends when no
// majority is left, whether it asks the servers itself or stands in the line of its process, and whenever it came.
func TestQuorumWaitersOfClosedClients(t *testing.T) {
	for what, want := range map[string]error{"one": nil, "two": redlatch.ErrClosed} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			q, other, home, rest, said := inLine(t)
			if want == nil {
				home.Close()
				lineUp(t.Context(), 3, q, said)
				bed.Unlock(t, other)
			} else {
				lineUp(t.Context(), 3, q, said)
				home.Close()
				rest[0].Close()
			}
			for range 7 {
				select {
				case err := <-said:
					if !errors.Is(err, want) {
						t.Errorf("error %v, want %v", err, want)
					}
				case <-time.After(bed.Patience):
					t.Fatal("a waiter has been forgotten")
				}
			}
			if want != nil {
				bed.Unlock(t, other)
			}
		})
	}
}

// TestClosedClientEndsTheNextTry: who waits for the lock of one client, or for a quorum, hears at its next try that another
// one's, which it needs too, can't come any more, and keeps nothing.
func TestClosedClientEndsTheNextTry(t *testing.T) {
	t.Parallel()
	type whole = func(cs []*redlatch.Client) redlatch.Member
	lock := func(i int, name string) whole {
		return func(cs []*redlatch.Client) redlatch.Member { return cs[i].RLock(name) }
	}
	quorum := func(cs []*redlatch.Client) redlatch.Member { return redlatch.QuorumLock(copies(cs[:3], "q")...) }
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
			"a quorum waited for asks":           {quorum, both(quorum, lock(3, "fenced:z")), 0, "q", []int{3}}, // what a first
			"a quorum waited for stands in line": {quorum, both(quorum, lock(3, "fenced:z")), 0, "q", []int{3}}, // round took is left
			"a quorum is needed, too":            {lock(3, "a"), both(quorum, lock(3, "a")), 3, "a", []int{0, 1}},
		} {
			t.Run(what+"/"+name, func(t *testing.T) {
				list := servers(t, 4)
				cs, others := clients(t, addrs(list)), clients(t, addrs(list))
				busy := bed.Lock(t, t.Context(), tc.busy(others))
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				var front <-chan bed.Attempt
				if name == "a quorum waited for stands in line" {
					front = bed.Async(ctx, quorum(cs))
					listens(t, list[0], "q")
				}
				got := bed.Async(t.Context(), tc.asked(cs))
				listens(t, list[tc.at], tc.of)
				time.Sleep(20 * time.Millisecond) // so that most runs find it waiting; it is right without
				for _, i := range tc.ends {
					end(cs[i])
				}
				cancel()
				if front != nil {
					<-front
				}
				bed.Unlock(t, busy)
				want(t, bed.Get(t, got).Err, redlatch.ErrClosed)
				_, err := tc.asked(cs).Lock(t.Context())
				want(t, err, redlatch.ErrClosed)
				bed.Unlock(t, bed.Lock(t, t.Context(), tc.busy(others)))
			})
		}
	}
}

// TestShutdownLetsAMultiLockReenter: a client that is shut down keeps nobody from waiting for
// another one's lock, whose owner holds what is asked of the former already.
func TestShutdownLetsAMultiLockReenter(t *testing.T) {
	t.Parallel()
	list := servers(t, 2)
	cs := clients(t, addrs(list))
	busy := bed.Lock(t, t.Context(), bed.Client(t, list[0].Addr()).RLock("a"))
	b := bed.Lock(t, t.Context(), cs[1].RLock("b"))
	got := bed.Async(b.Context(), across(cs, []string{"a", "b"}))
	listens(t, list[0], "a")
	down := make(chan error, 1)
	go func() { down <- cs[1].Shutdown(context.Background()) }()
	bed.Eventually(t, "the shutdown", func() bool {
		h, err := cs[1].RLock("other").TryLock(t.Context(), 0, 0)
		if err == nil {
			bed.Unlock(t, h)
		}
		return errors.Is(err, redlatch.ErrClosed)
	})
	bed.Unlock(t, busy)
	h := bed.Hold(t, got)
	bed.Unlock(t, h)
	bed.Unlock(t, b)
	if err := <-down; err != nil {
		t.Error(err)
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
		{"two", func(cs []*redlatch.Client) redlatch.Member { return across(cs[:2], []string{"a", "b"}) }, 1, 2},
		{"a quorum inside", func(cs []*redlatch.Client) redlatch.Member {
			return redlatch.MultiLock(redlatch.QuorumLock(copies(cs[:3], "q")...), cs[3].RLock("a"))
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
				cs := clients(t, append(addrs(list), list[0].Addr()))
				h := bed.Lock(t, t.Context(), tc.whole(cs), redlatch.WithLease(way.lease))
				// So many that ending them takes a while.
				below, cancels := make([]context.Context, 100_000), make([]context.CancelFunc, 100_000)
				for i := range below {
					below[i], cancels[i] = context.WithCancel(h.Context())
				}
				for _, c := range cs[:way.ends] {
					if err := way.end(c); err != nil {
						t.Error(err)
					}
				}
				left := 0
				for i, ctx := range below {
					if ctx.Err() == nil {
						left++
					}
					cancels[i]()
				}
				if left > 0 {
					t.Errorf("%d of the section's contexts go on", left)
				}
				want(t, context.Cause(h.Context()), way.cause)
				want(t, h.Unlock(context.Background()), way.cause) // the others' locks are free
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
	cs := clients(t, []string{proxy.Addr(), list[1].Addr()})
	other := bed.Lock(t, t.Context(), clients(t, addrs(list)[1:])[0].RLock("m"))
	trap := proxy.StallRequest(testbed.Contains("EVALSHA", luascript.Release.SHA))
	got := bed.Async(t.Context(), redlatch.MultiLock(copies(cs, "m")...))
	trap.Wait(t)
	ended := time.Now()
	for _, c := range cs {
		go func() { _ = c.Shutdown(context.Background()) }()
	}
	a := bed.Get(t, got)
	want(t, a.Err, redlatch.ErrClosed)
	if took := a.At.Sub(ended); took > redlatch.DefaultUnlockTimeout/2 {
		t.Errorf("it took %v", took)
	}
	trap.Release()
	bed.Unlock(t, other)
	becomesFree(t, list[0], "m")
}
