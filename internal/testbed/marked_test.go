package testbed

import (
	"fmt"
	"testing"
)

func blockMarked(over chan struct{}) { <-over }

func TestMarkedIn(t *testing.T) {
	over := make(chan struct{})
	defer close(over)
	start := func(n int) func() {
		return func() {
			for range n {
				go blockMarked(over)
			}
		}
	}
	Mark(t.Name(), start(3))
	Mark(t.Name()+"/other, \"quoted\"", start(2))
	start(1)()
	for mark, want := range map[string]int{t.Name(): 3, t.Name() + "/other, \"quoted\"": 2, "nobody": 0} {
		eventually(t, "the goroutines are there", func() error {
			if n := MarkedIn(mark, ".blockMarked"); n != want {
				return fmt.Errorf("%q: %d goroutines, not %d", mark, n, want)
			}
			return nil
		})
	}
	Equal(t, MarkedIn(t.Name(), ".other"), 0, "in another function")
}
