// Package promises holds the tables of what every kind of lock promises: a promise, all kinds,
// one place. What only one kind promises is in the folder of that kind.
package promises

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain fails the package when a goroutine outlives its tests.
func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction("github.com/redis/rueidis.(*call).DelayDo.func1"))
}
