package conn

import (
	"errors"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestAServerThatWasNotThereIsAskedUntilItIs: also by a client that has panicked, as one of a ClientBuilder may.
func TestAServerThatWasNotThereIsAskedUntilItIs(t *testing.T) {
	looks, silent := 0, errors.New("no answer")
	s := &stranger{look: func() error {
		switch looks++; looks {
		case 1:
			panic("not connected")
		case 2:
			return silent
		}
		return nil
	}}
	s.next(nil)
	for i, works := range []bool{false, false, true, true} {
		testbed.Equal(t, s.meet() == nil, works, i)
	}
	testbed.Equal(t, looks, 3, "looks")
}
