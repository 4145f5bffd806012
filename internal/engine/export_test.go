package engine

import "time"

// For the tests in package engine_test.

// Drift is what is taken off a lease.
func Drift(lease time.Duration) time.Duration { return drift(lease) }

// Passed compares on both clocks.
func Passed(now, at time.Time) bool { return passed(now, at) }

// Look is one look of the watchdog; slept says that the wall clock has run ahead.
func (c *Core) Look(now time.Time, slept bool) { c.dog.look(now, slept) }

// Owners counts the explicit owners that are remembered, Held the holds.
func (c *Core) Owners() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.owners)
}

// Held counts the holds.
func (c *Core) Held() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.held
}

// Scheduled counts what the watchdog looks after.
func (c *Core) Scheduled() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.dog.heap)
}

// MaxInFlight bounds acquisitions that wait for an answer.
const MaxInFlight = maxInFlight

// Gate is the gate of a slot.
type Gate = gate

// Enter, TryEnter and Leave are the gate's methods.
var (
	Enter    = (*gate).enter
	TryEnter = (*gate).tryEnter
	Leave    = (*gate).leave
)
