package topology

import (
	"context"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
)

// HeldHandler shows a server that another one has replaced no longer than the table of slots is old, though the last
// command there failed after that.
func TestPageForgetsAReplacedServer(t *testing.T) {
	t.Parallel() // it waits, for the most part
	set := clustered(t)
	c := open(t, cluster(set), func(cfg *redlatch.Config) {
		cfg.LeaseTime = time.Minute
		cfg.Redis.ConnWriteTimeout = 12 * time.Second // the table is asked for every 10 s
	})
	old := set.NodeOfSlot(t, int(luascript.Slot("x")))
	var busy string // its slot stays
	for _, name := range []string{"a", "b", "c", "d"} {
		if set.NodeOfSlot(t, int(luascript.Slot(name))) != old {
			busy = name
		}
	}
	shows := func() bool {
		bed.Unlock(t, take(t, t.Context(), c.RLock(busy))) // while commands are sent, the table is asked for
		w := httptest.NewRecorder()
		c.HeldHandler().ServeHTTP(w, httptest.NewRequestWithContext(t.Context(), "GET", "/", nil))
		return strings.Contains(w.Body.String(), old.Addr())
	}
	replica := set.ReplicasOf(t, old)[0]
	old.Freeze(t)
	ctx, cancel := context.WithCancel(t.Context())
	lost := bed.Async(ctx, c.RLock("x"))
	bed.Eventually(t, "the page shows that the server is silent", shows)
	cancel()
	<-lost
	replica.Do(t, "CLUSTER", "FAILOVER", "TAKEOVER")
	for end := time.Now().Add(30 * time.Second); shows(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the page shows a server that was replaced")
		}
	}
	old.Thaw(t)
	set.AwaitReady(t)
}
