package inspect

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
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

// The address of a client is that of its oldest connection, wherever the server's list begins.
func TestTheOldestConnectionTellsTheAddress(t *testing.T) {
	const name = " name=redlatch:shop:343714c0-5d1f-4c0a-9b6e-2f6c1d2a9e11 db=0\n"
	lines := []string{"id=9 addr=h:9" + name, "id=10 addr=h:10" + name, "id=101 addr=h:101" + name}
	for range lines {
		found := map[string]lock.Process{}
		parseClients(strings.Join(lines, ""), found)
		for _, p := range found {
			testbed.Equal(t, p.Addr, "h:9", "the address from", lines)
		}
		testbed.Equal(t, len(found), 1, "clients")
		lines = append(lines[1:], lines[0])
	}
}
