package integration

import (
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A crowd goes on when the server forgets the list, or all it has: nobody is called any more, and
// nobody waits for the free lock longer than until he looks by himself.
func TestCrowdTheServerForgets(t *testing.T) {
	for _, tc := range []struct {
		name   string
		forget func(t *testing.T, s *testbed.Server)
		frees  bool // the lock
	}{
		{"the list is deleted", func(t *testing.T, s *testbed.Server) { t.Helper(); s.Do(t, "DEL", luascript.WaitKey("l")) }, false},
		{"lock and list are deleted", func(t *testing.T, s *testbed.Server) { t.Helper(); s.Do(t, "DEL", "l", luascript.WaitKey("l")) }, true},
		{"FLUSHALL", func(t *testing.T, s *testbed.Server) { t.Helper(); s.Do(t, "FLUSHALL") }, true},
		{"it starts again, empty", func(t *testing.T, s *testbed.Server) { t.Helper(); s.Kill(t); s.Restart(t, testbed.Empty) }, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			const clients = 8
			s := bed.Server(t)
			holder := bed.Lock(t, t.Context(), rlClient(t, s.Addr()).RLock("l"))
			got := make(chan bed.Attempt, clients)
			for range clients {
				l := rlClient(t, s.Addr()).RLock("l")
				go func() {
					r := <-bed.Async(t.Context(), l)
					if r.Err == nil {
						r.Err = r.Hold.Unlock(t.Context())
					}
					got <- r
				}()
			}
			bed.Eventually(t, "all wait", func() bool { return s.Int(t, "ZCARD", luascript.WaitKey("l")) == clients })
			rlSubscribed(t, s, "l", clients)
			tc.forget(t, s)
			forgot := time.Now()
			if !tc.frees {
				bed.Unlock(t, holder)
			}
			var took []time.Duration
			for range clients {
				r := bed.Get(t, got)
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				took = append(took, r.At.Sub(forgot))
			}
			slices.Sort(took)
			t.Logf("they got it after %v", took)
			if longest := took[clients-1]; longest > crowdStands {
				t.Errorf("one waited for the free lock for %v", longest)
			}
			if tc.frees {
				_ = holder.Unlock(t.Context()) // it is lost
			}
		})
	}
}
