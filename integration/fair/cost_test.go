package fair

import (
	"maps"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// long is a lease and a skip time of a queue of which nothing comes due: some things are paid for by the time, not by
// the turn, and the longer queue takes more of it.
const long = 30 * time.Minute

// line makes many wait behind one who hears its messages already: who comes before that looks
// once more, as soon as it hears them.
func line(t *testing.T, s *testbed.Server, length int) (c *redlatch.Client, l redlatch.Locker, hold redlatch.Hold, got chan result) {
	t.Helper()
	c = bed.Client(t, s.Addr(), redlatch.WithLeaseTime(long))
	l = c.FairLock(name, fairlock.WithSkipAfter(long))
	hold, got = lockIt(t, l), make(chan result, 2*length+1000)
	before := s.CommandStats(t).Calls["eval"]
	wait(t.Context(), l, 0, got)
	bed.Eventually(t, "the first look of one who hears", func() bool {
		return s.CommandStats(t).Calls["eval"] > before // the first run of its script
	})
	for i := 1; i < length; i++ {
		wait(t.Context(), l, i, got)
		if (i+1)%500 == 0 || i+1 == length {
			queued(t, s, int64(i+1))
		}
	}
	s.AwaitQuiet(t)
	return c, l, hold, got
}

// The cost of a turn does not grow with the queue: a waiter joins at the end,
// the holder unlocks, the first enters; with 10, 1,000 and 10,000 waiting. The
// figures are logged; FAIR_COST sets the turns. The bound is on calls, which no
// busy machine changes: a turn makes the same ones whatever the length, and none
// that walks the queue.
func TestTheCostOfATurnDoesNotGrow(t *testing.T) {
	turns := int64(500)
	if text := os.Getenv("FAIR_COST"); text != "" {
		turns, _ = strconv.ParseInt(text, 10, 64)
	}
	least := int64(0)
	for _, length := range []int{10, 1000, 10000} {
		s := testbed.Standalone(t)
		c, l, hold, got := line(t, s, length)
		before := s.CommandStats(t)
		for i := range int(turns) {
			wait(t.Context(), l, length+i, got)
			bed.Unlock(t, hold)
			hold = entered(t, got, bed.Patience).hold
		}
		diff := s.CommandStats(t).Sub(before)
		inside := -diff.Calls["ping"] - diff.Calls["eval"] - diff.Calls["evalsha"]
		for n := range maps.Values(diff.Calls) {
			inside += n
		}
		t.Logf("queue of %6d: %d scripts in %d turns, %v of the server, %d calls inside", length, diff.Calls["evalsha"], turns,
			diff.Time["evalsha"], inside)
		if least == 0 {
			least = inside
		} else if inside > least+turns {
			t.Errorf("%d turns make %d calls with %d waiting, %d with 10: %v", turns, inside, length, least, diff.Calls)
		}
		for _, walk := range []string{"lrange", "lrem", "lpos", "linsert", "zrange", "zrangebyscore"} {
			testbed.AtMost(t, diff.Calls[walk], 0, turns, "turns made calls of", walk)
		}
		c.Close() // the waiters leave
	}
}

// To leave a queue of 10,000 from the middle, and to keep the places in it alive, searches no
// queue.
func TestTheCostOfLeavingALongQueue(t *testing.T) {
	const length, leave = 10000, 20
	s := testbed.Standalone(t)
	c, l, _, got := line(t, s, length)
	quitter := bed.Client(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(long))
	before := s.CommandStats(t)
	for i := range leave { // some come and give up, others come behind them meanwhile
		if _, err := quitter.TryLock(t.Context(), 5*time.Millisecond, 0); err == nil {
			t.Fatal("acquired a held lock")
		}
		wait(t.Context(), l, length+i, got) // so that the next quitter is not the last one
	}
	bed.Eventually(t, "they have left", func() bool { return s.Int(t, "HLEN", wantsKey) == length+leave })
	testbed.Equal(t, s.CommandStats(t).Sub(before).Calls["lrem"], 0, "searches of a long queue")
	c.Close()
}
