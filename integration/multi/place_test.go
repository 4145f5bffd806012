package multi

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// Goroutines of the library take a quorum's copies, some of them after the quorum was
// won: each says where the whole was acquired.
func TestQuorumCopiesSayWhereTheyWereAcquired(t *testing.T) {
	cs := clients(t, addrs(servers(t, 3)), func(c *redlatch.Config) { c.HoldWarning = time.Hour })
	h := mustLock(t, t.Context(), redlatch.QuorumLock(copies(cs, "q")...))
	for _, c := range cs {
		// mustLock acquires in async's goroutine.
		eventually(t, "the copy is held, and says where it was acquired", func() bool {
			held := c.Held()
			return len(held) == 1 && strings.Contains(held[0].AcquiredAt, "multi.async.")
		})
	}
	unlock(t, h)
}
