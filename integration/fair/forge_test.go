package fair

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// No message that can be made of known ids and places is a grant, on the channel of the grants or
// on Redisson's: whoever may publish can guess them, since they are times and counters. Each wakes
// the waiter, which asks. Nor is one of an earlier place with the nonce of this one.
func TestAForgedMessageIsNoGrant(t *testing.T) {
	for holder, owner := range map[string]string{"of redlatch": ours(1), "of Redisson": java(1)} {
		t.Run(holder, func(t *testing.T) {
			t.Parallel() // it waits, for the most part
			s := bed.Server(t)
			c := bed.Client(t, s.Addr())
			holds(t, s, owner, time.Minute)
			got := inLine(t, s, 1, c.FairLock(name))
			s.AwaitQuiet(t)
			field, id, want := first(t, s)
			if owner == java(1) {
				bed.Eventually(t, "the pattern", func() bool { return s.Int(t, "PUBSUB", "NUMPAT") == 1 })
			}
			asked, heard := s.CommandStats(t).Calls["evalsha"], int64(0)
			for _, text := range []string{
				want[1] + " ", want[1] + " - ", want[1] + " 0 ", want[1] + " " + strings.Repeat("A", 26) + " ", want[1] + "  ",
				want[1] + " " + want[1] + " ", "1700000000000000 " + want[5] + " ",
			} {
				for _, channel := range []string{luascript.GrantChannel(name) + c.ID(), luascript.LockChannel(name) + ":" + field} {
					heard += s.Int(t, "PUBLISH", channel, fmt.Sprintf("%s %s9007199254740991 0", id, text))
				}
			}
			testbed.AtLeast(t, heard, 7, "messages that were heard: with less this tells nothing")
			bed.Eventually(t, "the waiter asks", func() bool { return s.CommandStats(t).Calls["evalsha"] > asked })
			s.AwaitQuiet(t)
			if len(got) > 0 {
				t.Fatalf("a forged message was taken for the lock: %+v", <-got)
			}
			s.Do(t, "DEL", name)
			bed.Unlock(t, inTurn(t, got, 0))
		})
	}
}

// What docs/ACL.md says of whoever may publish and read the wants, too: the grant is believed, until the first renewal
// finds nothing held.
func TestAGrantForgedByAReaderOfTheWants(t *testing.T) {
	s := testbed.Standalone(t)
	c := bed.Client(t, s.Addr(), redlatch.WithLeaseTime(3*time.Second))
	holds(t, s, java(1), time.Minute)
	got := inLine(t, s, 1, c.FairLock(name))
	s.AwaitQuiet(t) // it listens
	_, id, want := first(t, s)
	grant := fmt.Sprintf("%s %s %s 0 0", id, want[1], want[5])
	testbed.Equal(t, s.Int(t, "PUBLISH", luascript.GrantChannel(name)+c.ID(), grant), 1, "who hear it")
	h := inTurn(t, got, 0)
	<-h.Context().Done()
	bed.Want(t, context.Cause(h.Context()), redlatch.ErrLeaseLost)
}

// first is who stands first in the queue: its field, the id at the end of that, and the words of what it wants.
func first(t *testing.T, s *testbed.Server) (field, id string, want []string) {
	t.Helper()
	field = s.Text(t, "LINDEX", queueKey, "0")
	return field, field[strings.LastIndexByte(field, '-')+1:], strings.Fields(s.Text(t, "HGET", wantsKey, field))
}
