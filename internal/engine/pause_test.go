package engine_test

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
)

// TestOthersComeFirstAfterATenure: a process that has passed a lock on inside leaves it alone for a
// while afterwards, unless the release says that nobody else listens. Of a cluster without sharded
// channels it can't: PUBLISH counts the listeners of one node.
func TestOthersComeFirstAfterATenure(t *testing.T) {
	const pause = 4 * time.Millisecond
	for name, tc := range map[string]struct {
		topo   conn.Topology
		pauses bool
	}{
		"one server":                       {conn.Topology{}, false},
		"cluster with sharded channels":    {conn.Topology{Cluster: true, Sharded: true}, false},
		"cluster without sharded channels": {conn.Topology{Cluster: true}, true},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
					cfg.LeaseTime, cfg.Tenure = leaseTime, 50*time.Millisecond
					f.topo, f.latency, f.heard = tc.topo, 100*time.Microsecond, 1
				})
				first := take(t, t.Context(), core, "l")
				var wg sync.WaitGroup
				for range 2 {
					wg.Go(func() {
						h := take(t, t.Context(), core, "l")
						time.Sleep(100 * time.Millisecond)
						if err := h.Unlock(t.Context()); err != nil {
							t.Error(err)
						}
					})
				}
				time.Sleep(20 * time.Millisecond)
				if err := first.Unlock(t.Context()); err != nil { // passes it on
					t.Error(err)
				}
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
		})
	}
}
