//go:build unix

package redisson

import (
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// Owner is one thread of a driver: what Redisson takes for the owner of a lock.
// Its commands run one after the other.
type Owner struct {
	driver *Driver
	name   string
}

// Owner returns the thread of that name; it starts with its first command.
func (d *Driver) Owner(name string) Owner { return Owner{driver: d, name: name} }

// Field is the owner's field in the hash of a lock, <client uuid>:<thread id> (of
// client 0).
func (o Owner) Field(tb testbed.TB) string {
	tb.Helper()
	return o.driver.Go("field", o.name).Wait(tb).Value
}

// Interrupt interrupts the thread: a lock that it waits for ends with
// InterruptedException.
func (o Owner) Interrupt(tb testbed.TB) {
	tb.Helper()
	o.driver.Go("interrupt", o.name).Wait(tb)
}

// Lock is one owner's view of a lock in Redisson.
type Lock struct {
	owner Owner
	spec  string
}

// Lock is the owner's view of a lock by its kind: rlock, fair, fenced, read or write.
func (o Owner) Lock(kind, name string) Lock { return o.lock(kind, name) }

func (o Owner) lock(kind, name string) Lock { return Lock{owner: o, spec: Spec(kind, name)} }

// RLock is getLock(name).
func (o Owner) RLock(name string) Lock { return o.lock("rlock", name) }

// Fair is getFairLock(name).
func (o Owner) Fair(name string) Lock { return o.lock("fair", name) }

// Fenced is getFencedLock(name).
func (o Owner) Fenced(name string) Lock { return o.lock("fenced", name) }

// Read is getReadWriteLock(name).readLock().
func (o Owner) Read(name string) Lock { return o.lock("read", name) }

// Write is getReadWriteLock(name).writeLock().
func (o Owner) Write(name string) Lock { return o.lock("write", name) }

// Multi is getMultiLock(...) over the locks that the specs stand for ([Spec]).
func (o Owner) Multi(specs ...string) Lock { return Lock{owner: o, spec: MultiSpec(specs...)} }

// Spec writes a lock as the driver's commands do. A kind may name a client: "rlock@1".
func Spec(kind, name string) string {
	// Space, comma and plus separate in the protocol; PathEscape leaves the last two.
	e := url.PathEscape(name)
	return kind + ":" + strings.NewReplacer(",", "%2C", "+", "%2B").Replace(e)
}

// MultiSpec writes a multi-lock as the driver's commands do.
func MultiSpec(specs ...string) string { return "multi:" + strings.Join(specs, "+") }

// GoLock sends lock(lease) and does not wait; lease 0 means the watchdog.
func (l Lock) GoLock(lease time.Duration) *Call {
	return l.owner.driver.Go("lock", l.owner.name, l.spec, millis(lease))
}

// Lock waits until the owner has the lock.
func (l Lock) Lock(tb testbed.TB, lease time.Duration) Answer {
	tb.Helper()
	return l.GoLock(lease).Wait(tb)
}

// GoTryLock sends tryLock(wait, lease) and does not wait. A negative wait means
// tryLock() without arguments.
func (l Lock) GoTryLock(wait, lease time.Duration) *Call {
	return l.owner.driver.Go("trylock", l.owner.name, l.spec, millis(wait), millis(lease))
}

// TryLock reports whether the owner got the lock within wait; see [Lock.GoTryLock].
func (l Lock) TryLock(tb testbed.TB, wait, lease time.Duration) bool {
	tb.Helper()
	return l.GoTryLock(wait, lease).Wait(tb).Value == "true"
}

// Unlock releases one hold.
func (l Lock) Unlock(tb testbed.TB) Answer {
	tb.Helper()
	return l.GoUnlock().Wait(tb)
}

// GoUnlock sends unlock() and does not wait.
func (l Lock) GoUnlock() *Call { return l.owner.driver.Go("unlock", l.owner.name, l.spec) }

// NotHeld is the exception of an unlock by one who does not hold the lock.
const NotHeld = "IllegalMonitorStateException"

// UnlockRefused ends the test unless Redisson refuses the unlock because the owner
// does not hold the lock.
func (l Lock) UnlockRefused(tb testbed.TB) {
	tb.Helper()
	_, err := l.GoUnlock().Result()
	var java *Error
	if !errors.As(err, &java) || java.Exception != NotHeld {
		tb.Fatalf("redisson: unlock of %s by %s: got %v, want %s", l.spec, l.owner.name, err, NotHeld)
	}
}

// ForceUnlock is forceUnlock().
func (l Lock) ForceUnlock(tb testbed.TB) bool {
	tb.Helper()
	return l.owner.driver.Go("force", l.owner.name, l.spec).Wait(tb).Value == "true"
}

// State is what the driver says about a lock.
type State struct {
	Locked bool          // isLocked()
	Count  int           // getHoldCount(): of this owner
	TTL    time.Duration // remainTimeToLive(); -1 ms: none, -2 ms: no key
}

// State asks for isLocked, getHoldCount and remainTimeToLive.
func (l Lock) State(tb testbed.TB) State {
	tb.Helper()
	v := l.owner.driver.Go("state", l.owner.name, l.spec).Wait(tb).Value
	var s State
	var ttl int64
	if _, err := fmt.Sscanf(v, "locked=%t,count=%d,ttl=%d", &s.Locked, &s.Count, &ttl); err != nil {
		tb.Fatalf("redisson: state %q: %v", v, err)
	}
	s.TTL = time.Duration(ttl) * time.Millisecond
	return s
}

// Token is lockAndGetToken() of a fenced lock.
func (l Lock) Token(tb testbed.TB) uint64 {
	tb.Helper()
	return l.GoToken().Token(tb)
}

// GoToken sends lockAndGetToken() and does not wait.
func (l Lock) GoToken() *Call { return l.owner.driver.Go("token", l.owner.name, l.spec) }

// TryToken is tryLockAndGetToken(wait, lease); 0 when the lock was busy.
func (l Lock) TryToken(tb testbed.TB, wait, lease time.Duration) uint64 {
	tb.Helper()
	c := l.owner.driver.Go("trytoken", l.owner.name, l.spec, millis(wait), millis(lease))
	if c.Wait(tb).Value == "null" {
		return 0
	}
	return c.Token(tb)
}

// LastToken is getToken(): the counter, whoever holds the lock.
func (l Lock) LastToken(tb testbed.TB) uint64 {
	tb.Helper()
	return l.owner.driver.Go("lasttoken", l.owner.name, l.spec).Token(tb)
}

// Token reads the answer as a fencing token.
func (c *Call) Token(tb testbed.TB) uint64 {
	tb.Helper()
	v := c.Wait(tb).Value
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		tb.Fatalf("redisson: token %q: %v", v, err)
	}
	return n
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

// GoLoop starts a loop; it ends by its own limits or by [Driver.Halt].
func (o Owner) GoLoop(l Loop) *Call {
	twice := "0"
	if l.Twice {
		twice = "1"
	}
	return o.driver.Go("loop", o.name, strings.Join(l.Specs, ","), strconv.Itoa(l.Rounds), millis(l.Limit),
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
