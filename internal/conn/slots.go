package conn

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/slots"
)

// slotTable is what is known of where a cluster's slots are. It is asked for in the
// background, while commands are sent, so it may be behind for some seconds: it
// decides whose limits a command counts to, not where it goes.
type slotTable struct {
	known atomic.Pointer[slotRanges]

	mu     sync.Mutex
	next   time.Time          // guarded by mu; not before
	closed bool               // guarded by mu
	cancel context.CancelFunc // guarded by mu; of the question under way; nil: there is none
	tell   func([]string)     // guarded by mu; see Conn.OnMasters
	wg     sync.WaitGroup     // the question under way
}

type slotRanges struct {
	at     time.Time
	ranges []slots.Range // sorted
}

const (
	slotsLast  = 10 * time.Second // how long an answer counts
	slotsRetry = time.Second      // after a question without an answer
	slotsLimit = 5 * time.Second  // for an answer
)

// node implements Topology.Node.
func (t *slotTable) node(client rueidis.Client, broke *Instant, slot uint16) string {
	known := t.known.Load()
	if known == nil || time.Since(known.at) > slotsLast {
		t.ask(client, broke)
	}
	if known == nil {
		return ""
	}
	return slots.Find(known.ranges, slot)
}

// ask asks in the background, one question at a time.
func (t *slotTable) ask(client rueidis.Client, broke *Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.cancel != nil || t.closed || time.Now().Before(t.next) {
		return
	}
	ctx, cancel := limited(context.Background(), slotsLimit)
	t.cancel = cancel
	t.wg.Go(func() { // ends with the answer, its time limit or close
		defer cancel()
		at := time.Now()
		ranges, err := slots.Ask(ctx, nodesOf(ctx, client))
		if tell := t.answered(at, ranges, err, broke); tell != nil {
			tell(slots.Masters(ranges))
		}
	})
}

// answered ends the question under way. It returns who is to be told of the answer.
func (t *slotTable) answered(at time.Time, ranges []slots.Range, err error, broke *Instant) func(masters []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.cancel = nil
	if err != nil || len(ranges) == 0 {
		t.next = time.Now().Add(slotsRetry)
		return nil
	}
	t.learn(at, ranges, broke)
	return t.tell
}

// learn notes an answer, and first that slots have moved, if so: whoever finds a new place must
// not miss that.
func (t *slotTable) learn(at time.Time, ranges []slots.Range, broke *Instant) {
	if before := t.known.Load(); before != nil && !slices.Equal(before.ranges, ranges) {
		broke.Now()
	}
	t.known.Store(&slotRanges{at: at, ranges: ranges})
}

// doubt has the next one who wants to know ask again: a node has said that a slot is elsewhere.
func (t *slotTable) doubt() {
	if known := t.known.Load(); known != nil {
		t.known.CompareAndSwap(known, &slotRanges{ranges: known.ranges})
	}
}

// nodeOf is the node that a slot is on, and its client, nil if it is not known. Where nobody has asked
// so far, it blocks until a node has answered.
func (c *Conn) nodeOf(ctx context.Context, slot uint16) (addr string, node rueidis.Client) {
	addr = c.slots.node(c.client, c.broke, slot)
	if addr == "" {
		at := time.Now()
		if ranges, err := slots.Ask(ctx, nodesOf(ctx, c.client)); err == nil {
			c.slots.mu.Lock()
			c.slots.learn(at, ranges, c.broke)
			c.slots.mu.Unlock()
			addr = slots.Find(ranges, slot)
		}
	}
	return addr, c.client.Nodes()[addr]
}

// close ends the question under way.
func (t *slotTable) close() {
	t.mu.Lock()
	t.closed = true
	if t.cancel != nil {
		t.cancel()
	}
	t.mu.Unlock()
	t.wg.Wait()
}
