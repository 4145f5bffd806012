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
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
					cfg.LeaseTime, cfg.Tenure = leaseTime, 50*time.Millisecond
					f.topo, f.latency, f.others = tc.topo, 100*time.Microsecond, tc.others
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
