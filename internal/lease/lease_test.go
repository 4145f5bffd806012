package lease_test

import (
	"slices"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/testbed"
)

// clocks are readings of both clocks of a client, since an instant.
type clocks struct{ mono, wall time.Duration }

func (c clocks) at(t *testing.T, began time.Time) time.Time {
	t.Helper()
	return testbed.WallAt(t, began.Add(c.mono), c.wall-c.mono)
}

// A deadline passes on whichever of the clocks is first, however they jump.
func TestADeadlinePassesOnEitherClock(t *testing.T) {
	began := time.Now()
	at := began.Add(10 * time.Second)
	for what, c := range map[string]struct {
		now  clocks
		want bool
	}{
		"neither":                          {clocks{9 * time.Second, 9 * time.Second}, false},
		"both":                             {clocks{10 * time.Second, 10 * time.Second}, true},
		"a nanosecond before":              {clocks{10*time.Second - 1, 10*time.Second - 1}, false},
		"the wall clock was set back":      {clocks{10 * time.Second, -time.Hour}, true},
		"the wall clock was set forward":   {clocks{time.Second, time.Hour}, true},
		"the machine slept":                {clocks{time.Second, 10 * time.Second}, true},
		"the machine slept a little":       {clocks{time.Second, 9 * time.Second}, false},
		"the wall clock is set back now":   {clocks{9 * time.Second, time.Second}, false},
		"a day back, and the rest by mono": {clocks{10 * time.Second, -24 * time.Hour}, true},
	} {
		if lease.Passed(c.now.at(t, began), at) != c.want {
			t.Errorf("%s: passed should be %t", what, c.want)
		}
	}
}

// A local deadline comes before the end of the lease by what clocks may drift, counted from the sending.
func TestALocalDeadlineIsEarlierByTheDrift(t *testing.T) {
	sent := time.Now()
	for _, c := range []struct{ length, want time.Duration }{
		{time.Millisecond, 500 * time.Microsecond},
		{2 * time.Millisecond, time.Millisecond},
		{4 * time.Millisecond, 2 * time.Millisecond},
		{100 * time.Millisecond, 97 * time.Millisecond},
		{30 * time.Second, 29*time.Second + 698*time.Millisecond},
		{time.Hour, time.Hour - 36*time.Second - 2*time.Millisecond},
	} {
		testbed.Equal(t, lease.LocalDeadline(sent, c.length).Sub(sent), c.want, "what lasts here, of", c.length)
		testbed.Equal(t, lease.Margin(c.length)-c.length, c.length-c.want, "the margin of", c.length)
	}
}

// What is asked for to reach an end does reach it, and a server that has the lease already need raise
// nothing if the command took a hundredth of the time since.
func TestUntilReachesTheEndAndAsksForNoMoreThanThereIs(t *testing.T) {
	sent := time.Now()
	for _, length := range []time.Duration{2 * time.Millisecond, 5 * time.Millisecond, time.Second, 30 * time.Second, time.Hour, 24 * time.Hour} {
		end := lease.LocalDeadline(sent, length)
		for part := range 10 {
			at := sent.Add(time.Duration(part) * end.Sub(sent) / 10)
			ask := lease.Until(at, end)
			if got := lease.LocalDeadline(at, ask); got.Before(end) || got.Sub(end) > time.Microsecond {
				t.Errorf("of %v after %v: %v reaches %v off the end", length, at.Sub(sent), ask, got.Sub(end))
			}
			if over := at.Add(ask).Sub(sent.Add(length)) + at.Sub(sent)/101; part > 0 && over > 0 {
				t.Errorf("of %v after %v: asks for %v more than the server may have", length, at.Sub(sent), over)
			}
		}
		testbed.Equal(t, lease.Until(end, end), 0, "what is asked for at its end, of", length)
	}
}

// On timers, which run by the monotonic clock, a deadline comes as early as on the wall clock.
func TestATimerSeesWhatTheWallClockHasSlept(t *testing.T) {
	began := time.Now()
	at := began.Add(10 * time.Second)
	for what, c := range map[string]struct {
		now  clocks
		want time.Duration // until the timer fires
	}{
		"even clocks":          {clocks{4 * time.Second, 4 * time.Second}, 6 * time.Second},
		"slept for 3 s":        {clocks{4 * time.Second, 7 * time.Second}, 3 * time.Second},
		"slept past it":        {clocks{4 * time.Second, 14 * time.Second}, -4 * time.Second},
		"the clock set back":   {clocks{4 * time.Second, -time.Hour}, 6 * time.Second},
		"slept, then set back": {clocks{4 * time.Second, 4 * time.Second}, 6 * time.Second},
	} {
		now := c.now.at(t, began)
		testbed.Equal(t, lease.OnBoth(now, at).Sub(now), c.want, "it fires in:", what)
	}
	if !lease.OnBoth(began, time.Time{}).IsZero() || !lease.Anew(began, time.Time{}).IsZero() {
		t.Error("no deadline became one")
	}
}

// A sleep is found, in one piece or in many short ones, and each only once; a clock that is set back is no
// sleep, and hides none that follows.
func TestClocksFindASleep(t *testing.T) {
	began := time.Now()
	type look struct {
		clocks
		slept bool
	}
	const s, ms = time.Second, time.Millisecond
	for what, c := range map[string]struct {
		length time.Duration
		looks  []look
	}{
		"even":         {30 * s, []look{{clocks{s, s}, false}, {clocks{2 * s, 2 * s}, false}}},
		"one sleep":    {30 * s, []look{{clocks{s, 3 * s}, true}, {clocks{2 * s, 4 * s}, false}}},
		"many":         {30 * s, []look{{clocks{s, s + 100*ms}, false}, {clocks{2 * s, 2*s + 140*ms}, false}, {clocks{3 * s, 3*s + 152*ms}, true}}},
		"short lease":  {100 * ms, []look{{clocks{s, s + 2*ms}, true}}},
		"long lease":   {time.Hour, []look{{clocks{s, s + 190*ms}, false}, {clocks{2 * s, 2*s + 201*ms}, true}}},
		"set back":     {30 * s, []look{{clocks{s, -time.Hour}, false}, {clocks{2 * s, -time.Hour + s}, false}}},
		"back, sleeps": {30 * s, []look{{clocks{s, -time.Hour}, false}, {clocks{2 * s, -time.Hour + 3*s}, true}}},
	} {
		all := lease.NewClocks(began)
		for i, l := range c.looks {
			slept, setBack := all.Compare(l.at(t, began), c.length)
			testbed.Equal(t, slept, l.slept, "slept,", what, "look", i+1)
			testbed.Equal(t, setBack, l.wall < 0 && i == 0, "set back,", what, "look", i+1)
		}
	}
}

// Every interval leaves room for retries before the lease ends, and a burst does not stay one.
func TestPace(t *testing.T) {
	for _, length := range []time.Duration{50 * time.Millisecond, time.Second, 30 * time.Second, time.Hour} {
		p := lease.Pace{Length: length}
		if p.Every() != length/3 || p.Window() > length/40 || p.RetryAfter() > length/5 {
			t.Errorf("of %v: every %v, window %v, retry after %v", length, p.Every(), p.Window(), p.RetryAfter())
		}
		later, first, crowd := p.Spread(false, false), p.Spread(true, false), p.Spread(true, true)
		if later <= 0 || later >= first || first >= crowd || crowd >= p.Every() || p.Spread(false, true) != later {
			t.Errorf("of %v: spreads of %v, %v, %v", length, later, first, crowd)
		}
	}
}

// The earlier of two instants is not the zero one; the later is whichever it is.
func TestEarlierAndLater(t *testing.T) {
	now := time.Now()
	soon := now.Add(time.Second)
	for _, c := range []struct{ a, b, earlier, later time.Time }{
		{now, soon, now, soon},
		{soon, now, now, soon},
		{time.Time{}, now, now, now},
		{now, time.Time{}, now, now},
		{time.Time{}, time.Time{}, time.Time{}, time.Time{}},
	} {
		if got := lease.Earlier(c.a, c.b); !got.Equal(c.earlier) {
			t.Errorf("the earlier of %v and %v is %v", c.a, c.b, got)
		}
		if got := lease.Later(c.a, c.b); !got.Equal(c.later) {
			t.Errorf("the later of %v and %v is %v", c.a, c.b, got)
		}
	}
}

// A list keeps the order, whoever goes out meanwhile, also while it is walked through; nothing is in it twice.
func TestList(t *testing.T) {
	type thing struct {
		lease.Entry[*thing]
		n int
	}
	var l lease.List[*thing]
	all := make([]*thing, 8)
	for i := range all {
		all[i] = &thing{n: i}
	}
	if l.First() != nil {
		t.Error("an empty list has a first")
	}
	var want []*thing
	for round, in := range []string{"01234567", "7", "25", "0", "52", "1346725", "3", ""} {
		for _, c := range in {
			x := all[c-'0']
			if i := slices.Index(want, x); i >= 0 && round%2 == 1 {
				x.Remove()
				x.Remove()
				want = slices.Delete(want, i, i+1)
			} else {
				l.Push(&x.Entry, x)
				if i < 0 {
					want = append(want, x)
				}
			}
		}
		testbed.Equal(t, slices.Equal(slices.Collect(l.All()), want), true, "as wanted after", in)
		testbed.Equal(t, l.First() == want[0], true, "the first after", in)
	}
	for x := range l.All() {
		x.Remove()
		testbed.Equal(t, x.In(), false, "in the list that it has left")
	}
	if l.First() != nil || len(slices.Collect(l.All())) != 0 {
		t.Error("all have left, and some are there")
	}
}
