package topology

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
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
	set := clustered(t)
	const name, clients = "{moves}crowd", 6
	slot := testbed.Slot(name)
	type section struct{ from, to time.Time }
	var mu sync.Mutex
	var sections []section // guarded by mu
	inside := 0            // guarded by the lock, or the race detector says so
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var all sync.WaitGroup
	for range clients {
		l := open(t, cluster(set)).RLock(name)
		all.Go(func() {
			for ctx.Err() == nil {
				err := l.Do(t.Context(), func(context.Context) error {
					from := time.Now()
					inside++
					time.Sleep(time.Millisecond)
					mu.Lock()
					defer mu.Unlock()
					sections = append(sections, section{from, time.Now()})
					return nil
				})
				if err != nil {
					t.Error(err)
					return
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
		bed.Eventually(t, "turns "+when, func() bool { return turns() > at+20 })
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
	testbed.Equal(t, inside, len(sections), "what the counter says of the sections")
	slices.SortFunc(sections, func(a, b section) int { return a.from.Compare(b.from) })
	for i := range sections[1:] {
		if gap := sections[i+1].from.Sub(sections[i].to); gap < 0 {
			t.Errorf("two inside: %v and %v", sections[i], sections[i+1])
		} else if gap > 2*time.Second+slack {
			t.Errorf("nobody had the lock for %v", gap)
		}
	}
}
