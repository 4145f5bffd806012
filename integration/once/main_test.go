// Package once tests redlatch.Once against real servers: processes whose clocks differ,
// replies that are lost, processes that die.
package once

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) {
	testbed.Main()
	goleak.VerifyTestMain(m)
}
