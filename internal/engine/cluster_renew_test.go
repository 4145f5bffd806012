package engine_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// Renewals that fell due together are answered by several nodes of a cluster. What one node
// refuses for a moment is tried again after a thirtieth of LeaseTime, and a lock that is gone
// there is told of, however long another node says nothing.
func TestASilentNodeDelaysNoOtherNodesRenewals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const lease = 30 * time.Second
		f, core := newFakeWith(t, func(f *fakeRedis, cfg *engine.Config) {
			f.topo, cfg.LeaseTime = conn.Topology{Cluster: true}, lease
		})
		var good []lock.Hold
		for i := range 100 {
			good = append(good, take(t, t.Context(), core, fmt.Sprintf("{good}%d", i)))
			take(t, t.Context(), core, fmt.Sprintf("{silent}%d", i))
		}
		var mu sync.Mutex
		refused := map[string]int{}
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script != luascript.Renew {
				return nil
			}
			if strings.HasPrefix(cmd.Keys[0], "{silent}") {
				time.Sleep(lease / 3) // as long as a connection may say nothing
				return errLost
			}
			mu.Lock()
			defer mu.Unlock()
			bad := false
			for _, k := range cmd.Keys {
				refused[k]++
				bad = bad || refused[k] <= 2
			}
			if bad {
				return conn.Refusal("LOADING Redis is loading the dataset in memory")
			}
			return nil
		})
		time.Sleep(2 * lease)
		lost := 0
		for _, h := range good {
			if h.Context().Err() != nil {
				lost++
			}
		}
		if lost > 0 {
			t.Errorf("%d of %d holds on the node that answers were lost", lost, len(good))
		}
	})
}
