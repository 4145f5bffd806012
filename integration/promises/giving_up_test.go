package promises

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// slack is how long a call that was ended may take to return. It waits 50 ms for the server at
// most, a MultiLock twice that; the rest is for the machine.
const slack = 3 * time.Second

// Where a call waits: on the way to the server, on the way back, and for which command of it.
var awaits = []struct {
	name  string
	stall func(p *testbed.Proxy, m testbed.Match) *testbed.Trap
}{
	{"the request is on its way", (*testbed.Proxy).StallRequest},
	{"the reply is on its way", (*testbed.Proxy).StallReply},
}

// What ends the call.
type ending struct {
	name string
	// call runs the acquisition, which ctx or the client's end is to end.
	call func(ctx context.Context, l redlatch.Locker) (redlatch.Hold, error)
	end  func(leave context.CancelFunc, clients []*redlatch.Client)
	want []error
	// closes says that who stands behind needs a client of its own.
	closes bool
}

func (e ending) survivors(x *bed.Site, clients []*redlatch.Client) []*redlatch.Client {
	if e.closes {
		return x.Through
	}
	return clients
}

var endings = []ending{
	{
		name: "ctx ends", call: lock, want: []error{context.Canceled},
		end: func(leave context.CancelFunc, _ []*redlatch.Client) { leave() },
	},
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
}

func lock(ctx context.Context, l redlatch.Locker) (redlatch.Hold, error) { return l.Lock(ctx) }

// A call that is ended, wherever it waits and whatever ends it, returns at once, leaves nothing on the
// server, and holds up nobody behind it.
func TestAnEndedCallLeavesNothing(t *testing.T) {
	t.Parallel()
	for _, k := range bed.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			x := bed.NewSite(t, k)
			for _, held := range []bool{false, true} {
				for _, at := range awaits {
					for _, ending := range endings {
						for n := int64(0); ; n++ {
							caught := false
							c := endedCall{x, held, at.stall, ending, n}
							t.Run(c.state()+"/"+at.name+"/"+ending.name+"/"+ordinal(n), func(t *testing.T) { caught = c.run(t, bed.Name(t.Name())) })
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
	x      *bed.Site
	held   bool // by another client
	stall  func(*testbed.Proxy, testbed.Match) *testbed.Trap
	ending ending
	n      int64 // the command that is stalled
}

func (c endedCall) state() string {
	if c.held {
		return "held"
	}
	return "free"
}

// run reports whether the call had an n-th command that could be stalled.
func (c endedCall) run(t *testing.T, name string) (caught bool) {
	t.Helper()
	var before redlatch.Hold
	if c.held {
		before = bed.Lock(t, t.Context(), c.x.Beside(name))
	}
	clients := c.x.Fresh(t)
	caughtOne, release := stalled(c.x, c.stall, c.n, name)
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	got := bed.Run(func() (redlatch.Hold, error) { return c.ending.call(ctx, c.x.Kind.New(clients, name)) })
	quiet := bed.Patience // a free lock is had at once
	if c.held {
		quiet = 100 * time.Millisecond
	}
	for began := time.Now(); !caught && len(got) == 0 && time.Since(began) < quiet; {
		time.Sleep(time.Millisecond)
		caught = caughtOne()
	}
	if !caught && len(got) > 0 {
		release()
		if !c.held { // it has no command that could be stalled
			bed.Unlock(t, bed.Get(t, got).Hold)
			return
		}
	}
	behind := bed.Async(t.Context(), c.x.Kind.New(c.ending.survivors(c.x, clients), name))
	ended := time.Now()
	c.ending.end(leave, clients)
	a := bed.Get(t, got)
	if a.Err == nil {
		t.Error("the call got the lock")
	} else if !oneOf(a.Err, c.ending.want) {
		t.Errorf("the call returned %v, want one of %v", a.Err, c.ending.want)
	}
	if took := a.At.Sub(ended); took > slack {
		t.Errorf("the call took %v to return", took)
	}
	release()
	if before != nil {
		bed.Unlock(t, before)
	}
	b := bed.Get(t, behind)
	if b.Err != nil {
		t.Fatalf("the one behind: %v", b.Err)
	}
	bed.Unlock(t, b.Hold)
	bed.Unlock(t, bed.Lock(t, t.Context(), c.x.Beside(name)))
	bed.Eventually(t, "no key left", func() bool { return len(c.x.Keys(t, name)) == 0 })
	for _, c := range clients {
		c.Close()
	}
	return caught
}

// stalled stalls the n-th command of the lock to each server. The first function says whether
// one was caught since it was asked last, the second lets all go on.
func stalled(x *bed.Site, stall func(*testbed.Proxy, testbed.Match) *testbed.Trap, n int64, name string) (func() bool, func()) {
	var traps []*testbed.Trap
	for _, p := range x.Proxies {
		traps = append(traps, stall(p, bed.Nth(n, bed.Of(name))))
	}
	caught := func() bool {
		for _, trap := range traps {
			select {
			case <-trap.Hits():
				return true
			default:
			}
		}
		return false
	}
	return caught, func() {
		for _, trap := range traps {
			trap.Release()
		}
	}
}

func oneOf(err error, sentinels []error) bool {
	for _, e := range sentinels {
		if errors.Is(err, e) {
			return true
		}
	}
	return false
}
