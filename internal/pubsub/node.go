package pubsub

import (
	"context"
	"errors"
	"time"

	"github.com/cenkalti/backoff/v4"
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

// ErrRefused marks a Subscribe error that another try will not change.
var ErrRefused = errors.New("subscription refused")

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
	stop   <-chan struct{} // its Done

	cancel context.CancelFunc

	down bool // the loss has been told; of the goroutine alone

	// guarded by hub.mu
	stopped bool
	topics  map[*topic]struct{}
	want    map[string]*topic
	have    map[string]*sub // subscribed or being subscribed, and for whom
}

func (n *node) kick() {
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *node) stopLocked() {
	if !n.stopped {
		n.stopped = true
		n.cancel()
	}
}

// run owns the connection from the first wanted channel until the hub closes or
// nothing has been wanted for a while.
func (n *node) run() {
	defer n.cancel()
	retry := backoff.NewExponentialBackOff(
		backoff.WithInitialInterval(5*time.Millisecond), backoff.WithMaxInterval(time.Second), backoff.WithMaxElapsedTime(0))
	for n.waitWanted() {
		select {
		case <-n.redial: // this one will lead to the right server
		default:
		}
		link, err := n.hub.dial.Dial(n.name, (*nodeHandler)(n))
		if err == nil {
			err = n.serve(n.ctx, link, retry)
			link.Close()
		}
		if err == nil || n.ctx.Err() != nil {
			continue // nothing is wanted any more
		}
		n.lost(err)
		pause := time.NewTimer(retry.NextBackOff())
		select {
		case <-n.stop:
		case <-pause.C:
		}
		pause.Stop()
	}
}

// waitWanted blocks until a channel is wanted; false: the hub closed.
func (n *node) waitWanted() bool {
	for {
		n.hub.mu.Lock()
		stopped, wanted := n.stopped, len(n.want) > 0
		n.hub.mu.Unlock()
		if stopped {
			return false
		}
		if wanted {
			return true
		}
		select {
		case <-n.wake:
		case <-n.stop:
		}
	}
}

// idleConn is how long a connection without subscriptions is kept.
const idleConn = 10 * time.Second

// serve keeps the link's subscriptions equal to what is wanted. It returns nil
// when the hub closed or nothing was wanted for a while, else why the link ended.
func (n *node) serve(ctx context.Context, link Link, retry *backoff.ExponentialBackOff) error {
	tick := time.NewTimer(time.Hour)
	defer tick.Stop()
	var idleSince time.Time
	for {
		err := n.sync(ctx, link)
		if err != nil {
			return err
		}
		retry.Reset()
		n.down = false
		next, wanted := n.sweep()
		if wanted {
			idleSince = time.Time{}
		} else {
			now := n.hub.now()
			if idleSince.IsZero() {
				idleSince = now
			}
			if now.Sub(idleSince) >= idleConn {
				return nil
			}
			next = idleConn - now.Sub(idleSince)
		}
		tick.Reset(next)
		select {
		case <-n.wake:
		case <-tick.C:
		case <-n.redial:
			return errMoved
		case err, ok := <-link.Down():
			if !ok || err == nil {
				err = errors.New("subscription connection ended")
			}
			return err
		case <-n.stop:
			return nil
		}
	}
}

// sync subscribes what is wanted and not there, and unsubscribes the rest.
func (n *node) sync(ctx context.Context, link Link) error {
	var add, addPat, del, delPat []string
	h := n.hub
	h.mu.Lock()
	for ch, t := range n.want {
		// A channel dropped and wanted again before it was unsubscribed is
		// subscribed once more: the new waiters need the confirmation.
		if n.have[ch] == t.subs[ch] || t.err != nil || t.subs[ch].refused {
			continue
		}
		if t.subs[ch].pattern {
			addPat = append(addPat, ch)
		} else {
			add = append(add, ch)
		}
	}
	for ch, s := range n.have {
		if n.want[ch] != nil {
			continue
		}
		delete(n.have, ch)
		if s.pattern {
			delPat = append(delPat, ch)
		} else {
			del = append(del, ch)
		}
	}
	// From here on a confirmation may come at any time.
	for _, ch := range add {
		n.have[ch] = n.want[ch].subs[ch]
	}
	for _, ch := range addPat {
		n.have[ch] = n.want[ch].subs[ch]
	}
	h.mu.Unlock()

	// Unsubscribe first: a channel dropped and wanted again in the meantime is
	// subscribed at the next round.
	if err := n.apply(ctx, del, delPat, link.Unsubscribe); err != nil {
		return err
	}
	for _, group := range []struct {
		channels []string
		patterns bool
	}{{add, false}, {addPat, true}} {
		if len(group.channels) == 0 {
			continue
		}
		err := link.Subscribe(ctx, group.channels, group.patterns)
		if errors.Is(err, ErrRefused) {
			err = n.subscribeEach(ctx, link, group.channels, group.patterns)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (n *node) apply(ctx context.Context, channels, patterns []string, do func(context.Context, []string, bool) error) error {
	if len(channels) > 0 {
		if err := do(ctx, channels, false); err != nil {
			return err
		}
	}
	if len(patterns) > 0 {
		return do(ctx, patterns, true)
	}
	return nil
}

// subscribeEach finds out which of several channels was refused, so that only
// its waiters fail.
func (n *node) subscribeEach(ctx context.Context, link Link, channels []string, patterns bool) error {
	for _, ch := range channels {
		err := link.Subscribe(ctx, []string{ch}, patterns)
		if err == nil {
			continue
		}
		if !errors.Is(err, ErrRefused) {
			return err
		}
		var refused *notice
		n.hub.mu.Lock()
		delete(n.have, ch)
		if t := n.want[ch]; t != nil {
			refused = t.noticeLocked("channel", ch, "error", err)
			if patterns {
				// An ACL allows a pattern only literally, and one per client can't be
				// listed. It is for others' calls that a waiter finds out by itself, later.
				t.subs[ch].refused, t.subs[ch].confirmed = true, true
				if t.pending--; t.confirmed() {
					t.missedLocked()
				}
			} else {
				t.failLocked(err)
			}
		}
		n.hub.mu.Unlock()
		if refused != nil {
			refused.log(n.hub, "redlatch: subscription refused")
		}
	}
	return nil
}

// sweep forgets topics that nobody has waited on for a while. It returns when to
// look again, and whether anything is wanted.
func (n *node) sweep() (time.Duration, bool) {
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	now, next, dropped := h.now(), time.Hour, false
	for t := range n.topics {
		if t.waiters > 0 {
			continue
		}
		if left := h.linger - now.Sub(t.idleSince); left <= 0 {
			h.dropTopicLocked(t)
			dropped = true
		} else {
			next = min(next, left)
		}
	}
	if dropped {
		n.kick() // to unsubscribe
	}
	return next, len(n.topics) > 0
}

// lost marks everything as not subscribed and moves topics to where their slots
// are now.
func (n *node) lost(err error) {
	h := n.hub
	h.dial.Moved(n.name)
	// Once each time, not at every try to connect again; and a place that has to
	// be asked for, or a connection that is left for a better one, is no loss.
	planned := errors.Is(err, errPlace) || errors.Is(err, errMoved)
	tell := !n.down && !planned
	n.down = n.down || !errors.Is(err, errMoved)
	for _, line := range n.forget(tell, err) {
		line.log(h, "redlatch: subscription lost; who waits tries again when it is back")
	}
}

// maxNotices bounds the lines of one lost connection.
const maxNotices = 16

// forget makes all subscriptions unconfirmed and moves the topics to where their
// slots are now. With tell it returns a notice for each topic with waiters.
func (n *node) forget(tell bool, err error) (lines []*notice) {
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if n.stopped {
		return nil
	}
	more := 0
	clear(n.have)
	for t := range n.topics {
		if line := t.noticeLocked("node", n.name, "error", err); tell && line != nil {
			if len(lines) < maxNotices {
				lines = append(lines, line)
			} else {
				more++
			}
		}
		n.resetLocked(t)
		if to := h.dial.Node(t.spec.Slot); to != n.name {
			n.moveLocked(t, h.nodeLocked(to))
		}
	}
	if more > 0 {
		lines = append(lines, &notice{args: []any{"further_locks", more, "node", n.name, "error", err}})
	}
	return lines
}

// resetLocked makes every subscription of a topic unconfirmed.
func (n *node) resetLocked(t *topic) {
	t.pending = len(t.subs)
	for _, s := range t.subs {
		s.confirmed, s.refused = false, false
	}
}

func (n *node) moveLocked(t *topic, to *node) {
	delete(n.topics, t)
	to.topics[t] = struct{}{}
	t.node = to
	for ch := range t.subs {
		delete(n.want, ch)
		to.want[ch] = t
	}
	to.kick()
}

// nodeHandler is a node as its connection sees it.
type nodeHandler node

// Message implements Handler.
func (nh *nodeHandler) Message(channel, payload string) {
	h := nh.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := nh.want[channel]; t != nil {
		wk := t.spec.Route(channel, payload)
		if wk.One && t.spec.Herd && t.head != nil && t.herd.standsBack() {
			wk.One = false
			t.herd.lookLater(h, t)
		}
		t.wakeLocked(wk, payload)
	}
}

// Confirmed implements Handler. A repeat means that the connection was replaced
// underneath: messages may be missing.
func (nh *nodeHandler) Confirmed(channel string) {
	h := nh.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	t := nh.want[channel]
	if t == nil {
		return
	}
	s := t.subs[channel]
	if !s.confirmed {
		s.confirmed = true
		t.pending--
	}
	if t.confirmed() {
		t.missedLocked()
	}
}

// Dropped implements Handler: the server ended a subscription, or confirmed that
// we did.
func (nh *nodeHandler) Dropped(channel string) {
	n := (*node)(nh)
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := n.have[channel]; !ok {
		return // we asked for it
	}
	delete(n.have, channel)
	t := n.want[channel]
	if t == nil {
		return
	}
	if s := t.subs[channel]; s.confirmed {
		s.confirmed = false
		t.pending++
	}
	n.kick()
}
