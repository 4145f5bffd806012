package pubsub

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"time"
)

// While a slot of a cluster is half-way, scripts run where it goes to, and their messages arrive there,
// but subscriptions stand where it comes from until it is whole. So as long as somebody waits on a
// connection for sharded channels, its node is asked once a second which slots it is losing, and who
// waits for a lock of one tries again.

// surveyEvery is how often a node is asked.
const surveyEvery = time.Second

// mover is a Link to a node that may lose slots.
type mover interface {
	Link
	// Losing are the slots that are on their way from the node to another one.
	Losing(ctx context.Context) ([]uint16, error)
}

// survey wakes those who wait for locks of slots that the node is losing. An
// error is the end of the connection.
func (n *node) survey(ctx context.Context, link mover) error {
	n.hub.mu.Lock()
	waited := len(n.topics) > 0 // or was a moment ago
	n.hub.mu.Unlock()
	if !waited {
		return nil
	}
	losing, err := link.Losing(ctx)
	if err != nil || len(losing) == 0 {
		return err
	}
	n.hub.mu.Lock()
	defer n.hub.mu.Unlock()
	for t := range n.topics {
		if t.waiters > 0 && slices.Contains(losing, t.spec.Slot) {
			t.missedLocked()
		}
	}
	return nil
}

// shardedLink is a connection for sharded channels.
type shardedLink struct{ *link }

// Losing implements mover. Who may not ask hears of none, and does not ask again.
func (l shardedLink) Losing(ctx context.Context) ([]uint16, error) {
	if l.silent {
		return nil, nil
	}
	text, err := l.dc.Do(ctx, l.dc.B().ClusterNodes().Build()).ToString()
	if err = l.of.Clean(err); err != nil {
		if l.silent = l.of.Permanent(err); l.silent {
			return nil, nil
		}
		return nil, err
	}
	return losing(text), nil
}

// losing reads an answer to CLUSTER NODES: behind its own slots a node has "[<slot>->-<id>]" for each
// that it is losing.
func losing(text string) (out []uint16) {
	for line := range strings.Lines(text) {
		part := strings.Fields(line)
		if len(part) < 9 || !slices.Contains(strings.Split(part[2], ","), "myself") {
			continue
		}
		for _, entry := range part[8:] {
			if number, _, goes := strings.Cut(strings.TrimPrefix(entry, "["), "->-"); goes {
				if slot, err := strconv.ParseUint(number, 10, 14); err == nil {
					out = append(out, uint16(slot))
				}
			}
		}
	}
	return out
}
