package redlatchtest

import (
	"sync"
	"time"

	"github.com/alicebob/miniredis/v2"
)

// clock sets the server's time to the moment at which it reads from a client. In between
// that time stands still, as a real server's does while it runs a command: a script
// counts on it that no key ends between two of its calls. The embedded server alone would
// read the clock anew at each call.
//
// It can't move while a script runs: SetTime waits for the lock that a script has.
type clock struct {
	mu    sync.Mutex // time only moves forward
	redis *miniredis.Miniredis
}

// The clock of a testing/synctest bubble begins in the year 2000, when milliseconds since
// the epoch had twelve digits. The wire format counts on thirteen, which they have had
// since 2001: the server's clock is ahead of the bubble's by a fixed amount then.
var thirteen = time.UnixMilli(1_000_000_000_000)

const ahead = 30 * 365 * 24 * time.Hour

// startClock makes leases end by the clock.
func startClock(redis *miniredis.Miniredis) *clock {
	c := &clock{redis: redis}
	c.tick()
	redis.ClockTTL(true) // counts from the time that is set
	return c
}

// tick moves the server's time to now. It waits while the server runs a command.
func (c *clock) tick() {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if now.Before(thirteen) {
		now = now.Add(ahead)
	}
	c.redis.SetTime(now)
}
