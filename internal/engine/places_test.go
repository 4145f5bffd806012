package engine_test

import (
	"bytes"
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// queuer makes the plain lock one whose waiters have places: a refresh asks
// whether the field holds the lock.
type queuer struct {
	kind.Kind
	key   string
	every time.Duration
}

func (q queuer) Every() time.Duration { return q.every }

func (q queuer) Acquired(a *kind.Attempt, r conn.Reply) kind.Outcome {
	out := q.Kind.Acquired(a, r)
	out.Queued, out.Watched = !out.Acquired, !out.Acquired
	return out
}

func (q queuer) Wait(a *kind.Attempt) (pubsub.Spec, []pubsub.Option) {
	spec, _ := q.Kind.Wait(a)
	return spec, []pubsub.Option{pubsub.Keyed(a.ID)}
}

func (q queuer) Refresh(a *kind.Attempt) kind.Item {
	return kind.Item{Script: luascript.Renew, Keys: []string{q.key}, Args: []string{a.Field, "1"}, Replies: 1}
}

func (queuer) Refreshed(_ *kind.Attempt, vals []conn.Value, _ time.Time) (bool, time.Duration) {
	return vals[0].Int == 1, 0
}

func (queuer) Granted(*kind.Attempt, []string) (kind.Outcome, bool) {
	return kind.Outcome{}, false
}

// queued is a plain lock whose waiters have places.
func queued(core *engine.Core, name string, every time.Duration) *engine.Lock {
	return core.NewLock(name, func(key string) (kind.Kind, error) {
		return queuer{engine.Of(plain(core, name)).Kind(), key, every}, nil
	})
}

// One node of a cluster answers no refresh. The places on the others are refreshed in time all the
// same, and what waits for an answer of that node stays bounded. Once it answers again, so are its
// own, in few commands.
func TestAFrozenNodeStopsNoOtherNodesRefreshes(t *testing.T) {
	for name, node := range map[string]func(uint16) string{
		"known":   func(slot uint16) string { return fmt.Sprint(slot == luascript.Slot("{frozen}")) },
		"unknown": nil,
	} {
		bubble(t, name, func(t *testing.T) { frozenNode(t, node) })
	}
}

func frozenNode(t *testing.T, node func(uint16) string) {
	const (
		every   = time.Second
		waiters = 64
	)
	f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
		f.topo = conn.Topology{Cluster: true, Node: node}
		cfg.Alone = true // all that is to be sent arrives
	})
	other := second(t, f) // its commands meet no fault
	var mu sync.Mutex
	var last time.Time        // when a place on the other node was refreshed
	var slowest time.Duration // the longest time between two of them
	var back int              // places of the node that was frozen
	frozen, stuck, most := false, 0, 0
	thaw := make(chan struct{})
	f.onBefore(func(cmd conn.Command) error {
		if cmd.Script != luascript.Renew {
			return nil
		}
		mu.Lock()
		defer mu.Unlock()
		switch {
		case strings.HasPrefix(cmd.Keys[0], "{well}"):
			if !last.IsZero() {
				slowest = max(slowest, time.Since(last))
			}
			last = time.Now()
		case frozen:
			stuck++
			most = max(most, stuck)
			mu.Unlock()
			<-thaw
			mu.Lock()
			stuck--
			fallthrough
		default:
			back += len(cmd.Keys)
		}
		return nil
	})

	ctx, cancel := context.WithCancel(t.Context())
	leaving, leave := context.WithCancel(ctx)
	var wg sync.WaitGroup
	var holders []lock.Hold
	wait := func(ctx context.Context, name string, every time.Duration) {
		holders = append(holders, take(t, t.Context(), other, name))
		l := queued(core, name, every)
		wg.Go(func() {
			if _, err := l.Lock(ctx); err == nil {
				t.Error("a second holder of", name)
			}
		})
	}
	wait(ctx, "{well}0", every)
	for i := range waiters { // at all times, so that each look finds some of them
		who := ctx
		if i%2 == 0 {
			who = leaving
		}
		wait(who, fmt.Sprintf("{frozen}%d", i), every*time.Duration(1+i%4))
		time.Sleep(every / waiters)
	}
	mu.Lock()
	frozen = true
	mu.Unlock()
	time.Sleep(10 * every)
	leave()                  // places that could not be refreshed are left
	for i := range waiters { // and others may have missed a message
		f.listener().Confirmed(luascript.CallChannel(fmt.Sprintf("{frozen}%d", i)) + core.ID())
	}
	time.Sleep(kind.PlaceLives * every)

	mu.Lock()
	if limit := every * 5 / 4; slowest > limit || time.Since(last) > limit {
		t.Errorf("up to %v, and %v at the end, between two refreshes on the node that answers; want one in each %v",
			slowest, time.Since(last), every)
	}
	testbed.AtMost(t, most, 8, "refreshes without an answer that wait for one node")
	frozen, back = false, 0
	sent := len(f.scripts("renew"))
	mu.Unlock()
	close(thaw)
	time.Sleep(10 * time.Millisecond)
	mu.Lock()
	testbed.AtLeast(t, back, waiters/2, "places refreshed when the node answered again")
	mu.Unlock()
	testbed.AtMost(t, len(f.scripts("renew"))-sent, 20, "commands that it took")
	cancel()
	wg.Wait()
	free(t, holders...)
}

// That refreshes fail is told once, until they succeed, whatever is answered for other locks, of the same node or of others.
func TestFailingRefreshesAreToldOfOnce(t *testing.T) {
	for name, node := range map[string]func(uint16) string{"two nodes": nil, "one node": func(uint16) string { return "one" }} {
		bubble(t, name, func(t *testing.T) {
			var said bytes.Buffer // News tells one after the other
			f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
				f.topo = conn.Topology{Cluster: true, Node: node}
				cfg.Log = slog.New(slog.NewTextHandler(&said, nil))
			})
			other := second(t, f)
			ctx, cancel := context.WithCancel(t.Context())
			var wg sync.WaitGroup
			for _, name := range []string{"{well}0", "{failing}0"} {
				h := take(t, t.Context(), other, name)
				defer free(t, h)
				wg.Go(func() { _, _ = queued(core, name, time.Second).Lock(ctx) })
			}
			for i := 1; i <= 2; i++ {
				f.onBefore(fault{script: luascript.Renew, key: "{failing}0", err: errLost}.hook())
				time.Sleep(10 * time.Second)
				synctest.Wait()
				testbed.Equal(t, strings.Count(said.String(), "refreshing the places"), i, "times that it is told:", &said)
				f.onBefore(nil)
				time.Sleep(10 * time.Second)
			}
			cancel()
			wg.Wait()
		})
	}
}
