package pubsub

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
)

// Dialer makes subscription connections.
type Dialer interface {
	// Node names the node whose connection carries the channels of slot.
	Node(slot uint16) string
	// Dial connects to a node. The handler's methods run on the connection's read
	// path and do not block.
	Dial(node string, h Handler) (Link, error)
	// Moved tells that a node no longer serves its slots, or does not answer:
	// look again where they are.
	Moved(node string)
}

// Handler receives what a connection reads.
type Handler interface {
	Message(channel, payload string)
	Confirmed(channel string)
	Dropped(channel string)
}

// Link is one subscription connection.
type Link interface {
	Subscribe(ctx context.Context, channels []string, patterns bool) error
	Unsubscribe(ctx context.Context, channels []string, patterns bool) error
	Down() <-chan error // closed, or one error, when the connection has ended
	Close()
}

// RefusedError is an error of Subscribe that another try will not change. It says which channels it is about, and why.
// The others are subscribed.
type RefusedError map[string]error

// Error implements error.
func (e RefusedError) Error() string {
	for ch, err := range e {
		return fmt.Sprintf("%d channels, %q among them: %v", len(e), ch, err)
	}
	return "no channels"
}

// errPlace is Dial's answer for a node that only stands for slots whose place has
// to be asked for.
var errPlace = errors.New("place of the slots not known yet")

// errMoved ends a connection that leads to a server that was replaced.
var errMoved = errors.New("another server has taken over")

// node is the subscription connection to one server and the goroutine that owns
// it.
type node struct {
	hub  *Hub
	name string
	wake chan struct{} // cap 1: something changed
	// redial, cap 1: a connection made before it was filled leads to the wrong server
	redial chan struct{}
	ctx    context.Context // ends when the hub closes; no command outlasts it
	cancel context.CancelFunc
	stood  time.Time // run's goroutine's; since when the connection's subscriptions stand; zero: not yet

	// guarded by hub.mu
	down     bool      // that there is no connection has been told
	without  time.Time // since when there is none; zero: there is one
	topics   map[*topic]struct{}
	empty    time.Time            // since when it has no topics
	idle     lease.List[*topic]   // those without waiters, by idleSince
	tick     time.Time            // when serve looks without being told to
	channels map[string]*channel  // wanted, or subscribed
	changed  lease.List[*channel] // those of which the next round has to think
	feed     *feed                // of the connection of the moment
}

func (n *node) kick() { notify(n.wake) }

// notify leaves a signal on a channel of capacity 1, unless there is one.
func notify(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// The pause between two connections grows to longestPause, give or take half of it, while they fail, or end before they
// have lasted: all who wait ask for their locks each time.
const (
	longestPause = time.Second
	lasted       = 100 * time.Millisecond
)

// run owns the connection until the hub closes or there have been no topics for a
// while. The node is not in hub.nodes any more then.
func (n *node) run() {
	defer n.cancel()
	retry := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(5*time.Millisecond), backoff.WithMaxInterval(longestPause), backoff.WithMaxElapsedTime(0))
	for n.wanted() {
		select {
		case <-n.redial: // this one will lead to the right server
		default:
		}
		n.stood = time.Time{}
		err := n.connect()
		if !n.stood.IsZero() && time.Since(n.stood) > lasted {
			retry.Reset()
		}
		if err == nil || n.ctx.Err() != nil {
			continue // nothing is wanted any more
		}
		select {
		case <-n.redial: // it may have been ended for that
			err = errMoved
		default:
		}
		n.lost(err)
		select {
		case <-n.ctx.Done():
		case <-time.After(retry.NextBackOff()):
		}
	}
}

// idleNode is how long a node without topics is kept, and its connection.
const idleNode = 10 * time.Second

// wanted blocks until there are topics. It is false if the hub has closed, or if
// there have been none for so long that the node has ended.
func (n *node) wanted() bool {
	for {
		ended, left := n.end()
		if ended {
			return false
		}
		if left == 0 {
			return true
		}
		select {
		case <-n.wake:
		case <-time.After(left):
		case <-n.ctx.Done():
		}
	}
}

// end ends the node if nobody needs it. Else left is after how long to ask again,
// and 0 if there are topics. Who comes later gets another node.
func (n *node) end() (ended bool, left time.Duration) {
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case n.ctx.Err() != nil:
		return true, 0
	case len(n.topics) > 0:
		return false, 0
	}
	if left = idleNode - time.Since(n.empty); left > 0 {
		return false, left
	}
	delete(h.nodes, n.name)
	return true, 0
}

// connect makes a connection and serves on it. It returns as serve does.
func (n *node) connect() error {
	f := &feed{n}
	n.hub.mu.Lock()
	n.feed = f
	if n.without.IsZero() {
		n.without = time.Now()
		time.AfterFunc(longWithout, n.tellWithout) // ends at once
	}
	n.hub.mu.Unlock()
	link, err := n.linked(f)
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	n.feed = nil
	if link != nil && n.ctx.Err() == nil {
		n.resetLocked()
	}
	return err
}

// linked is what of it the client does, which may be the user's.
func (n *node) linked(f *feed) (link Link, err error) {
	defer observe.Recovered(&err)
	if link, err = n.hub.dial.Dial(n.name, f); err == nil {
		defer link.Close()
		err = n.serve(n.ctx, link)
	}
	return link, err
}

// serve keeps the link's subscriptions equal to what is wanted. It returns nil
// when the hub closed or nothing was wanted for a while, else why the link ended.
func (n *node) serve(ctx context.Context, link Link) error {
	moves, _ := link.(mover)
	surveyed := time.Now()
	for {
		if moves != nil && time.Since(surveyed) >= surveyEvery {
			surveyed = time.Now()
			if err := n.survey(ctx, moves); err != nil {
				return err
			}
		}
		if err := n.sync(ctx, link); err != nil {
			return err
		}
		if n.stood.IsZero() {
			n.stood = time.Now()
		}
		next := n.sweep()
		if next <= 0 {
			return nil
		}
		if moves != nil {
			next = min(next, max(surveyEvery-time.Since(surveyed), time.Millisecond))
		}
		select {
		case <-n.wake:
		case <-time.After(next):
		case <-n.redial:
			return errMoved
		case err, ok := <-link.Down():
			if !ok || err == nil {
				err = errors.New("subscription connection ended")
			}
			return err
		case <-n.ctx.Done():
			return nil
		}
	}
}

// sweep follows a sync: the connection stands. It forgets topics that nobody has waited on
// for a while, and returns when to look again; 0 if the node had no topics for so long
// that it may end.
func (n *node) sweep() time.Duration {
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	n.down, n.without = false, time.Time{}
	now := time.Now()
	next := n.dropIdleLocked(now, len(n.topics))
	if len(n.topics) == 0 {
		next = max(0, idleNode-now.Sub(n.empty))
	}
	n.tick = now.Add(next)
	return next
}

// dropIdleLocked forgets topics that nobody has waited on for a while, most of them at
// most. It returns after how long to look at the next one.
func (n *node) dropIdleLocked(now time.Time, most int) time.Duration {
	h := n.hub
	for t := n.idle.First(); t != nil && most > 0; t = n.idle.First() {
		h.looked++
		if left := Linger - now.Sub(t.idleSince); left > 0 {
			return left
		}
		h.dropTopicLocked(t)
		n.kick() // to unsubscribe
		most--
	}
	return time.Hour
}

// longWithout is how long a connection may be waited for before that is told.
const longWithout = 10 * time.Second

// tellWithout tells that a connection is still waited for, unless its loss was told.
func (n *node) tellWithout() {
	h := n.hub
	h.mu.Lock()
	waits := !n.without.IsZero() && time.Since(n.without) >= longWithout
	if n.ctx.Err() != nil || n.down || !waits || len(n.topics) == 0 {
		h.mu.Unlock()
		return
	}
	n.down = true
	h.wg.Add(1) // more than 0 already: the node's goroutine is there while it has topics
	defer h.wg.Done()
	h.mu.Unlock()
	h.log("redlatch: no connection for subscriptions yet; waiters ask again and again until there is one",
		"node", n.name, "after", longWithout)
}

// idleLocked notes that nobody waits for the topic any more.
func (n *node) idleLocked(t *topic) {
	t.idleSince = time.Now()
	n.idle.Push(&t.idle, t)
	if t.idleSince.Add(Linger).Before(n.tick) {
		n.kick()
	}
}

// loseLocked takes a topic from the node.
func (n *node) loseLocked(t *topic) {
	delete(n.topics, t)
	if len(n.topics) == 0 {
		n.empty = time.Now()
	}
}

// lost marks everything as not subscribed and moves topics to where their slots
// are now.
func (n *node) lost(err error) {
	n.hub.dial.Moved(n.name)
	for _, notice := range n.forget(err) {
		n.hub.log("redlatch: subscription lost; waiters retry when it is back", notice()...)
	}
}

// maxNotices bounds the lines of one lost connection.
const maxNotices = 16

// forget drops the topics that nobody waits for and moves the others to where their
// slots are now. If the loss is to be told, it returns a notice for each of them.
func (n *node) forget(err error) (notices []func() []any) {
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.ctx.Err() != nil {
		return nil
	}
	// Once each time, not at every try to connect again; and a place that has to
	// be asked for, or a connection that is left for a better one, is no loss. (Net's
	// ErrClosed says that this side has ended it: behind an address that led to a
	// demoted master all connections are, even one that was taken since Redial.)
	planned := errors.Is(err, errPlace) || errors.Is(err, errMoved) || errors.Is(err, errKept) || errors.Is(err, net.ErrClosed)
	tell := !n.down && !planned
	n.down = n.down || tell
	locks := 0
	for t := range n.topics {
		if t.waiters == 0 {
			h.dropTopicLocked(t)
			continue
		}
		if locks++; tell && locks <= maxNotices {
			notices = append(notices, t.noticeLocked("node", n.name, "error", err))
		}
		if to := h.dial.Node(t.spec.Slot); to != n.name {
			n.moveLocked(t, h.nodeLocked(to))
		}
	}
	if more := locks - maxNotices; tell && more > 0 {
		notices = append(notices, func() []any { return []any{"further_locks", more, "node", n.name, "error", err} })
	}
	return notices
}

// moveLocked gives a topic to another node. Nothing of it is subscribed.
func (n *node) moveLocked(t *topic, to *node) {
	n.loseLocked(t)
	to.topics[t] = struct{}{}
	t.node = to
	for ch, s := range t.subs {
		n.unwantLocked(ch, s)
		to.wantLocked(ch, s)
	}
	to.kick()
}
