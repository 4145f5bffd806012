package faults

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
	"math/rand/v2"
	"time"
)

// crowdFaults concern the list from which releases of a plain lock, the first one, call one client after
// the other. They excuse nothing: a release passes the dead over, and whoever waits looks by himself.
var crowdFaults = []fault{
	{
		// Whom nobody hears stands in front.
		name: "dead clients on the list", needs: "server", part: "data", lowest: .001, highest: .002,
		begin: func(w *world, p planned) func() {
			for i := range 1 + p.seed%20 {
				w.master(p.target).Do(w.t, "ZADD", crowdList, strconv.FormatUint(i, 10), stranger(i))
			}
			return nil
		},
	},
	{
		// Who hears his call and does nothing, as a process that stands still, stands in front.
		name: "a deaf client on the list", needs: "server", part: "data", lowest: .2, highest: .4,
		begin: func(w *world, p planned) func() {
			unhear := w.hear(p, luascript.CallChannel(crowdLock)+stranger(0), func() {})
			w.master(p.target).Do(w.t, "ZADD", crowdList, "1", stranger(0))
			return unhear
		},
	},
	{
		name: "list deleted", needs: "server", part: "data", lowest: .001, highest: .002,
		begin: func(w *world, p planned) func() { _, _ = w.master(p.target).Try("DEL", crowdList); return nil },
	},
	{
		// What it was called for goes to the next.
		name: "one leaves when it is called", needs: "visit", lowest: .2, highest: .4,
		begin: func(w *world, p planned) func() {
			ctx, cancel := context.WithCancel(context.Background())
			c := w.visitor()
			unhear := w.hear(p, luascript.CallChannel(crowdLock)+c.ID(), cancel)
			var wait sync.WaitGroup
			wait.Go(func() {
				if h, err := c.RLock(crowdLock).Lock(ctx); err == nil {
					_ = h.Unlock(context.Background())
				}
			})
			return func() { cancel(); wait.Wait(); c.Close(); unhear() }
		},
	},
}

// hear has heard called at each message of a channel, until the function that it returns is.
func (w *world) hear(p planned, channel string, heard func()) (end func()) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{w.master(p.target).Addr()}, DisableCache: true})
	if err != nil {
		w.t.Fatal(err)
	}
	dc, release := client.Dedicate()
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) { heard() }})
	if err := dc.Do(w.t.Context(), dc.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		w.t.Fatal(err)
	}
	return func() { dc.Close(); release(); client.Close() }
}

// crowdLock is the plain lock of those profiles that have one.
var crowdLock = fmt.Sprintf("{%s}0", kindPlain)

var crowdList = luascript.WaitKey(crowdLock)

// stranger is the id of a client that is not there.
func stranger(i uint64) string { return fmt.Sprintf("00000000-0000-4000-8000-%012d", i) }

// herd takes one lock from many goroutines at once.
func (p *party) herd(n int, seed uint64) {
	g := p.gen.Load()
	r := rand.New(rand.NewPCG(seed, seed)) // #nosec G404 -- a test
	kind := p.args.Work.Kinds[r.IntN(len(p.args.Work.Kinds))]
	i := r.IntN(names)
	for k := range n {
		p.herds.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(k))) // #nosec G404 -- a test
			t := p.thing(g, kind, i)
			e := &record{Op: opNone, ID: p.id(), Kind: t.kind, Names: t.names, Read: t.read, Client: g.clients[0].ID()}
			e.Owner = e.ID
			ctx, cancel := context.WithTimeout(context.Background(), patient)
			defer cancel()
			e.Call = mono()
			wait := time.Duration(r.Int64N(int64(2 * p.args.Lease)))
			e.Until = e.Call + wait
			h, err := t.lock.TryLock(ctx, wait, 0)
			e.Ret = mono()
			p.acquired(e, h, err)
			if h != nil {
				p.release(h, &record{Op: opEnd, ID: e.ID, Names: t.names}, newTold(h))
			}
		})
	}
}

// crowd is many goroutines that soon give up on locks of one tag, each on one of its own.
// They leave no record: what they do to others is the question.
func (p *party) crowd(n int, tag string, seed uint64) {
	g := p.gen.Load()
	for k := range n {
		p.herds.Go(func() {
			r := rand.New(rand.NewPCG(seed, uint64(k))) // #nosec G404 -- a test
			kind := tag
			if tag == "rw" {
				kind = kindRead
			}
			t := p.thing(g, kind, own+1000*p.args.Proc+k)
			ctx, cancel := context.WithTimeout(context.Background(), time.Duration(r.Int64N(int64(100*time.Millisecond))))
			defer cancel()
			p.extra.Add(1)
			if h, err := t.lock.Lock(ctx); err == nil {
				_ = h.Unlock(context.Background())
			}
		})
	}
}
