// Package once tests redlatch.Once against real servers: processes whose clocks differ,
// replies that are lost, processes that die.
package once

import (
	"testing"

	"github.com/redlatch/redlatch/integration/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }
