package faults

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// crowdLock is the plain lock of those profiles that have one; crowdList is of those who wait for it.
var (
	crowdLock = fmt.Sprintf("{%s}0", kindPlain)
	crowdList = luascript.WaitKey(crowdLock)
)

// stranger is the id of a client that is not there.
func stranger(i uint64) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// crowdFaults concern the list from which releases of a plain lock, the first one, call one client after
// the other. They excuse nothing: a release passes the dead over, and whoever waits looks by himself.
var crowdFaults = []fault{
	// Whom nobody hears stands in front.
	onServer("dead clients on the list", "data", 0, .001, .002, func(x *ongoing) {
		for i := range 1 + x.seed%20 {
			x.server().Do(x.t, "ZADD", crowdList, strconv.FormatUint(i, 10), stranger(i))
		}
	}),
	// Who hears his call and does nothing, as a process that stands still, stands in front.
	onServer("a deaf client on the list", "data", 0, .2, .4, func(x *ongoing) {
		x.undo = x.hear(x.server(), stranger(0), func() {})
		x.server().Do(x.t, "ZADD", crowdList, "1", stranger(0))
	}),
	onServer("list deleted", "data", 0, .001, .002, func(x *ongoing) { _, _ = x.server().Try("DEL", crowdList) }),
	{
		// What it was called for goes to the next.
		name: "one leaves when it is called", needs: "visit", lowest: .2, highest: .4,
		begin: func(x *ongoing) {
			ctx, cancel := context.WithCancel(context.Background())
			c := x.visitor()
			unhear := x.hear(x.server(), c.ID(), cancel)
			var wait sync.WaitGroup
			wait.Go(func() {
				if h, err := c.RLock(crowdLock).Lock(ctx); err == nil {
					_ = h.Unlock(context.Background())
				}
			})
			x.undo = func() { cancel(); wait.Wait(); c.Close(); unhear() }
		},
	},
}

// hear has heard called at each call of a client, until the function that it returns is.
func (w *world) hear(s *testbed.Server, id string, heard func()) (end func()) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	testbed.Must(w.t, err)
	dc, release := client.Dedicate()
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) { heard() }})
	testbed.Must(w.t, dc.Do(w.t.Context(), dc.B().Subscribe().Channel(luascript.CallChannel(crowdLock)+id).Build()).Error())
	return func() { dc.Close(); release(); client.Close() }
}

// herd takes one lock from many goroutines at once.
func (p *party) herd(n int, seed uint64) {
	g, r, kinds := p.gen.Load(), seeded(seed, seed), p.args.Work.Kinds
	kind, i := kinds[r.IntN(len(kinds))], r.IntN(names)
	for k := range n {
		p.herds.Go(func() {
			t, wait := p.thing(g, kind, i), upTo(seeded(seed, uint64(k)), 2*p.args.Lease)
			ctx, cancel := context.WithTimeout(context.Background(), patient)
			p.release(p.take(p.attempt(g, t), wait, cancel, func() (redlatch.Hold, error) { return t.lock.TryLock(ctx, wait, 0) }))
		})
	}
}

// crowd is many goroutines that soon give up on locks of one tag, each on one of its own.
// They leave no record: what they do to others is the question.
func (p *party) crowd(n int, tag string, seed uint64) {
	g := p.gen.Load()
	if tag == "rw" {
		tag = kindRead
	}
	for k := range n {
		p.herds.Go(func() {
			t := p.thing(g, tag, own+1000*p.args.Proc+k)
			ctx, cancel := context.WithTimeout(context.Background(), upTo(seeded(seed, uint64(k)), 100*ms))
			defer cancel()
			p.extra.Add(1)
			if h, err := t.lock.Lock(ctx); err == nil {
				_ = h.Unlock(context.Background())
			}
		})
	}
}
