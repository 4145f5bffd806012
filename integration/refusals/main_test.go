package refusals

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain fails the package when a goroutine outlives its tests. One is the client
// library's: after the topology has changed it closes what it no longer needs five
// seconds later, whether the client is closed or not.
func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}
