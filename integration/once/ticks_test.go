package once

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("once-replica", replica) }

type replicaArgs struct {
	Addr     string
	Name     string
	PeriodMs int64
	Ticks    int
	SkewMs   int64 // how late (or, negative, early) this process is at every tick
	JitterMs int64 // and by how much more or less at random
}

// replica is a process that calls Do at every tick by its own, wrong clock. fn notes
// the server's time.
func replica(ctx context.Context, w *testbed.Worker) error {
	var a replicaArgs
	if err := w.Args(&a); err != nil {
		return err
	}
	option := rueidis.ClientOption{InitAddress: []string{a.Addr}, DisableCache: true}
	data, err := rueidis.NewClient(option)
	if err != nil {
		return err
	}
	defer data.Close()
	c, err := redlatch.New(redlatch.Config{Redis: option, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	defer c.Close()
	w.Say("ready")
	startMs, err := strconv.ParseInt(<-w.Lines(), 10, 64) // of tick 0
	if err != nil {
		return err
	}
	var late time.Duration
	for tick := range a.Ticks {
		at := time.UnixMilli(startMs + int64(tick)*a.PeriodMs + a.SkewMs)
		if a.JitterMs > 0 {
			at = at.Add(time.Duration(rand.Int64N(2*a.JitterMs)-a.JitterMs) * time.Millisecond)
		}
		time.Sleep(time.Until(at))
		_, err := c.Once(a.Name).Do(ctx, time.Duration(a.PeriodMs)*time.Millisecond, func(ctx context.Context) error {
			const script = "local t = redis.call('TIME') return redis.call('RPUSH', KEYS[1], t[1] * 1000 + math.floor(t[2] / 1000) .. ' ' .. ARGV[1])"
			return data.Do(ctx, data.B().Eval().Script(script).Numkeys(1).Key("runs").Arg(strconv.Itoa(tick)).Build()).Error()
		})
		if err != nil {
			return fmt.Errorf("tick %d: %w", tick, err)
		}
		late = max(late, time.Since(at))
		w.Say("tick")
	}
	w.Say("done %d", late.Milliseconds())
	return nil
}

// spread runs one process per skew and returns the server's times of the runs by tick. The
// processes come when they are told to, or that says nothing about their clocks: where this
// machine lets one wait, all is done again with a longer period.
func spread(t *testing.T, period time.Duration, ticks int, jitter time.Duration, skews ...time.Duration) map[int][]int64 {
	t.Helper()
	for range 4 {
		runs, late := spreadOnce(t, server(t), period, ticks, jitter, skews...)
		if late <= period/25 {
			return runs
		}
		t.Logf("a process came %v late at a tick of %v", late, period)
		period *= 2
	}
	t.Fatal("this machine lets processes wait for too long")
	return nil
}

func spreadOnce(t *testing.T, s *testbed.Server, period time.Duration, ticks int, jitter time.Duration, skews ...time.Duration) (runs map[int][]int64, late time.Duration) {
	t.Helper()
	var procs []*testbed.Process
	for _, skew := range skews {
		p := testbed.Spawn(t, "once-replica", replicaArgs{
			Addr: s.Addr(), Name: "report", PeriodMs: period.Milliseconds(), Ticks: ticks,
			SkewMs: skew.Milliseconds(), JitterMs: jitter.Milliseconds(),
		})
		procs = append(procs, p)
	}
	for _, p := range procs {
		p.Expect(t, "ready")
	}
	start := time.Now().Add(time.Second)
	for _, p := range procs {
		p.Send(t, strconv.FormatInt(start.UnixMilli(), 10))
	}
	for _, p := range procs {
		for range ticks {
			p.Expect(t, "tick")
		}
		ms, err := strconv.Atoi(strings.TrimSpace(p.Expect(t, "done")))
		if err != nil {
			t.Fatal(err)
		}
		late = max(late, time.Duration(ms)*time.Millisecond)
		if err := p.Wait(t); err != nil {
			t.Error(err)
		}
	}
	runs = map[int][]int64{}
	for _, line := range s.List(t, "LRANGE", "runs", "0", "-1") {
		at, tick, _ := strings.Cut(line, " ")
		ms, err1 := strconv.ParseInt(at, 10, 64)
		n, err2 := strconv.Atoi(tick)
		if err1 != nil || err2 != nil {
			t.Fatal(line)
		}
		runs[n] = append(runs[n], ms)
	}
	return runs, late
}

// Five processes, each late or early by its own amount at every tick, and by a little
// more at random: every tick has exactly one run, though the job itself takes no time.
func TestOneRunPerTickThoughClocksDiffer(t *testing.T) {
	t.Parallel()
	const ticks = 5
	ms := time.Millisecond
	runs := spread(t, 2000*ms, ticks, 40*ms, -60*ms, 0, 80*ms, 300*ms, 700*ms)
	for tick := range ticks {
		if len(runs[tick]) != 1 {
			t.Errorf("tick %d has %d runs: %v", tick, len(runs[tick]), runs[tick])
		}
	}
}

// A single replica skips no tick: it is the hardest case for a rule of "not before a whole period",
// since its own jitter would make it.
func TestOneReplicaSkipsNoTick(t *testing.T) {
	t.Parallel()
	const ticks = 6
	runs := spread(t, 2*time.Second, ticks, 60*time.Millisecond, 0)
	for tick := range ticks {
		if len(runs[tick]) != 1 {
			t.Errorf("tick %d has %d runs: %v", tick, len(runs[tick]), runs[tick])
		}
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
	s.Do(t, "SET", "redlatch_once:{report}", fmt.Sprintf("%d x 0", last), "PX", "50000")
	if !must(t, o, 1000*time.Second) {
		t.Fatal("a call in the last tenth was refused")
	}
	if tick, _ := record(t, s, "report"); tick != last+1_000_000 {
		t.Errorf("the period of the early run begins at %d, want %d", tick, last+1_000_000)
	}
	// One of the same tick, as late as it may be.
	last = now(t, s) - 899_000
	s.Do(t, "SET", "redlatch_once:{report}", fmt.Sprintf("%d x 0", last), "PX", "101000")
	if must(t, o, 1000*time.Second) {
		t.Error("a call before the last tenth ran")
	}
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
	if must(t, o, period) {
		t.Error("ran at once: nobody knows how long ago the last run was")
	}
	after := now(t, s)
	if tick, found := record(t, s, "report"); !found || tick < before || tick > after {
		t.Errorf("the last run's period begins at %d (%t), not between %d and %d", tick, found, before, after)
	}
	if ttl := s.Int(t, "PTTL", luascript.OnceKey("report")); ttl <= 0 || ttl > period.Milliseconds() {
		t.Errorf("the record lives for %d ms", ttl)
	}
	// A period that was claimed early begins later than now, as it should.
	s.Do(t, "SET", luascript.OnceKey("report"), itoa(after+90_000)+" x 0", "PX", itoa(1_090_000))
	if must(t, o, period) {
		t.Error("a second run in a period")
	}
	if tick, _ := record(t, s, "report"); tick != after+90_000 {
		t.Errorf("the record of an early run says %d, want %d", tick, after+90_000)
	}
}
