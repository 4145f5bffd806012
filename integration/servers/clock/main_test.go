package clock

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain fails the package when a goroutine outlives its tests.
func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m)
}
