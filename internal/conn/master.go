package conn

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// masterWatch tells when a client that follows sentinels has gone over to another
// master. The client library says nothing of it, but it never does so without
// having connected to the new one first: the goroutine sleeps until a connection
// is made, and looks at the master's address for a while then.
type masterWatch struct {
	dialled chan struct{} // cap 1: a connection was made
	settle  time.Duration // how long after it the client may go over
	poll    time.Duration // 0, or how often to look where no connection is told of
	quit    chan struct{}
	wg      sync.WaitGroup // the goroutine
}

// The pauses between two looks: the client goes over a few milliseconds after the
// connection was made, or does not.
const (
	firstLook = 2 * time.Millisecond
	lastLook  = 100 * time.Millisecond
)

// watchMaster makes a watch of what d dials with opt.
func watchMaster(d *dialler, opt *rueidis.ClientOption) *masterWatch {
	return &masterWatch{
		dialled: d.dialled, quit: make(chan struct{}),
		// The handshake and the question for the role are in between.
		settle: 2*(opt.ConnWriteTimeout+opt.Dialer.KeepAlive) + time.Second,
	}
}

// start begins to watch; moved is called, never twice at a time, after the client
// has gone over.
func (w *masterWatch) start(addr func() string, moved func()) {
	w.wg.Go(func() { w.run(addr, moved) }) // ends with stop
}

func (w *masterWatch) stop() {
	close(w.quit)
	w.wg.Wait()
}

func (w *masterWatch) run(addr func() string, moved func()) {
	var look <-chan time.Time // nil: nothing is expected
	var until time.Time
	pause := firstLook
	last := addr()
	if w.poll > 0 {
		look = time.After(w.poll)
	}
	for {
		select {
		case <-w.dialled:
			until, pause = time.Now().Add(w.settle), firstLook
		case <-look:
			pause = min(2*pause, lastLook)
		case <-w.quit:
			return
		}
		if now := addr(); now != last {
			last = now
			moved()
		}
		look = nil
		switch {
		case time.Now().Before(until):
			look = time.After(pause)
		case w.poll > 0:
			look = time.After(w.poll)
		}
	}
}

// masterAddr is the address of the client's only node. A client that reads from a replica has two, and
// doesn't say which is the master: the two change when that does, unless they change places at once.
func masterAddr(client rueidis.Client) string {
	return strings.Join(slices.Sorted(maps.Keys(client.Nodes())), ",")
}
