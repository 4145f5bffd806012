package integration

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain fails the package when a goroutine outlives its tests: every
// client, server and worker must be stopped by the test that started it. In a
// process that testbed.Spawn started it runs the worker instead. The client library asks
// for a cluster's topology a second after it saw a reason to, also when it was closed meanwhile.
func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
