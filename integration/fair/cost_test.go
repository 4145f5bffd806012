package fair

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// line makes many wait behind one who hears its messages already: who comes before that looks
// once more, as soon as it hears them.
func line(t *testing.T, s *testbed.Server, l redlatch.Locker, length int, got chan<- result) {
	t.Helper()
	before := s.CommandStats(t).Calls["eval"]
	wait(t.Context(), l, 0, got)
	eventually(t, 30*time.Second, "the first look of one who hears", func() bool {
		return s.CommandStats(t).Calls["eval"] > before // the first run of its script
	})
	for i := 1; i < length; i++ {
		wait(t.Context(), l, i, got)
	}
	queued(t, s, int64(length))
	calm(t, s)
}

// The cost of a turn does not grow with the queue: a waiter joins at the end,
// the holder unlocks, the first enters; with 10, 1,000 and 10,000 waiting. The
// figures are logged; FAIR_COST sets the turns. The bound is on calls, which no
// busy machine changes: a turn makes the same ones whatever the length, and none
// that walks the queue.
func TestTheCostOfATurnDoesNotGrow(t *testing.T) {
	turns := 500
	if text := os.Getenv("FAIR_COST"); text != "" {
		turns, _ = strconv.Atoi(text)
	}
	// Some things are paid for by the time, not by the turn, and here the longer queue
	// takes more of it: refreshes, renewals, and one script more for the grant of a
	// waiter whose last refresh is half of min(lease, skip time) ago. So nothing is due.
	const long = 30 * time.Minute
	calls := map[int]float64{}
	for _, length := range []int{10, 1000, 10000} {
		s := testbed.Standalone(t)
		c := dial(t, s.Addr(), redlatch.WithLeaseTime(long))
		l := c.FairLock(name, fairlock.WithSkipAfter(long))
		hold := lockIt(t, l)
		got := make(chan result, length+turns)
		line(t, s, l, length, got)
		before := s.CommandStats(t)
		for i := range turns {
			wait(t.Context(), l, length+i, got)
			bed.Unlock(t, hold)
			r := entered(t, got, 10*time.Second)
			hold = r.hold
		}
		diff := s.CommandStats(t).Sub(before)
		var inside int64
		for command, n := range diff.Calls {
			switch command {
			case "ping", "eval", "evalsha":
			default:
				inside += n
			}
		}
		calls[length] = float64(inside) / float64(turns)
		t.Logf("queue of %6d: %.1f scripts, %.1f server µs and %.1f calls inside per turn", length,
			float64(diff.Calls["evalsha"])/float64(turns), float64(diff.Time["evalsha"].Microseconds())/float64(turns), calls[length])
		if length > 10 && calls[length] > calls[10]+1 {
			t.Errorf("a turn makes %.1f calls with %d waiting, %.1f with 10: %v", calls[length], length, calls[10], diff.Calls)
		}
		for _, walk := range []string{"lrange", "lrem", "lpos", "linsert", "zrange", "zrangebyscore"} {
			if n := diff.Calls[walk]; n > 0 {
				t.Errorf("%d turns made %d calls of %s", turns, n, walk)
			}
		}
		c.Close() // the waiters leave
	}
}

// To leave a queue of 10,000 from the middle, and to keep the places in it alive, searches no
// queue.
func TestTheCostOfLeavingALongQueue(t *testing.T) {
	const length = 10000
	s := testbed.Standalone(t)
	c := dial(t, s.Addr())
	l := c.FairLock(name, fairlock.WithSkipAfter(30*time.Minute))
	lockIt(t, l)
	got := make(chan result, 2*length)
	line(t, s, l, length, got)
	fields := s.List(t, "LRANGE", queueKey, "0", "-1")
	before := s.CommandStats(t)
	for i := range 50 { // what a search costs here, for comparison
		field := fields[length/2+i]
		s.Do(t, "LREM", queueKey, "1", field)
		s.Do(t, "RPUSH", queueKey, field)
	}
	diff := s.CommandStats(t).Sub(before)
	t.Logf("LREM from the middle of %d: %.1f server µs", length, float64(diff.Time["lrem"].Microseconds())/50)
	// some come and give up, others come behind them meanwhile
	searches := s.CommandStats(t).Calls["lrem"]
	before = s.CommandStats(t)
	quitter := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(30*time.Minute))
	left := 0
	for range 20 {
		_, err := quitter.TryLock(t.Context(), 5*time.Millisecond, 0)
		if err == nil {
			t.Fatal("acquired a held lock")
		}
		left++
		wait(t.Context(), l, length+left, got) // so that the next quitter is not the last one
	}
	diff = s.CommandStats(t).Sub(before)
	eventually(t, 5*time.Second, "they have left", func() bool { return s.Int(t, "HLEN", wantsKey) == int64(length+left) })
	if n := s.CommandStats(t).Calls["lrem"] - searches; n != 0 {
		t.Errorf("a long queue was searched %d times", n)
	}
	t.Logf("%d came and left: %d scripts, %.1f server µs each", left, diff.Calls["evalsha"],
		float64(diff.Time["evalsha"].Microseconds())/float64(max(diff.Calls["evalsha"], 1)))
	c.Close()
}
