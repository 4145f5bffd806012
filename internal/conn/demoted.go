package conn

import (
	"maps"
	"slices"
	"sync"
	"time"
)

// demotion paces what is done about a replica behind the one address of a client. A name, a virtual
// IP or a proxy leads to the new master after a failover, but new connections only, and a demoted
// master closes none of those that it has. So the client library would stay there for ever.
//
// The zero value has seen none. It is safe for concurrent use.
type demotion struct {
	before func()                      // see OnReplica; nil: nobody is told
	told   func(err error, first bool) // see OnReplica

	mu    sync.Mutex
	began time.Time // guarded by mu; the first refusal of the outage
	last  time.Time // guarded by mu; its latest
	next  time.Time // guarded by mu; when connections may be ended again
}

const (
	// The pause between two ends of the connections grows with the outage: the address may lead
	// to the replica for a while, or for good.
	redialLeast = time.Second
	redialMost  = 5 * time.Second
	// outageOver is after how long without a refusal the next one is another outage. (A success
	// would not tell: a replica knows that a lock is busy as well as its master.)
	outageOver = 30 * time.Second
)

// refused notes that a server has said at now that it is a replica. It reports whether to end the
// connections, and whether that is the first thing to be done in an outage.
func (d *demotion) refused(now time.Time) (end, first bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	first = d.last.IsZero() || now.Sub(d.last) > outageOver
	if first {
		d.began = now
	}
	d.last = now
	if now.Before(d.next) {
		return false, false
	}
	d.next = now.Add(min(max(now.Sub(d.began), redialLeast), redialMost))
	return true, first
}

// OnReplica says what is done when a server has refused a script because it is a replica, if the
// client knows no other server and its connections are ours. They are ended then, so that the next
// command and the next subscription get new ones, which may lead to the master: before is called
// right before that, so that a subscription takes its end for planned, and told after it; first says
// that it is the first time in an outage. A second later they are ended, and before is called, once
// more: a subscription that was made, or a connection that was put by, while the address still led to
// the replica would never learn that commands go elsewhere. One is left out: a subscription that is made
// right before the address goes on, when the next command connects right after. It hears what the master
// publishes all the same, since a replica passes that on. Neither may block. OnReplica comes before the
// first command, or not at all.
func (c *Conn) OnReplica(before func(), told func(err error, first bool)) {
	c.demoted.before, c.demoted.told = before, told
}

// note looks for what a server says of itself in the error of a command.
func (c *Conn) note(err error) {
	if c.dial == nil || c.watch != nil || c.topo.Cluster || !isReplica(err) {
		return
	}
	if len(c.dial.open()) == 0 { // a ClientBuilder may dial by itself
		return
	}
	end, first := c.demoted.refused(time.Now())
	if !end {
		return
	}
	c.endAll()
	time.AfterFunc(redialLeast, c.endAll) // ends at once
	if told := c.demoted.told; told != nil {
		told(err, first)
	}
}

// endAll ends all connections.
func (c *Conn) endAll() {
	if before := c.demoted.before; before != nil {
		before()
	}
	for _, l := range c.dial.open() {
		// The client library sees that when it reads, and closes it, too.
		_ = bare(l.Conn).Close() // TLS's own Close would wait for a server that reads nothing
	}
}

// isReplica reports whether a server has refused what only a master does.
func isReplica(err error) bool { return answers(err, "READONLY", "MASTERDOWN") }

// open are the connections that have not ended.
func (o *dialler) open() []*tracked {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.conns))
}
