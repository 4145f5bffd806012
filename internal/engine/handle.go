package engine

import (
	"context"
	"math"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// Lock is a named lock of one kind: what a lock object of the public packages
// wraps. It has no state of its own and is safe for concurrent use.
type Lock struct {
	core *Core
	kind Kind
	name string
	key  string
	err  error // a bad name or option; of every call
}

// NewLock checks name and makes the kind for its key. make is not called when
// the name is bad.
func (c *Core) NewLock(name string, build func(key string) (Kind, error)) *Lock {
	l := &Lock{core: c, name: name}
	if l.key, l.err = c.key(name); l.err == nil {
		l.kind, l.err = build(l.key)
	}
	return l
}

// Name is the name as the caller gave it.
func (l *Lock) Name() string { return l.name }

// Key is the name on the server.
func (l *Lock) Key() string { return l.key }

// Core is the client's engine.
func (l *Lock) Core() *Core { return l.core }

// Kind is the lock's kind; nil when Err is not.
func (l *Lock) Kind() Kind { return l.kind }

// Err is a bad name or option.
func (l *Lock) Err() error { return l.err }

// Lock implements lock.Locker.
func (l *Lock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return asHold(l.Acquire(ctx, forever, lock.Acquire(opts).Lease))
}

// TryLock implements lock.Locker.
func (l *Lock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	if wait < 0 {
		return nil, l.refused(ctx, wait, lease, &lock.InvalidOptionError{Option: "wait", Reason: "it is negative"})
	}
	return asHold(l.Acquire(ctx, wait, lease))
}

// asHold keeps a nil *Hold from becoming a non-nil interface.
func asHold(h *Hold, err error) (lock.Hold, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

// State asks the server.
func (l *Lock) State(ctx context.Context) (lock.State, error) {
	ctx, end := l.operation(ctx, observe.State, "")
	st, err := l.state(ctx)
	end(err)
	return st, err
}

func (l *Lock) state(ctx context.Context) (lock.State, error) {
	if l.err != nil {
		return lock.State{}, l.err
	}
	r, err := l.ask(ctx, "state", l.kind.State, conn.Ambiguous)
	if err != nil {
		return lock.State{}, err
	}
	st, err := l.kind.ReadState(r)
	if err != nil {
		return lock.State{}, l.named(err)
	}
	st.Name = l.name
	return st, nil
}

// ForceUnlock takes the lock away from its holder, whoever that is.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	ctx, end := l.operation(ctx, observe.ForceUnlock, "")
	held, err := l.forceUnlock(ctx)
	end(err)
	return held, err
}

func (l *Lock) forceUnlock(ctx context.Context) (bool, error) {
	if l.err != nil {
		return false, l.err
	}
	// Not again when it may have run: the second run would hit the next holder.
	r, err := l.ask(ctx, "force_unlock", l.kind.ForceUnlock, conn.Unsent)
	if err != nil {
		return false, err
	}
	if r.Code < 0 {
		return false, &lock.InvalidNameError{Name: l.name, Reason: "the key of this name is no lock of this kind; it was not touched"}
	}
	return r.Code > 0, nil
}

func (l *Lock) named(err error) error {
	if e, ok := err.(*lock.InvalidNameError); ok { //nolint:errorlint // our own, unwrapped
		e.Name = l.name
	}
	return err
}

// ask runs a command that belongs to no session: once more after a transient
// error up to the class worst, as long as ctx and the client's UnlockTimeout
// allow it.
func (l *Lock) ask(ctx context.Context, op string, build func() conn.Command, worst conn.Class) (conn.Reply, error) {
	c := l.core
	if err := ctx.Err(); err != nil {
		return conn.Reply{}, err
	}
	if err := c.begin(); err != nil {
		return conn.Reply{}, err
	}
	defer c.wg.Done()
	deadline := time.Now().Add(c.cfg.UnlockTimeout)
	retry := newRetry()
	var last error
	for {
		f, ok := c.fly(ctx, ctx, deadline, build(), nil)
		switch {
		case ok && f.err == nil:
			return f.reply, nil
		case ok && conn.IsPermanent(f.err):
			return conn.Reply{}, &lock.ServerError{Name: l.name, Op: op, Err: f.err}
		case ok:
			last = f.err
			if conn.Classify(last) <= worst && sleep(ctx, c.closing, deadline, retry.NextBackOff()) {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return conn.Reply{}, ctx.Err()
		case c.isClosed():
			return conn.Reply{}, lock.ErrClosed
		case last == nil:
			last = errNoAnswer
		}
		return conn.Reply{}, &lock.UnavailableError{Name: l.name, Op: op, Nodes: []lock.NodeError{{Node: c.cfg.Addr, Err: last}}}
	}
}

func (c *Core) isClosed() bool {
	select {
	case <-c.closing:
		return true
	default:
		return false
	}
}

// Attempt is one acquisition under way, as its kind sees it. The engine calls
// the kind's methods with an Attempt one at a time.
type Attempt struct {
	Lock  *Lock
	ID    string        // of the acquisition, unique in the client
	Field string        // in the lock's hash: <client>:<owner>-<ID>
	Lease time.Duration // what the grant shall last
	Wait  time.Duration // what is left of the wait; 0: this is the only attempt; negative: no limit
	Other string        // to read: the field of the owner's write hold; "" when it has none
	Trace string        // "", "-" (read the holder's), or what to leave beside the lock
	Sent  time.Time     // when the last Acquire command was sent
	Data  any           // the kind's own
}

// Millis is d in whole milliseconds, rounded up: what the server is told is
// never shorter than what the client counts on.
func Millis(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	if m := lastMillis.Load(); m != nil && m.d == d {
		return m.text
	}
	m := &millis{d, millisText(d)}
	lastMillis.Store(m)
	return m.text
}

// lastMillis is the text that was made last: nearly always that of LeaseTime.
var lastMillis atomic.Pointer[millis]

type millis struct {
	d    time.Duration
	text string
}

func millisText(d time.Duration) string {
	if d > math.MaxInt64-time.Millisecond {
		d -= time.Millisecond // rounding up must not turn the longest durations negative
	}
	return strconv.FormatInt(int64((d+time.Millisecond-1)/time.Millisecond), 10)
}

// spec asks the kind how a waiter of a waits.
func (l *Lock) spec(a *Attempt) (pubsub.Spec, []pubsub.Option) {
	spec, opts := l.kind.Wait(a)
	return spec, opts
}
