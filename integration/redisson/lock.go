//go:build unix

package redisson

import (
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// NotHeld is the exception of an unlock by one who does not hold the lock.
const NotHeld = "IllegalMonitorStateException"

// Spec writes a lock as the driver's commands do, by its kind: rlock, fair, fenced, read or write. A kind may name a
// client: "rlock@1".
func Spec(kind, name string) string {
	// Space, comma and plus separate in the protocol; PathEscape leaves the last two.
	e := url.PathEscape(name)
	return kind + ":" + strings.NewReplacer(",", "%2C", "+", "%2B").Replace(e)
}

// MultiSpec writes a multi-lock as the driver's commands do.
func MultiSpec(specs ...string) string { return "multi:" + strings.Join(specs, "+") }

// Field is an owner's field in the hash of a lock, <client uuid>:<thread id> (of client 0).
func (d *Driver) Field(tb testbed.TB, owner string) string {
	tb.Helper()
	return d.Go("field", owner).Wait(tb).Value
}

// Loop describes rounds of lock, record, hold, record, unlock.
type Loop struct {
	Specs  []string      // the locks; each round takes one at random
	Rounds int           // acquisitions to make; 0: no limit
	Limit  time.Duration // time after which no round begins; 0: none
	Record string        // key of the Redis list that the sections are written to
	Tag    string        // names the process in the record
	Hold   time.Duration // time inside a section
	Wait   time.Duration // wait of each attempt; negative: lock() without limit
	Lease  time.Duration // fixed lease; 0: the watchdog
	Twice  bool          // every other round takes the lock twice
}

// GoLoop starts a loop of an owner; it ends by its own limits or by [Driver.Halt].
func (d *Driver) GoLoop(owner string, l Loop) *Call {
	twice := "0"
	if l.Twice {
		twice = "1"
	}
	return d.Go("loop", owner, strings.Join(l.Specs, ","), strconv.Itoa(l.Rounds), millis(l.Limit),
		l.Record, l.Tag, strconv.FormatInt(l.Hold.Microseconds(), 10), millis(l.Wait), millis(l.Lease), twice)
}

// LoopResult is what a loop did.
type LoopResult struct {
	Acquired, Tried int
	Lost            int           // unlocks that Redisson refused: the lock had gone
	Failed          int           // attempts that ended in an exception
	Longest         time.Duration // wait for an acquisition
}

// LoopResult waits for a loop and reads its answer.
func (c *Call) LoopResult(tb testbed.TB) LoopResult {
	tb.Helper()
	v := c.Wait(tb).Value
	var r LoopResult
	var us int64
	if _, err := fmt.Sscanf(v, "acquired=%d,tried=%d,lost=%d,failed=%d,longest=%d", &r.Acquired, &r.Tried, &r.Lost, &r.Failed, &us); err != nil {
		tb.Fatalf("redisson: loop %q: %v", v, err)
	}
	r.Longest = time.Duration(us) * time.Microsecond
	return r
}
