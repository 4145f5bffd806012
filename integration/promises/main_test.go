// Package promises holds the tables of what every kind of lock promises: a promise, all kinds,
// one place. What only one kind promises is in the folder of that kind.
package promises

import (
	"testing"

	"github.com/redlatch/redlatch/integration/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }
