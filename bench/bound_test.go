package main

import (
	"testing"

	"github.com/redlatch/redlatch"
)

// The bound that the lone waiter is measured by is the documented one.
func TestLoneBound(t *testing.T) {
	if tenure != redlatch.DefaultTenure {
		t.Errorf("the program counts on a tenure of %v, redlatch's is %v", tenure, redlatch.DefaultTenure)
	}
}
