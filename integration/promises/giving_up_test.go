package promises

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// slack is how long a call that was ended may take to return. It waits 50 ms for the server at
// most, a MultiLock twice that; the rest is for the machine.
const slack = 3 * time.Second

// Where a call waits. The function makes it wait there, with the n-th command of the lock to each server where that
// says which; what it returns says whether a command was caught since it was asked last, and lets all go on.
type await struct {
	name string
	stop func(t *testing.T, x *bed.Site, n int64, name string) (caught func() bool, release func())
	held bool // it makes nobody wait for a free lock
}

var awaits = []await{
	{"the request is on its way", stalled((*testbed.Proxy).StallRequest, bed.Of), false},
	{"the reply is on its way", stalled((*testbed.Proxy).StallReply, bed.Of), false},
	{"its subscription is not confirmed", stalled((*testbed.Proxy).StallReply, func(name string) testbed.Match {
		return testbed.Contains("SUBSCRIBE", name)
	}), true},
	{"there is no connection", func(t *testing.T, x *bed.Site, _ int64, _ string) (func() bool, func()) {
		cutOff(x)
		return never, func() { admit(t, x) }
	}, false},
	{"the reply was lost, and there is no connection", func(t *testing.T, x *bed.Site, _ int64, name string) (func() bool, func()) {
		for _, p := range x.Proxies {
			p.Refuse()
			p.DropReply(bed.Nth(0, bed.Of(name)))
		}
		return never, func() { admit(t, x) }
	}, false},
}

func never() bool { return false }

// Who has the lock when it is asked for.
var states = []struct {
	name string
	// take takes it, with clients that the call has, too; the function gives it back.
	take func(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string) (done func(closed bool))
	held bool
	own  bool // the owner of the call has it: it re-enters
	// frees says that it is given back when the call waits; what the call does then is stalled.
	frees bool
}{
	{"free", func(*testing.T, *bed.Site, []*redlatch.Client, string) func(bool) { return func(bool) {} }, false, false, false},
	{"held", heldBeside, true, false, false},
	{"held, and freed then", heldBeside, false, false, true},
	{"behind a waiter of its client", func(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string) func(bool) {
		h := bed.Lock(t, t.Context(), x.Beside(name))
		asked := x.Asked(t, name)
		first := passes(t.Context(), x.Kind.New(clients, name))
		asked()
		return func(closed bool) {
			bed.Unlock(t, h)
			passed(t, "the waiter before it", first, closed)
		}
	}, true, false, false},
	{"held by its owner", func(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string) func(bool) {
		return ownerLeaves(t, x, clients, name, bed.Lock(t, redlatch.WithOwner(t.Context(), "one"), x.Kind.New(clients, name)))
	}, false, true, false},
	{"behind another call of its owner", func(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string) func(bool) {
		ctx := redlatch.WithOwner(t.Context(), "one")
		leave := ownerLeaves(t, x, clients, name, bed.Lock(t, ctx, x.Kind.New(clients, name)))
		caught, release := stalled((*testbed.Proxy).StallReply, bed.Of)(t, x, 0, name)
		other := passes(ctx, x.Kind.New(clients, name))
		bed.Eventually(t, "another call under way", caught)
		return func(closed bool) {
			release()
			passed(t, "the owner's other call", other, closed)
			leave(closed)
		}
	}, true, true, false},
}

func heldBeside(t *testing.T, x *bed.Site, _ []*redlatch.Client, name string) func(bool) {
	t.Helper()
	h := bed.Lock(t, t.Context(), x.Beside(name))
	return func(bool) { bed.Unlock(t, h) }
}

// ownerLeaves unlocks what the owner of a call has. What Close has left to its lease is forced open.
func ownerLeaves(t *testing.T, x *bed.Site, clients []*redlatch.Client, name string, h redlatch.Hold) func(closed bool) {
	t.Helper()
	return func(closed bool) {
		if !closed {
			bed.Unlock(t, h)
		} else if err := h.Unlock(context.Background()); err != nil {
			want(t, "Unlock", err, redlatch.ErrClosed)
			evict(t, x, name, clients)
			for _, key := range x.Servers[0].List(t, "KEYS", "*"+name+"*rwlock_timeout*") {
				x.Servers[0].Do(t, "DEL", key) // a reader's ends with its lease
			}
		}
	}
}

// What ends the call.
type ending struct {
	name string
	// call runs the acquisition, which ctx or the client's end is to end.
	call func(ctx context.Context, l redlatch.Locker) (redlatch.Hold, error)
	end  func(leave context.CancelFunc, clients []*redlatch.Client)
	want []error
	// closes says that who stands behind needs a client of its own, before that the end comes before the call, shuts that who is inside already may enter again.
	closes, before, shuts bool
}

var endings = []ending{
	{name: "ctx ends", call: lock, want: []error{context.Canceled}, end: leaves},
	{name: "ctx had ended", call: lock, want: []error{context.Canceled}, before: true, end: leaves},
	{
		name: "the wait ends", want: []error{redlatch.ErrNotAcquired, redlatch.ErrUnavailable},
		call: func(ctx context.Context, l redlatch.Locker) (redlatch.Hold, error) {
			return l.TryLock(ctx, 250*time.Millisecond, 0)
		},
		end: func(context.CancelFunc, []*redlatch.Client) {},
	},
	{
		name: "the client is closed", call: lock, want: []error{redlatch.ErrClosed}, closes: true,
		end: func(_ context.CancelFunc, clients []*redlatch.Client) {
			for _, c := range clients {
				go c.Close() // it waits for what is under way
			}
		},
	},
	{
		name: "the client is shut down", call: lock, want: []error{redlatch.ErrClosed}, closes: true, shuts: true,
		end: func(_ context.CancelFunc, clients []*redlatch.Client) {
			for _, c := range clients {
				go func() { _ = c.Shutdown(context.Background()) }()
			}
		},
	},
}

func leaves(leave context.CancelFunc, _ []*redlatch.Client) { leave() }

func lock(ctx context.Context, l redlatch.Locker) (redlatch.Hold, error) { return l.Lock(ctx) }

// A call that is ended, wherever it waits and whatever ends it, returns at once, leaves nothing on the
// server, and holds up nobody behind it.
func TestAnEndedCallLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, k := range bed.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			x := bed.NewSite(t, k)
			defer func() {
				for _, key := range x.Servers[0].List(t, "KEYS", "redlatch_void:*") {
					if x.Servers[0].Int(t, "PTTL", key) == -1 {
						t.Errorf("%s, the mark of a call that gave up, stays for ever", key)
					}
				}
			}()
			for state := range states {
				for at := range awaits {
					for end := range endings {
						c := endedCall{x, state, at, endings[end]}
						if awaits[at].held && !states[state].held || c.ending.shuts && states[state].own ||
							states[state].frees && (at > 1 || c.ending.before) {
							continue
						}
						for n := int64(0); ; n++ {
							caught := false
							t.Run(states[state].name+"/"+awaits[at].name+"/"+c.ending.name+"/"+ordinal(n), func(t *testing.T) {
								caught = c.run(t, n, bed.Name(t.Name()))
							})
							if t.Failed() || !caught {
								break // the call has no n-th command
							}
						}
					}
				}
			}
		})
	}
}

// endedCall is one case of the table.
type endedCall struct {
	x         *bed.Site
	state, at int
	ending    ending
}

// run reports whether the call had an n-th command that could be stalled.
func (c endedCall) run(t *testing.T, n int64, name string) (caught bool) {
	t.Helper()
	clients := c.x.Fresh(t)
	done := states[c.state].take(t, c.x, clients, name)
	caughtOne, release := never, func() {}
	if !states[c.state].frees {
		caughtOne, release = awaits[c.at].stop(t, c.x, n, name)
	}
	asked := c.x.Asked(t, name)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	if states[c.state].own {
		ctx = redlatch.WithOwner(ctx, "one")
	}
	if c.ending.before {
		leave()
	}
	got := bed.Run(func() (redlatch.Hold, error) { return c.ending.call(ctx, c.x.Kind.Lasting(clients, name)) })
	if states[c.state].frees {
		asked()
		quiet(t, c.x)
		caughtOne, release = awaits[c.at].stop(t, c.x, n, name)
		done(false)
		done = func(bool) {}
	}
	patience := bed.Patience // a free lock is had at once
	if states[c.state].held || c.at >= 2 {
		patience = 100 * time.Millisecond
	}
	for began := time.Now(); !caught && len(got) == 0 && time.Since(began) < patience; {
		time.Sleep(time.Millisecond)
		caught = caughtOne()
	}
	if len(got) > 0 && !c.ending.before { // what was caught, if anything, is another command: a renewal, on a busy machine
		release()
		a := bed.Get(t, got)
		if a.Err == nil { // it has no command that could be stalled
			bed.Unlock(t, a.Hold)
			done(false)
			return false
		}
		got <- a
	}
	others := clients
	if c.ending.closes {
		others = c.x.Through
	}
	behind := passes(t.Context(), c.x.Kind.Excluded(others, name))
	ended := time.Now()
	c.ending.end(leave, clients)
	a := bed.Get(t, got)
	if a.Err == nil {
		t.Error("the call got the lock")
	}
	want(t, "the call", a.Err, c.ending.want...)
	testbed.AtMost(t, a.At.Sub(ended), slack, "to return the call took")
	release()
	done(c.ending.closes)
	passed(t, "the one behind", behind, false)
	bed.Unlock(t, bed.Lock(t, t.Context(), c.x.Beside(name)))
	bed.Eventually(t, "no key left", func() bool { return len(c.x.Keys(t, name)) == 0 })
	closeAll(clients)
	return caught && !c.ending.before
}

// passes locks, and unlocks as soon as it is inside.
func passes(ctx context.Context, l redlatch.Locker) <-chan bed.Attempt {
	return bed.Run(func() (redlatch.Hold, error) {
		h, err := l.Lock(ctx)
		if err == nil {
			err = h.Unlock(context.Background())
		}
		return h, err
	})
}

// passed waits for one who passes. His client may have been closed.
func passed(t *testing.T, who string, from <-chan bed.Attempt, closed bool) {
	t.Helper()
	if a := bed.Get(t, from); a.Err != nil && (!closed || !errors.Is(a.Err, redlatch.ErrClosed)) {
		t.Fatalf("%s: %v", who, a.Err)
	}
}

// stalled stalls the n-th of those commands to each server.
func stalled(stall func(*testbed.Proxy, testbed.Match) *testbed.Trap, of func(name string) testbed.Match) func(*testing.T, *bed.Site, int64, string) (func() bool, func()) {
	return func(_ *testing.T, x *bed.Site, n int64, name string) (func() bool, func()) {
		var traps []*testbed.Trap
		for _, p := range x.Proxies {
			traps = append(traps, stall(p, bed.Nth(n, of(name))))
		}
		return func() bool { return hit(traps) }, func() {
			for _, trap := range traps {
				trap.Release()
			}
		}
	}
}

// Calls that end at random moments, on a network that delays and breaks, by owners of their own and by one that
// they share, leave nothing: no hold, no place in a queue, no connection.
func TestCallsThatEndAtRandomMomentsLeaveNothing(t *testing.T) {
	t.Parallel()
	for _, k := range bed.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			x := bed.NewSite(t, k)
			name := bed.Name(t.Name())
			stop := make(chan struct{})
			var shaker, callers sync.WaitGroup
			shaker.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(5 * time.Millisecond):
					}
					p := x.Proxies[rand.IntN(len(x.Proxies))]
					p.Delay(testbed.Replies, rand.N(3*time.Millisecond))
					p.Delay(testbed.Requests, rand.N(3*time.Millisecond))
					if rand.IntN(100) == 0 {
						p.Cut()
					}
				}
			})
			var had, gave atomic.Int64
			for g := range 8 {
				callers.Go(func() {
					for i := range 60 {
						ctx, l := t.Context(), x.Kind.Lasting(x.Through, name+strconv.Itoa(i%3))
						switch g % 4 {
						case 0:
							ctx = redlatch.WithOwner(ctx, "one")
						case 1:
							l = x.Kind.Excluded(x.Through, name+strconv.Itoa(i%3))
						}
						ctx, leave := context.WithTimeout(ctx, rand.N(time.Duration(12*k.Servers<<(i/10))*time.Millisecond)) // the last are long enough for a busy machine
						h, err := l.Lock(ctx)
						if err == nil {
							had.Add(1)
							if err := h.Unlock(ctx); err != nil {
								t.Errorf("Unlock: %v", err)
							}
						} else {
							gave.Add(1)
							want(t, "Lock", err, context.DeadlineExceeded)
						}
						leave()
					}
				})
			}
			callers.Wait()
			close(stop)
			shaker.Wait()
			slowed(x, testbed.Replies, 0)
			slowed(x, testbed.Requests, 0)
			t.Logf("%d had the lock, %d gave up", had.Load(), gave.Load())
			if had.Load() == 0 || gave.Load() == 0 {
				t.Error("one of the outcomes was not tried")
			}
			bed.Eventually(t, "no key left", func() bool { return len(x.Keys(t, name)) == 0 })
			for i := range 3 {
				bed.Unlock(t, bed.Lock(t, t.Context(), x.Beside(name+strconv.Itoa(i))))
			}
		})
	}
}
