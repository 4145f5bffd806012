package engine

import (
	"time"

	"github.com/redlatch/redlatch/internal/sender"
)

// For the tests in package engine_test.

// Look is one look of the watchdog.
func (c *Core) Look(now time.Time) { c.reg.Look(now) }

// Owners counts the explicit owners that are remembered.
func (c *Core) Owners() int { n, _, _, _ := c.reg.Counts(); return n }

// Holding counts the holds.
func (c *Core) Holding() int { _, n, _, _ := c.reg.Counts(); return n }

// Scheduled counts what the watchdog looks after.
func (c *Core) Scheduled() int { _, _, n, _ := c.reg.Counts(); return n }

// Shares counts the locks that have readers that share.
func (c *Core) Shares() int { _, _, _, n := c.reg.Counts(); return n }

// Race says that the race detector is on.
const Race = poison

// MaxInFlight bounds acquisitions that wait for an answer.
const MaxInFlight = sender.MaxAsking

// LeastPause is how long a waiter pauses after an error, whatever it hears.
const LeastPause = leastPause

// Hears reports whether the subscription of a plain lock's waiters stands.
func (c *Core) Hears(key string) bool {
	return c.hub.Standing("redlatch_wake:{" + key + "}:" + c.cfg.ID)
}
