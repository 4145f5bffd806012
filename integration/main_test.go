package integration

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain fails the package when a goroutine outlives its tests: every
// client, server and worker must be stopped by the test that started it. In a
// process that testbed.Spawn started it runs the worker instead.
func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m)
}
