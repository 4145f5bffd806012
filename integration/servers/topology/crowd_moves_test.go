package topology

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
)

// One of a crowd is inside at a time while its slot moves, and back, with the channels that the
// cluster has, and the lock is never left lying for more than two seconds.
func TestCrowdWhileItsSlotMoves(t *testing.T) {
	t.Parallel()
	t.Run("sharded channels", func(t *testing.T) {
		testbed.Needs(t, 7, 0, "sharded channels")
		crowdWhileItsSlotMoves(t)
	})
	t.Run("plain channels", func(t *testing.T) {
		oldServer(t)
		crowdWhileItsSlotMoves(t)
	})
}

func crowdWhileItsSlotMoves(t *testing.T) {
	t.Helper()
	set := testbed.Cluster(t)
	nodeTimeout(t, set, standsStill)
	const name, clients = "{moves}crowd", 6
	slot := testbed.Slot(name)
	db, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: set.Addrs(), DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	type section struct{ from, to time.Time }
	var mu sync.Mutex
	var sections []section
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for range clients {
		l := open(t, cluster(set)).RLock(name)
		all.Go(func() {
			for ctx.Err() == nil {
				h, err := l.Lock(t.Context())
				if err != nil {
					t.Error(err)
					return
				}
				from := time.Now()
				// Two commands, which only the lock keeps together. The counter is of the lock's slot.
				n, err := db.Do(t.Context(), db.B().Get().Key(name+" counter").Build()).AsInt64()
				if err == nil || rueidis.IsRedisNil(err) {
					err = db.Do(t.Context(), db.B().Set().Key(name+" counter").Value(strconv.FormatInt(n+1, 10)).Build()).Error()
				}
				if err != nil {
					t.Error(err)
				}
				mu.Lock()
				sections = append(sections, section{from, time.Now()})
				mu.Unlock()
				if err := h.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	turns := func() int {
		mu.Lock()
		defer mu.Unlock()
		return len(sections)
	}
	goesOn := func(when string) {
		t.Helper()
		at := turns()
		eventually(t, 20*time.Second, "turns "+when, func() bool { return turns() > at+20 })
	}
	goesOn("before the move")
	from, to := set.NodeOfSlot(t, slot), elsewhere(t, set, slot)
	for i, next := range []*testbed.Server{to, from, to} {
		mig := set.BeginMigration(t, slot, next)
		goesOn(fmt.Sprint("half-way ", i))
		mig.MoveKeys(t)
		goesOn(fmt.Sprint("all keys moved ", i))
		mig.Finish(t)
		goesOn(fmt.Sprint("moved ", i))
	}
	stop()
	all.Wait()
	n, err := db.Do(t.Context(), db.B().Get().Key(name+" counter").Build()).AsInt64()
	if err != nil || int(n) != len(sections) {
		t.Errorf("%d sections, and the counter says %d: %v", len(sections), n, err)
	}
	slices.SortFunc(sections, func(a, b section) int { return a.from.Compare(b.from) })
	var longest time.Duration
	for i := range sections[1:] {
		gap := sections[i+1].from.Sub(sections[i].to)
		if longest = max(longest, gap); gap < 0 {
			t.Errorf("two inside: %v and %v", sections[i], sections[i+1])
		}
	}
	t.Logf("%d sections, at most %v between two", len(sections), longest)
	if longest > 2*time.Second+slack {
		t.Errorf("nobody had the lock for %v", longest)
	}
}
