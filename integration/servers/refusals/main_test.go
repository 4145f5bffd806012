package refusals

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain fails the package when a goroutine outlives its tests. Two are the client
// library's: it looks at a cluster's topology a second after it saw a reason to, and closes
// what it no longer needs five seconds later, whether the client is closed or not.
func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m,
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"),
		goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*clusterClient)._refresh.func2"))
}
