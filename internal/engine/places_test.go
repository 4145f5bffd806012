package engine_test

import (
	"context"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/rlock"
)

// queuer makes the plain lock one whose waiters have places: a refresh asks
// whether the field holds the lock.
type queuer struct{ kind.Kind }

func (queuer) Every() time.Duration { return time.Second }

func (q queuer) Acquired(a *kind.Attempt, r conn.Reply) kind.Outcome {
	out := q.Kind.Acquired(a, r)
	out.Queued, out.Watched = !out.Acquired, !out.Acquired
	return out
}

func (q queuer) Wait(a *kind.Attempt) (pubsub.Spec, []pubsub.Option) {
	spec, _ := q.Kind.Wait(a)
	spec.KeyedMiss = true
	return spec, []pubsub.Option{pubsub.Keyed(a.ID)}
}

func (queuer) Refresh(a *kind.Attempt) kind.Item {
	return kind.Item{Script: luascript.Renew, Keys: []string{"l"}, Args: []string{a.Field, "1"}, Replies: 1}
}

func (queuer) Refreshed(_ *kind.Attempt, vals []conn.Value, _ time.Time) (bool, time.Duration) {
	return vals[0].Int == 1, 0
}

func (queuer) Granted(*kind.Attempt, []string) (kind.Outcome, bool) {
	return kind.Outcome{}, false
}

// Who may have missed a message asks at once, however many they are: a grant
// could have been in it.
func TestMissedMessagesAreAskedForAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const waiters = 300
		f, core := newFake(t, leaseTime)
		f.latency = time.Millisecond
		holder := take(t, t.Context(), core, "l")
		l := core.NewLock("l", func(string) (kind.Kind, error) {
			return queuer{rlock.New(core, "l").Engine().Kind()}, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		var wg sync.WaitGroup
		for range waiters {
			wg.Go(func() {
				if _, err := l.Lock(ctx); err == nil {
					t.Error("a second holder")
				}
			})
		}
		time.Sleep(100 * time.Millisecond)

		began := time.Now()
		f.mu.Lock()
		h := f.listener
		f.mu.Unlock()
		h.Confirmed(luascript.LockChannel("l"))
		time.Sleep(10 * time.Millisecond) // a refresh takes 2
		asked, sent := 0, 0
		for _, r := range f.scripts("renew") {
			if !r.at.Before(began) {
				asked, sent = asked+r.keys, sent+1
			}
		}
		if asked < waiters {
			t.Errorf("%d of %d have asked after 10 ms", asked, waiters)
		}
		if sent > 20 {
			t.Errorf("it took %d commands", sent)
		}
		cancel()
		wg.Wait()
		if err := holder.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
