package fair

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"
)

// A process that does not run, or that the server does not answer, loses its lease and
// its places. So that a test can tell that apart from a fault, its processes measure it:
// each asks the server all the time, past the SDK.

const (
	pulseEvery = 10 * time.Millisecond
	// pulseLate is by how much an answer may be late: a command that waits for a few
	// things that are as late is still in time.
	pulseLate = 25 * time.Millisecond
)

// span is a piece of time, in microseconds of the wall clock: processes compare them.
type span struct{ from, to int64 }

func spanOf(from, to time.Time) span { return span{from.UnixMicro(), to.UnixMicro()} }

func (s span) length() time.Duration { return time.Duration(s.to-s.from) * time.Microsecond }

// common is what two of them have in common.
func (s span) common(o span) time.Duration {
	return max(span{max(s.from, o.from), min(s.to, o.to)}.length(), 0)
}

// pulse is when a process was kept from talking to its server.
type pulse struct {
	mu     sync.Mutex
	next   time.Time // when the answer under way was due
	pauses []span
}

// beat measures until ctx ends.
func (p *pulse) beat(ctx context.Context, raw rueidis.Client) {
	p.answered()
	tick := time.NewTicker(pulseEvery)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		if raw.Do(ctx, raw.B().Ping().Build()).Error() == nil {
			p.answered()
		}
	}
}

func (p *pulse) answered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if !p.next.IsZero() && now.Sub(p.next) > pulseLate {
		p.pauses = append(p.pauses, spanOf(p.next, now))
	}
	p.next = now.Add(pulseEvery)
}

// tell lists the pauses that ended after an instant, and the one that goes on.
func (p *pulse) tell(since int64) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	all := slices.Clone(p.pauses)
	if now := time.Now(); now.Sub(p.next) > pulseLate {
		all = append(all, spanOf(p.next, now))
	}
	var b strings.Builder
	for _, s := range all {
		if s.to >= since {
			fmt.Fprintf(&b, "%d-%d,", s.from, s.to)
		}
	}
	return b.String()
}

func parsePauses(text string) (all []span, err error) {
	for one := range strings.SplitSeq(strings.TrimSuffix(text, ","), ",") {
		if one == "" {
			continue
		}
		var s span
		if _, err := fmt.Sscanf(one, "%d-%d", &s.from, &s.to); err != nil {
			return nil, fmt.Errorf("%q: %w", one, err)
		}
		all = append(all, s)
	}
	return all, nil
}

// longestPause is how much of a window a process was kept from running at most, besides
// what was planned.
func longestPause(pauses, planned []span, window time.Duration) (most time.Duration) {
	for _, end := range pauses {
		in, sum := span{end.to - window.Microseconds(), end.to}, time.Duration(0)
		for _, p := range pauses {
			p = span{max(p.from, in.from), min(p.to, in.to)}
			if p.length() <= 0 {
				continue
			}
			sum += p.length()
			for _, q := range planned {
				sum -= p.common(q)
			}
		}
		most = max(most, sum)
	}
	return most
}

// The pauses of the machine count as its own, and those that the test makes don't.
func TestLongestPause(t *testing.T) {
	const ms = 1000
	pauses := []span{{0, 100 * ms}, {200 * ms, 250 * ms}, {2000 * ms, 2300 * ms}}
	for _, tc := range []struct {
		pauses, planned []span
		want            time.Duration
	}{
		{nil, nil, 0},
		{pauses, nil, 300 * time.Millisecond},
		{pauses[:2], nil, 150 * time.Millisecond},
		{pauses, []span{{1900 * ms, 2290 * ms}}, 150 * time.Millisecond},
		{pauses[2:], []span{{1900 * ms, 2290 * ms}}, 10 * time.Millisecond},
		{pauses[2:], []span{{1900 * ms, 2100 * ms}, {2200 * ms, 9000 * ms}}, 100 * time.Millisecond},
		{[]span{{0, 9000 * ms}}, nil, time.Second}, // no more than the window
	} {
		if got := longestPause(tc.pauses, tc.planned, time.Second); got != tc.want {
			t.Errorf("%v without %v: %v, want %v", tc.pauses, tc.planned, got, tc.want)
		}
	}
	p := pulse{next: time.Now().Add(-time.Second), pauses: pauses}
	all, err := parsePauses(p.tell(1000 * ms))
	if err != nil || len(all) != 2 || all[0] != pauses[2] || all[1].length() < time.Second {
		t.Errorf("told %v, %v", all, err)
	}
}
