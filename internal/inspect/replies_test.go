package inspect

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestReplyWithWrongCounts: a reply that counts more than it brings, or less than nothing, costs no more time than what
// it brings.
func TestReplyWithWrongCounts(t *testing.T) {
	for _, count := range []int64{-1 << 63, -1, 3, 1 << 33, 1 << 62, 1<<63 - 1} {
		r := conn.Reply{Code: 3, Vals: make([]conn.Value, 12)}
		for i := range r.Vals {
			r.Vals[i].Int = count
		}
		began := time.Now()
		testbed.AtMost(t, len(readHistory(r)), len(r.Vals), "entries of", count)
		in, err := ReadLook(r, "n", "n")
		testbed.Must(t, err)
		testbed.AtMost(t, len(in.Holders)+len(in.Queue)+len(in.Waiting), len(r.Vals), "rows of", count)
		testbed.AtMost(t, time.Since(began), time.Second, "the time for", count)
	}
}
