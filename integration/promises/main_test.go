// Package promises holds the tables of what every kind of lock promises: a promise, all kinds,
// one place. What only one kind promises is in the folder of that kind.
package promises

import (
	"flag"
	"testing"

	"github.com/redlatch/redlatch/integration/bed"
)

// TestMain lets twelve tests run side by side unless one at a time is asked for: most of them wait for leases.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() != "1" {
		_ = f.Value.Set("12")
	}
	bed.Main(m)
}
