package conn

import (
	"context"
	"net"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// slotTable is what is known of where a cluster's slots are. It is asked for in the
// background, while commands are sent, so it may be behind for some seconds: it
// decides whose limits a command counts to, not where it goes.
type slotTable struct {
	known atomic.Pointer[slotRanges]

	mu     sync.Mutex
	asking bool               // guarded by mu
	next   time.Time          // guarded by mu; not before
	closed bool               // guarded by mu
	cancel context.CancelFunc // guarded by mu; of the question under way
	tell   func([]string)     // guarded by mu; see Conn.OnMasters
	wg     sync.WaitGroup     // the question under way
}

type slotRanges struct {
	at     time.Time
	ranges []slotRange // sorted
}

type slotRange struct {
	from, to uint16
	node     string
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
	i, found := slices.BinarySearchFunc(known.ranges, slot, func(r slotRange, slot uint16) int {
		switch {
		case r.to < slot:
			return -1
		case r.from > slot:
			return 1
		}
		return 0
	})
	if !found {
		return ""
	}
	return known.ranges[i].node
}

// ask asks in the background, one question at a time.
func (t *slotTable) ask(client rueidis.Client, broke *Instant) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.asking || t.closed || time.Now().Before(t.next) {
		return
	}
	t.asking = true
	ctx, cancel := limited(context.Background(), slotsLimit)
	t.cancel = cancel
	t.wg.Go(func() { // ends with the answer, its time limit or close
		defer cancel()
		at := time.Now()
		ranges, err := askSlots(ctx, client)
		if tell := t.answered(at, ranges, err, broke); tell != nil {
			var masters []string
			for _, r := range ranges {
				if !slices.Contains(masters, r.node) {
					masters = append(masters, r.node)
				}
			}
			tell(masters)
		}
	})
}

// answered ends the question under way. It returns who is to be told of the answer.
func (t *slotTable) answered(at time.Time, ranges []slotRange, err error, broke *Instant) func(masters []string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.asking = false
	if err != nil || len(ranges) == 0 {
		t.next = time.Now().Add(slotsRetry)
		return nil
	}
	t.learn(at, ranges, broke)
	return t.tell
}

// learn notes an answer, and first that slots have moved, if so: whoever finds a new place must
// not miss that.
func (t *slotTable) learn(at time.Time, ranges []slotRange, broke *Instant) {
	if before := t.known.Load(); before != nil && !slices.Equal(before.ranges, ranges) {
		broke.Now()
	}
	t.known.Store(&slotRanges{at: at, ranges: ranges})
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

func askSlots(ctx context.Context, client rueidis.Client) ([]slotRange, error) {
	slots, err := clusterSlots(ctx, client)
	if err != nil {
		return nil, err
	}
	var out []slotRange
	for _, s := range slots {
		parts, err := s.ToArray()
		if err != nil || len(parts) < 3 {
			continue
		}
		from, err1 := parts[0].AsInt64()
		to, err2 := parts[1].AsInt64()
		master, err3 := parts[2].ToArray()
		if err1 != nil || err2 != nil || err3 != nil || len(master) < 2 || from < 0 || to > 1<<14-1 {
			continue
		}
		host, _ := master[0].ToString() // "" where a node does not know its own address
		port, err := master[1].AsInt64()
		if err != nil {
			continue
		}
		out = append(out, slotRange{uint16(from), uint16(to), net.JoinHostPort(host, strconv.FormatInt(port, 10))})
	}
	slices.SortFunc(out, func(a, b slotRange) int { return int(a.from) - int(b.from) })
	return out, nil
}
