package integration

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails the package when a goroutine outlives its tests: every
// client, server and worker must be stopped by the test that started it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
