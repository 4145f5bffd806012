package once

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

const ticks = 6

// spread calls Do at every tick from one client per skew, by its own, wrong clock: each is late or early by its skew, and
// by as much as jitter more or less at random. It returns how many runs each tick had, and by how much a call was later
// than it was to be.
func spread(t *testing.T, period, jitter time.Duration, skews []time.Duration) (runs [ticks]int, late time.Duration) {
	t.Helper()
	s := server(t)
	var all sync.WaitGroup
	var mu sync.Mutex // around what is returned
	start := time.Now().Add(time.Second)
	for _, skew := range skews {
		o := bed.Client(t, s.Addr()).Once("report")
		all.Go(func() {
			for tick := range ticks {
				at := start.Add(time.Duration(tick)*period + skew + rand.N(2*jitter) - jitter)
				time.Sleep(time.Until(at))
				ran, err := o.Do(t.Context(), period, nothing)
				mu.Lock()
				if late = max(late, time.Since(at)); ran {
					runs[tick]++
				}
				mu.Unlock()
				if err != nil {
					t.Errorf("tick %d: %v", tick, err)
				}
			}
		})
	}
	all.Wait()
	return runs, late
}

// Five clients, each late or early by its own amount at every tick, and by a little more at random: every tick has exactly
// one run, though the job itself takes no time. A single one skips no tick: it is the hardest case for a rule of "not
// before a whole period", since its own jitter would make it.
func TestOneRunPerTickThoughClocksDiffer(t *testing.T) {
	const ms = time.Millisecond
	for who, skews := range map[string][]time.Duration{"five": {-60 * ms, 0, 80 * ms, 300 * ms, 700 * ms}, "one": {0}} {
		t.Run(who, func(t *testing.T) {
			t.Parallel()
			// Clients come when they are told to, or that says nothing about their clocks: where this machine lets one wait,
			// all is done again with a longer period.
			for period := 2000 * ms; ; period *= 2 {
				runs, late := spread(t, period, 50*ms, skews)
				if late > period/25 && period < 16000*ms {
					t.Logf("a client came %v late at a tick of %v", late, period)
					continue
				}
				testbed.Equal(t, runs, [ticks]int{1, 1, 1, 1, 1, 1}, "runs of each tick; a client was late by", late)
				return
			}
		})
	}
}

// Callers that ask all the time get no more than what the documentation says: two runs
// nine tenths of a period apart at least, n+1 runs in n periods less a tenth.
func TestEarlinessNeverAddsUp(t *testing.T) {
	t.Parallel()
	s := server(t)
	a, b := bed.Client(t, s.Addr()), bed.Client(t, s.Addr())
	const period = time.Second
	var calls, begins []int64 // a run is claimed after its call and before its fn: a stall between the two must not count
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
	defer cancel()
	for len(begins) < 6 && ctx.Err() == nil {
		for _, c := range []*redlatch.Client{a, b} {
			call := now(t, s)
			_, err := c.Once("report").Do(ctx, period, func(context.Context) error {
				calls, begins = append(calls, call), append(begins, now(t, s))
				return nil
			})
			if err != nil && !errors.Is(err, redlatch.ErrUnavailable) { // a busy machine's server is slow
				t.Fatal(err)
			}
		}
	}
	if len(begins) < 6 {
		t.Fatalf("%d runs: %v", len(begins), begins)
	}
	for i := 1; i < len(begins); i++ {
		if gap := begins[i] - calls[i-1]; gap < 900 {
			t.Errorf("runs %d and %d are at most %d ms apart: calls %v, runs %v", i-1, i, gap, calls, begins)
		}
		if all := begins[i] - calls[0]; all < int64(i)*1000-100 {
			t.Errorf("%d runs within %d ms: calls %v, runs %v", i+1, all, calls, begins)
		}
	}
}

// The record counts from the period's begin, not from the early run's.
func TestAnEarlyRunCountsFromItsPeriod(t *testing.T) {
	t.Parallel()
	s := server(t)
	o := bed.Client(t, s.Addr()).Once("report")
	// The last run was 950 s ago, the period is 1000 s.
	last := now(t, s) - 950_000
	s.Do(t, "SET", luascript.OnceKey("report"), itoa(last)+" x 0", "PX", "50000")
	testbed.Equal(t, must(t, o, 1000*time.Second), true, "a call in the last tenth ran")
	testbed.Equal(t, record(t, s, "report"), last+1_000_000, "when the period of the early run begins")
	// One of the same tick, as late as it may be.
	last = now(t, s) - 899_000
	s.Do(t, "SET", luascript.OnceKey("report"), itoa(last)+" x 0", "PX", "101000")
	testbed.Equal(t, must(t, o, 1000*time.Second), false, "a call before the last tenth ran")
}

// The server's clock was set back by a day, or another master with such a clock took over: the
// next run is due after one period, not after a day.
func TestAClockThatWasSetBack(t *testing.T) {
	t.Parallel()
	s := server(t)
	o := bed.Client(t, s.Addr()).Once("report")
	const period = 1000 * time.Second
	const day = 86_400_000
	before := now(t, s)
	s.Do(t, "SET", luascript.OnceKey("report"), itoa(before+day)+" x 0", "PX", itoa(day+1_000_000))
	testbed.Equal(t, must(t, o, period), false, "ran at once: nobody knows how long ago the last run was")
	after := now(t, s)
	testbed.Between(t, record(t, s, "report"), before, after, "when the last run's period begins")
	testbed.Between(t, s.Int(t, "PTTL", luascript.OnceKey("report")), 1, period.Milliseconds(), "ms of the record")
	// A period that was claimed early begins later than now, as it should.
	s.Do(t, "SET", luascript.OnceKey("report"), itoa(after+90_000)+" x 0", "PX", itoa(1_090_000))
	testbed.Equal(t, must(t, o, period), false, "ran a second time in a period")
	testbed.Equal(t, record(t, s, "report"), after+90_000, "the record of an early run")
}
