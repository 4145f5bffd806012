package integration

import (
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestALookAtOneLargeFieldIsCheap: an application's hash of one field is refused at a cost that
// does not depend on what it holds.
func TestALookAtOneLargeFieldIsCheap(t *testing.T) {
	s := testbed.Standalone(t)
	c := rlClient(t, s.Addr())
	for _, l := range []redlatch.Locker{
		c.RLock("data"), c.FairLock("data"), c.ReadWriteLock("data").ReadLock(), c.ReadWriteLock("data").WriteLock(),
	} {
		cost := map[int]int64{}
		for _, size := range []int{1, 32 << 20} {
			s.Do(t, "HSET", "data", "blob", strings.Repeat("x", size))
			_, _ = l.TryLock(t.Context(), 0, 0) // loads the script
			s.Do(t, "CONFIG", "RESETSTAT")
			if _, err := l.TryLock(t.Context(), 0, 0); err == nil {
				t.Fatal("it was taken")
			}
			us, _, _ := strings.Cut(strings.TrimPrefix(s.Info(t, "commandstats")["cmdstat_evalsha"], "calls=1,usec="), ",")
			var err error
			if cost[size], err = strconv.ParseInt(us, 10, 64); err != nil {
				t.Fatal(err)
			}
		}
		if cost[32<<20] > 1000+10*cost[1] {
			t.Errorf("%T: %d µs, with 32 MB %d µs", l, cost[1], cost[32<<20])
		}
	}
}
