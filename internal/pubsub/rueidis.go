package pubsub

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/slots"
)

// Redis is a client to subscribe through.
type Redis struct {
	Client       rueidis.Client
	Sharded      bool                 // publishers use SPUBLISH
	Permanent    func(err error) bool // another try will not change it
	Clean        func(err error) error
	Unsubscribes func() bool     // its connections bear an UNSUBSCRIBE; on others channels are left to their end
	Closing      <-chan struct{} // closed: nobody waits for a connection any more; nil: there is always one
}

// NewDialer subscribes through a client: on one connection to any master with plain channels, on one
// connection to each slot's primary with sharded ones.
func NewDialer(of Redis) Dialer {
	return &dialer{Redis: of}
}

type dialer struct {
	Redis

	mu    sync.Mutex
	slots []slots.Range // guarded by mu; nil: ask
	asked time.Time     // guarded by mu
	home  string        // guarded by mu; the master that plain channels of a cluster were last subscribed on; "": any node
}

// Node implements Dialer. It never blocks: where the slots are is asked by Dial.
func (d *dialer) Node(slot uint16) string {
	if !d.Sharded {
		return ""
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if node := slots.Find(d.slots, slot); node != "" {
		return node
	}
	return unknown
}

// unknown is the name of the node that stands for slots whose place is not
// known yet. Dialling it asks, and fails, and the topics move on.
const unknown = "?"

// Moved implements Dialer.
func (d *dialer) Moved(string) {
	if d.Sharded {
		d.locate()
	}
}

// locate asks the cluster where the slots are, at most every 50 ms.
func (d *dialer) locate() {
	d.mu.Lock()
	if time.Since(d.asked) < 50*time.Millisecond && d.slots != nil {
		d.mu.Unlock()
		return
	}
	d.asked = time.Now()
	d.mu.Unlock()
	ctx, cancel := context.WithCancel(context.Background()) // no deadline: see slots.Ask
	defer cancel()
	defer time.AfterFunc(2*time.Second, cancel).Stop()
	found, err := slots.Ask(ctx, d.Client.Nodes())
	if err != nil {
		return // the next failure asks again
	}
	d.mu.Lock()
	d.slots = found
	d.mu.Unlock()
}

// master is a master of the cluster, where all messages arrive: the client itself may take a
// node that has left. It is another one than the last, which has failed, if there is another;
// nil if the client knows none.
func (d *dialer) master() rueidis.Client {
	d.locate()
	nodes := d.Client.Nodes()
	d.mu.Lock()
	defer d.mu.Unlock()
	var addrs []string
	for _, addr := range slots.Masters(d.slots) {
		if nodes[addr] != nil {
			addrs = append(addrs, addr)
		}
	}
	if len(addrs) > 1 {
		addrs = slices.DeleteFunc(addrs, func(addr string) bool { return addr == d.home })
	}
	if d.home = ""; len(addrs) > 0 {
		d.home = addrs[rand.IntN(len(addrs))] // #nosec G404 -- for an even load
	}
	return nodes[d.home]
}

// Astray reports whether the plain channels of a cluster are subscribed on a node that is none
// of these masters. One that does not know its own address is there without a host.
func (d *dialer) Astray(masters []string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.home != "" && !slices.ContainsFunc(masters, func(addr string) bool {
		host, port, err := net.SplitHostPort(addr)
		return err == nil && slots.Addr(d.home, host, port) == d.home
	})
}

// Dial implements Dialer.
func (d *dialer) Dial(node string, h Handler) (Link, error) {
	client := d.Client
	switch {
	case d.Sharded && node == unknown:
		return nil, errPlace
	case d.Sharded:
		if client = d.Client.Nodes()[node]; client == nil {
			return nil, fmt.Errorf("node %s is not part of the cluster", node)
		}
	case client.Mode() == rueidis.ClientModeCluster:
		if nc := d.master(); nc != nil {
			client = nc
		}
	}
	dc, release, err := d.dedicate(client)
	if err != nil {
		return nil, err
	}
	l := &link{of: d, dc: dc, release: release, keeps: !d.Unsubscribes(), kept: map[string]struct{}{}}
	l.down = dc.SetPubSubHooks(rueidis.PubSubHooks{
		OnMessage: func(m rueidis.PubSubMessage) {
			if m.Pattern != "" {
				h.Message(m.Pattern, m.Channel+"\x00"+m.Message)
				return
			}
			h.Message(m.Channel, m.Message)
		},
		OnSubscription: func(s rueidis.PubSubSubscription) {
			switch s.Kind {
			case "subscribe", "psubscribe", "ssubscribe":
				h.Confirmed(s.Channel)
			default:
				h.Dropped(s.Channel)
			}
		},
	})
	if d.Sharded {
		return shardedLink{l}, nil
	}
	return l, nil
}

var errClosing = errors.New("closing")

// dedicate takes a connection out of the client's pool. That takes no ctx, and blocks
// while the pool is exhausted: the application may share it.
func (d *dialer) dedicate(client rueidis.Client) (rueidis.DedicatedClient, func(), error) {
	type lent struct {
		dc      rueidis.DedicatedClient
		release func()
		err     error
	}
	got := make(chan lent)
	go func() { // ends when the pool has a connection
		var l lent
		func() {
			defer observe.Recovered(&l.err)
			l.dc, l.release = client.Dedicate()
		}()
		select {
		case got <- l:
		case <-d.Closing:
			if l.err == nil {
				l.dc.Close() // given back, it would be sent an UNSUBSCRIBE
				l.release()
			}
		}
	}()
	select {
	case l := <-got:
		return l.dc, l.release, l.err
	case <-d.Closing:
		return nil, nil, errClosing
	}
}

type link struct {
	of      *dialer
	dc      rueidis.DedicatedClient
	release func()
	keeps   bool                // it bears no UNSUBSCRIBE
	silent  bool                // it may not be asked for moving slots
	kept    map[string]struct{} // channels that nobody wants any more
	down    <-chan error
}

const (
	// maxTogether channels are sent before an answer is waited for.
	maxTogether = 128
	// maxKept channels are left to a connection that bears no UNSUBSCRIBE. Then it is left for
	// another one, and all who wait look again.
	maxKept = 1024
)

// errKept ends a connection with too many channels that nobody wants.
var errKept = errors.New("a new connection has fewer channels")

// Subscribe implements Link.
func (l *link) Subscribe(ctx context.Context, channels []string, patterns bool) error {
	for _, ch := range channels {
		delete(l.kept, ch)
	}
	return l.each(ctx, channels, func(part []string) rueidis.Completed {
		switch {
		case patterns:
			return l.dc.B().Psubscribe().Pattern(part...).Build()
		case l.of.Sharded:
			return l.dc.B().Ssubscribe().Channel(part...).Build()
		default:
			return l.dc.B().Subscribe().Channel(part...).Build()
		}
	})
}

// Unsubscribe implements Link.
func (l *link) Unsubscribe(ctx context.Context, channels []string, patterns bool) error {
	if l.keeps {
		for _, ch := range channels {
			l.kept[ch] = struct{}{}
		}
		if len(l.kept) > maxKept {
			return errKept
		}
		return nil
	}
	return l.each(ctx, channels, func(part []string) rueidis.Completed {
		switch {
		case patterns:
			return l.dc.B().Punsubscribe().Pattern(part...).Build()
		case l.of.Sharded:
			return l.dc.B().Sunsubscribe().Channel(part...).Build()
		default:
			return l.dc.B().Unsubscribe().Channel(part...).Build()
		}
	})
}

// each sends the channels in parts, many at a time. A channel has a command of its own where a command must stay
// within a slot, and where one of a part was refused: that does not keep the others from being answered.
func (l *link) each(ctx context.Context, channels []string, build func([]string) rueidis.Completed) error {
	refused := RefusedError{}
	for part := range slices.Chunk(channels, maxTogether) {
		if !l.of.Sharded {
			if err := l.of.Clean(l.dc.Do(ctx, build(part)).Error()); err == nil {
				continue
			} else if !l.of.Permanent(err) {
				return err
			}
		}
		// Commands of their own, since the library may still be writing them when ctx has ended,
		// and pinned: a client that retries would send again what it has recycled.
		cmds := make([]rueidis.Completed, len(part))
		for i := range part {
			cmds[i] = build(part[i : i+1]).Pin()
		}
		for i, res := range l.dc.DoMulti(ctx, cmds...) {
			switch err := l.of.Clean(res.Error()); {
			case err == nil:
			case !l.of.Permanent(err):
				return err
			default:
				refused[part[i]] = fmt.Errorf("subscription refused: %w", err)
			}
		}
	}
	if len(refused) > 0 {
		return refused
	}
	return nil
}

// Down implements Link.
func (l *link) Down() <-chan error { return l.down }

// Close implements Link. The connection is closed, not returned to the pool: its
// subscriptions would go with it.
func (l *link) Close() {
	l.dc.Close()
	l.release()
}
