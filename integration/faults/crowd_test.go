package faults

import (
	"context"
	"fmt"
	"strconv"
	"sync"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/luascript"
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
