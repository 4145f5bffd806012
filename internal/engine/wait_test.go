package engine_test

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// While the server can't be reached it is asked again soon at first, and then about once a second.
func TestAServerThatIsAwayIsAskedOnceASecond(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		tries, down := 0, time.Now().Add(time.Minute)
		f.onBefore(func(conn.Command) error {
			if time.Now().Before(down) {
				tries++
				return errUnsent
			}
			return nil
		})
		h := take(t, t.Context(), core, "l")
		if late := time.Since(down); late > 2*time.Second || tries < 40 || tries > 130 {
			t.Errorf("%d tries in a minute, the last one %v after the server was back", tries, late)
		}
		free(t, h)
	})
}

// loses ends the connection of a client's subscriptions; it gets no other one.
func (f *fakeRedis) loses(l *fakeLink) {
	f.locked(func() { f.deaf = true })
	l.cut()
}

// Waiters whose tries failed during an outage pause up to a second and a half between two of
// them. The subscription that stands again says that the server is back: they try then.
func TestReconnectEndsThePauseAfterAnError(t *testing.T) {
	onFake(t, func(t *testing.T, f *fakeRedis, core *engine.Core) {
		f.latency = time.Millisecond
		other := second(t, f)
		const n = 20
		var wg sync.WaitGroup
		var holds []lock.Hold
		got := make([]time.Time, n)
		for i := range n {
			name := fmt.Sprintf("l%d", i)
			holds = append(holds, take(t, t.Context(), other, name, lock.WithLease(10*time.Second)))
			wg.Go(func() {
				h := take(t, t.Context(), core, name)
				got[i] = time.Now()
				free(t, h)
			})
		}
		// One that stays: the subscriptions come back together, but of a lock that was free before
		// that nobody needs one any more.
		busy := take(t, t.Context(), other, "busy", lock.WithLease(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		stays := locking(ctx, core, "busy")
		time.Sleep(8 * time.Second) // they listen, and sleep
		f.onBefore(func(conn.Command) error { return errUnsent })
		f.loses(f.links[0])
		time.Sleep(20 * time.Second) // the leases have ended, and all pause between their tries
		f.onBefore(nil)
		back := time.Now()
		f.locked(func() { f.deaf = false })
		for !core.Hears("busy") {
			time.Sleep(time.Millisecond)
		}
		heard := time.Now()
		wg.Wait()
		late := slices.MaxFunc(got, time.Time.Compare).Sub(heard)
		t.Logf("heard after %v, the last one got its lock %v later", heard.Sub(back), late)
		testbed.AtMost(t, late, engine.LeastPause+5*time.Millisecond, "how late after that the last one got its lock")
		// It has asked by then, too: else it would say that the server was away.
		time.Sleep(engine.LeastPause + 5*time.Millisecond)
		cancel()
		stays.ends(t, lock.ErrNotAcquired)
		free(t, busy)
		for _, h := range holds {
			lostAt(t, h, lock.LossExpired)
		}
	})
}

// A server that refuses every try while messages arrive, or connections for them flap, is not asked at their
// pace.
func TestSignalsWhileTheServerRefusesAreNoHotLoop(t *testing.T) {
	for name, signal := range map[string]func(h pubsub.Handler, channel string){
		"calls":      func(h pubsub.Handler, channel string) { h.Message(channel, "1700000000000000") },
		"reconnects": func(h pubsub.Handler, channel string) { h.Confirmed(channel) },
	} {
		bubble(t, name, func(t *testing.T) {
			f, core := newFake(t)
			h := take(t, t.Context(), second(t, f), "l", lock.WithLease(time.Hour))
			ctx, cancel := context.WithCancel(t.Context())
			waits := locking(ctx, core, "l")
			time.Sleep(time.Second) // it listens, and sleeps
			tries := 0
			f.onBefore(func(conn.Command) error {
				tries++
				return errUnsent
			})
			const lasts = 10 * time.Second
			for range lasts / time.Millisecond {
				signal(f.listener(), luascript.CallChannel("l")+core.ID())
				time.Sleep(time.Millisecond)
			}
			synctest.Wait()
			if most := int(lasts/engine.LeastPause) + 10; tries < 20 || tries > most {
				t.Errorf("%d tries in %v, want more than without signals and no more than %d", tries, lasts, most)
			}
			cancel()
			waits.ends(t, lock.ErrUnavailable)
			f.onBefore(nil)
			free(t, h)
		})
	}
}

// TestOthersComeFirstAfterATenure: a process that has passed a lock on inside leaves it alone for a
// while afterwards if another library listens, which nobody calls. Of a cluster without sharded
// channels the release can't say so: PUBLISH counts the listeners of one node.
func TestOthersComeFirstAfterATenure(t *testing.T) {
	const pause = 4 * time.Millisecond
	for name, tc := range map[string]struct {
		topo   conn.Topology
		others int64
		pauses bool
	}{
		"nobody else":                      {conn.Topology{}, 0, false},
		"another library":                  {conn.Topology{}, 1, true},
		"cluster with sharded channels":    {conn.Topology{Cluster: true, Sharded: true}, 0, false},
		"cluster without sharded channels": {conn.Topology{Cluster: true}, 0, true},
	} {
		bubble(t, name, func(t *testing.T) {
			f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
				cfg.Tenure = 50 * time.Millisecond
				f.topo, f.latency, f.others = tc.topo, 100*time.Microsecond, tc.others
			})
			first := take(t, t.Context(), core, "l")
			var wg sync.WaitGroup
			for range 2 {
				wg.Go(func() {
					h := take(t, t.Context(), core, "l")
					time.Sleep(100 * time.Millisecond)
					free(t, h)
				})
			}
			time.Sleep(20 * time.Millisecond)
			free(t, first) // passes it on
			wg.Wait()
			acquires, releases := f.scripts("acquire"), f.scripts("release")
			if len(releases) != 2 {
				t.Fatalf("%d releases for 3 holds, of which one was passed on", len(releases))
			}
			gap := acquires[len(acquires)-1].at.Sub(releases[0].at)
			if (gap >= pause) != tc.pauses {
				t.Errorf("it was tried %v after the release", gap)
			}
		})
	}
}
