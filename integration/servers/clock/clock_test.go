package clock

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// lease leaves room for a busy machine: who gets no processor for two thirds of it loses the lock, rightly.
const lease = 3500 * time.Millisecond

// The server's clock is stepped while a lock of each kind is held and waited for: forward, its leases end at once, and
// the holder hears of it within a check's time; back, they last longer, and the holder keeps it. Either way everybody who
// waits gets the lock in turn, beside readers the writers, tokens increase, and nothing is left behind.
func TestSteps(t *testing.T) {
	for _, k := range bed.Kinds() {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			if k.Servers == 1 {
				t.Run(k.Name+" "+by.String(), func(t *testing.T) {
					t.Parallel()
					stepped(t, start(t), k, by)
				})
			}
		}
	}
}

func stepped(t *testing.T, s *server, k bed.Kind, by time.Duration) {
	t.Helper()
	lock := func(of bed.Make) (redlatch.Locker, *redlatch.Client) {
		c := bed.Client(t, s.Addr(), func(c *redlatch.Config) {
			c.LeaseTime, c.Redis.Dialer.Timeout = lease, 2*bed.Patience // nothing here is about connecting
		})
		opts := map[bool][]redlatch.Option{true: {redlatch.Fenced()}}[k.Name != "plain"]
		return of([]*redlatch.Client{c}, "l", opts...), c
	}
	const waiters = 7
	got := make(chan bed.Attempt, waiters)
	wait := func(of bed.Make, many int) {
		l, c := lock(of)
		for range many {
			go func() { // ends with its turn
				h, err := l.Lock(context.Background())
				got <- bed.Attempt{Hold: h, Err: err}
			}()
		}
		bed.Eventually(t, "a listener", func() bool { return len(s.List(t, "PUBSUB", "CHANNELS", "*"+c.ID()+"*")) > 0 })
	}
	l, _ := lock(k.New)
	before := bed.Lock(t, t.Context(), l)
	wait(k.Excluded, waiters/2)
	wait(k.Excluded, waiters/2)
	s.step(t, by)
	since := time.Now()
	if by > 0 {
		<-before.Context().Done()
		// By itself it would hear of it two thirds of a lease after the step, or later: it has renewed within the
		// third before.
		if took := time.Since(since); took > lease*2/3 {
			t.Errorf("the holder heard of its loss after %v", took)
		}
		if cause, err := context.Cause(before.Context()), before.Unlock(t.Context()); !errors.Is(cause, redlatch.ErrLeaseLost) || !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Errorf("the hold ended with %v, its Unlock said %v", cause, err)
		}
	} else {
		time.Sleep(lease) // two renewals
		if len(got) > 0 {
			t.Fatal("a second holder")
		}
		bed.Unlock(t, before) // else it ended
	}
	last := before.Token()
	for i := range waiters {
		h := bed.Hold(t, got)
		if has := h.Token(); has < last || has == last && has > 0 && !k.Shared { // reading makes none
			t.Errorf("token %d after %d", has, last)
		}
		last = h.Token()
		time.Sleep(20 * time.Millisecond)
		if len(got) > 0 {
			t.Fatal("two holders")
		}
		if i == waiters/2 {
			wait(k.New, 1)
			s.step(t, 0) // and back again, while the rest wait, a reader beside writers
		}
		if err := h.Unlock(t.Context()); err != nil && (i != waiters/2 || !errors.Is(err, redlatch.ErrLeaseLost)) {
			t.Errorf("Unlock: %v", err)
		}
	}
	t.Logf("all served %v after the step", time.Since(since).Round(time.Millisecond))
}
