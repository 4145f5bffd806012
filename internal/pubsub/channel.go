package pubsub

import (
	"context"
	"errors"

	"github.com/redlatch/redlatch/internal/lease"
)

// channel is a channel or pattern of one node: who wants it, and for whom it is
// subscribed. It is forgotten when it is neither. A channel belongs to one topic.
// Guarded by hub.mu.
type channel struct {
	name    string
	want    *sub                  // nil: nobody wants it
	have    *sub                  // subscribed, or being subscribed, for this one
	changed lease.Entry[*channel] // in node.changed while want and have may differ
}

// sub is one channel or pattern that a topic wants. Guarded by hub.mu.
type sub struct {
	topic     *topic
	pattern   bool
	refs      int
	confirmed bool
	refused   bool // a pattern that waiters can do without
}

// wantLocked makes the node subscribe at its next round.
func (n *node) wantLocked(name string, s *sub) {
	c := n.channels[name]
	if c == nil {
		c = &channel{name: name}
		n.channels[name] = c
	}
	c.want = s
	n.changed.Push(&c.changed, c)
}

// unwantLocked makes the node unsubscribe at its next round.
func (n *node) unwantLocked(name string, s *sub) {
	c := n.channels[name]
	if c == nil || c.want != s {
		return
	}
	c.want = nil
	n.changed.Push(&c.changed, c)
	n.tidyLocked(c)
}

// tidyLocked forgets a channel that is neither wanted nor subscribed.
func (n *node) tidyLocked(c *channel) {
	if c.want == nil && c.have == nil {
		c.changed.Remove()
		delete(n.channels, c.name)
	}
}

// retryLocked asks again for what was refused to the topic: permissions change.
func (t *topic) retryLocked() {
	t.err = nil
	for name, s := range t.subs {
		if c := t.node.channels[name]; c == nil || c.have != s {
			t.node.wantLocked(name, s)
		}
	}
}

// resetLocked is for a connection that has ended: nothing is subscribed or
// confirmed any more.
func (n *node) resetLocked() {
	for _, c := range n.channels {
		c.have = nil
		if c.want != nil {
			n.changed.Push(&c.changed, c)
		}
		n.tidyLocked(c)
	}
	for t := range n.topics {
		t.pending = len(t.subs)
		for _, s := range t.subs {
			s.confirmed, s.refused = false, false
		}
		t.nudgeLocked()
	}
}

// names are channels and patterns, which are subscribed apart, by whether they are patterns.
type names map[bool][]string

func (l names) add(name string, s *sub) { l[s.pattern] = append(l[s.pattern], name) }

// sync subscribes what is wanted and not there, and unsubscribes the rest. It
// looks at nothing but what has changed since the last time.
//
// Nobody waits for the end of a subscription, so that comes last. A channel dropped
// and wanted again in the meantime is subscribed at the next round.
func (n *node) sync(ctx context.Context, link Link) error {
	add, del := n.changes()
	err := add.each(ctx, func(ctx context.Context, channels []string, patterns bool) error {
		err := link.Subscribe(ctx, channels, patterns)
		some, refused := errors.AsType[RefusedError](err)
		for ch, err := range some {
			if notice := n.refuse(ch, err); notice != nil {
				n.hub.log("redlatch: subscription refused", notice()...)
			}
		}
		if refused {
			return nil
		}
		return err
	})
	if err != nil {
		return err
	}
	return del.each(ctx, link.Unsubscribe)
}

// changes takes what is to be done, first what somebody waits for. From then on a
// confirmation may come at any time.
func (n *node) changes() (add, del names) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	add, del = names{}, names{}
	later := names{}
	for c := range n.changed.All() {
		c.changed.Remove()
		n.hub.looked++
		switch {
		case c.want == nil && c.have != nil:
			del.add(c.name, c.have)
			c.have = nil
		case c.want == c.have, c.want.topic.err != nil, c.want.refused:
		default:
			// A channel dropped and wanted again before it was unsubscribed is
			// subscribed once more: the new waiters need the confirmation.
			if c.want.topic.waiters > 0 {
				add.add(c.name, c.want)
			} else {
				later.add(c.name, c.want)
			}
			c.have = c.want
		}
		n.tidyLocked(c)
	}
	for patterns, some := range later {
		add[patterns] = append(add[patterns], some...)
	}
	return add, del
}

func (l names) each(ctx context.Context, do func(context.Context, []string, bool) error) error {
	for _, patterns := range []bool{false, true} {
		if some := l[patterns]; len(some) > 0 {
			if err := do(ctx, some, patterns); err != nil {
				return err
			}
		}
	}
	return nil
}

// refuse notes that the server denied a channel. It returns a notice if anybody waits.
func (n *node) refuse(ch string, err error) (notice func() []any) {
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	c := n.channels[ch]
	if c == nil {
		return nil
	}
	c.have = nil
	n.tidyLocked(c)
	if c.want == nil {
		return nil
	}
	t := c.want.topic
	notice = t.noticeLocked("channel", ch, "error", err)
	if !c.want.pattern {
		t.err = err
		t.nudgeLocked()
		return notice
	}
	// An ACL allows a pattern only literally, and one per client can't be listed. It
	// is for others' calls that a waiter finds out by itself, later.
	c.want.refused = true
	t.confirmLocked(c.want)
	return notice
}

// confirmLocked notes that messages will come.
func (t *topic) confirmLocked(s *sub) {
	if !s.confirmed {
		s.confirmed = true
		t.pending--
	}
	if t.confirmed() {
		t.missedLocked()
	}
}

// feed is what a node's connection of the moment reads. What an older one may
// still say is not heard.
type feed struct{ node *node }

// channelLocked is the channel, nil if it is not known or this feed is an older one.
func (f *feed) channelLocked(name string) *channel {
	if f.node.feed != f {
		return nil
	}
	return f.node.channels[name]
}

// Message implements Handler.
func (f *feed) Message(name, payload string) {
	if unheard := f.message(name, payload); unheard != nil {
		unheard()
	}
}

// message takes a message, and returns what is to be called without the mutex if nobody waits for it.
func (f *feed) message(name, payload string) (unheard func()) {
	h := f.node.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c := f.channelLocked(name)
	if c == nil || c.want == nil {
		return nil
	}
	t := c.want.topic
	wk := t.spec.Route(name, payload)
	if t.calledLocked(&wk) {
		unheard = t.spec.Unheard
	}
	t.wakeLocked(wk, payload)
	return unheard
}

// Confirmed implements Handler. A repeat means that the connection was replaced
// underneath: messages may be missing.
func (f *feed) Confirmed(name string) {
	h := f.node.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	if c := f.channelLocked(name); c != nil && c.want != nil && c.want == c.have {
		c.want.topic.confirmLocked(c.want)
	}
}

// Dropped implements Handler: the server ended a subscription, or confirmed that
// we did.
func (f *feed) Dropped(name string) {
	n := f.node
	h := n.hub
	h.mu.Lock()
	defer h.mu.Unlock()
	c := f.channelLocked(name)
	if c == nil || c.have == nil {
		return // we asked for it
	}
	c.have = nil
	if s := c.want; s != nil {
		if s.confirmed {
			s.confirmed = false
			s.topic.pending++
			s.topic.nudgeLocked()
		}
		n.changed.Push(&c.changed, c)
		n.kick()
	}
	n.tidyLocked(c)
}
