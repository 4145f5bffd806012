package engine

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// forever is a wait without a limit of its own.
const forever time.Duration = -1

// Lock is a named lock of one kind: what a lock object of the public packages
// wraps. It has no state of its own and is safe for concurrent use.
type Lock struct {
	of    held.Lock
	core  *Core
	err   error       // a bad name or option; of every call
	queue kind.Queuer // the kind, if its waiters have places
}

// NewLock checks name and makes the kind for its key. build is not called when
// the name is bad.
func (c *Core) NewLock(name string, build func(key string) (kind.Kind, error)) *Lock {
	l := &Lock{core: c, of: held.Lock{Name: name}}
	if l.of.Key, l.err = c.key(name); l.err == nil {
		l.of.Kind, l.err = build(l.of.Key)
	}
	l.queue, _ = l.of.Kind.(kind.Queuer)
	if _, ok := l.of.Kind.(kind.Caller); ok && l.err == nil {
		spec, _ := l.of.Kind.Wait(&nobody)
		if l.of.Calls = spec.ID; l.of.Kind.Traits().Passes {
			l.of.Line = spec.ID
		}
	}
	return l
}

// Name is the name as the caller gave it.
func (l *Lock) Name() string { return l.of.Name }

// Key is the name on the server.
func (l *Lock) Key() string { return l.of.Key }

// Slot is the key's slot; 0 without a cluster.
func (l *Lock) Slot() uint16 {
	if !l.core.topo.Cluster {
		return 0
	}
	return luascript.Slot(l.of.Key)
}

// Core is the client's engine.
func (l *Lock) Core() *Core { return l.core }

// Kind is the lock's kind; nil when Err is not.
func (l *Lock) Kind() kind.Kind { return l.of.Kind }

// Err is a bad name or option.
func (l *Lock) Err() error { return l.err }

// Group is what locks have in common that can be taken and freed by one command.
type Group struct {
	core *Core
	slot uint16
}

// Group is the lock's; false: it is taken by a command of its own.
func (l *Lock) Group() (Group, bool) {
	_, ok := l.of.Kind.(kind.Group)
	return Group{l.core, l.Slot()}, ok
}

// Lock implements lock.Locker.
func (l *Lock) Lock(ctx context.Context, opts ...lock.AcquireOption) (lock.Hold, error) {
	return asHold(l.Acquire(ctx, forever, lock.SettingsOf(opts).Lease))
}

// TryLock implements lock.Locker.
func (l *Lock) TryLock(ctx context.Context, wait, lease time.Duration) (lock.Hold, error) {
	if wait < 0 {
		return nil, l.refused(ctx, wait, lease, &lock.InvalidOptionError{Option: "wait", Reason: "it is negative"})
	}
	l.tellSwapped(ctx, wait, lease)
	return asHold(l.Acquire(ctx, wait, lease))
}

// A fixed lease of at most shortLease, next to a wait of longWait times as much, looks like swapped arguments.
const (
	shortLease = 5 * time.Second
	longWait   = 4
)

// tellSwapped warns, once for each client, of arguments that look swapped.
func (l *Lock) tellSwapped(ctx context.Context, wait, lease time.Duration) {
	if lease <= 0 || lease > shortLease || wait/longWait < lease {
		return
	}
	l.core.swapped.Do(func() {
		log, values := l.core.cfg.Log, context.WithoutCancel(ctx)
		l.core.Tell(func() {
			log.WarnContext(values, "redlatch: TryLock waits far longer than its lease lasts; were wait and lease swapped?",
				"lock", l.of.Name, "wait", wait, "lease", lease)
		})
	})
}

// asHold keeps a nil *Hold from becoming a non-nil interface.
func asHold(h *held.Hold, err error) (lock.Hold, error) {
	if err != nil {
		return nil, err
	}
	return h, nil
}

// State asks the server.
func (l *Lock) State(ctx context.Context) (st lock.State, err error) {
	ctx, end := observe.Operation(ctx, l.core.cfg.Observer, l.of.Observed(), observe.State, "")
	err = observe.ErrPanic
	defer func() { end(err) }()
	return l.state(ctx)
}

func (l *Lock) state(ctx context.Context) (lock.State, error) {
	if l.err != nil {
		return lock.State{}, l.err
	}
	r, err := l.ask(ctx, "state", l.of.Kind.State(), conn.Ambiguous)
	if err != nil {
		return lock.State{}, err
	}
	st, err := l.of.Kind.ReadState(r)
	if e, ok := err.(*lock.InvalidNameError); ok { //nolint:errorlint // our own, unwrapped
		e.Name = l.of.Name
	}
	if err == nil {
		st.Name = l.of.Name
	}
	return st, err
}

// ask runs a command that belongs to no session: once more after a transient
// error up to the class worst, as long as ctx and the client's UnlockTimeout
// allow it.
func (l *Lock) ask(ctx context.Context, op string, cmd conn.Command, worst conn.Class) (conn.Reply, error) {
	c := l.core
	if err := ctx.Err(); err != nil {
		return conn.Reply{}, err
	}
	if err := c.reg.Begin(); err != nil {
		return conn.Reply{}, err
	}
	defer c.reg.End()
	deadline := time.Now().Add(c.cfg.UnlockTimeout)
	ended := ctx.Done() // ctx may be the user's, and panic: not beside a command
	retry := held.NewRetry()
	last := held.ErrNoAnswer
	for {
		call := &sender.Call{Cmd: cmd, Class: sender.Ask, Ctx: context.WithoutCancel(ctx)}
		c.send.Start(call)
		if call.Wait(ended, deadline) || call.Leave(nil) == sender.Answered {
			call.Done()
			switch {
			case call.Err == nil:
				return call.Reply, nil
			case conn.IsPermanent(call.Err):
				return conn.Reply{}, &lock.ServerError{Name: l.of.Name, Op: op, Err: call.Err}
			}
			last = call.Err
			if conn.Classify(last) <= worst && held.Sleep(ctx, c.closing, deadline, retry.NextBackOff()) {
				continue
			}
		}
		switch {
		case ctx.Err() != nil:
			return conn.Reply{}, ctx.Err()
		case c.isClosed():
			return conn.Reply{}, lock.ErrClosed
		}
		return conn.Reply{}, c.unavailable(l.of.Name, op, last)
	}
}

// Inside reports whether the owner that ctx carries holds the lock by now in any mode, as far as this client
// knows: it may have more of it, or be refused, whoever waits.
func (l *Lock) Inside(ctx context.Context) bool {
	for _, m := range [...]lock.Mode{lock.ModeLock, lock.ModeRead, lock.ModeWrite} {
		if l.core.reg.Holds(ctx, l.of.Key, m) != nil {
			return true
		}
	}
	return false
}

// ForceUnlock takes the lock away from its holder, whoever that is: what is held
// in the kind's mode.
func (l *Lock) ForceUnlock(ctx context.Context) (bool, error) {
	if l.err != nil {
		return l.ForceUnlockOf(ctx, inspect.Any)
	}
	return l.ForceUnlockOf(ctx, inspect.In(l.of.Kind.Traits().Mode))
}

// ForceUnlockOf does the same with the holds that are meant.
func (l *Lock) ForceUnlockOf(ctx context.Context, which inspect.Which) (bool, error) {
	ctx, end := observe.Operation(ctx, l.core.cfg.Observer, l.of.Observed(), observe.ForceUnlock, "")
	e, err := func() (e inspect.Evicted, err error) {
		err = observe.ErrPanic
		defer func() { end(err, e.Note()) }()
		return l.forceUnlock(ctx, which)
	}()
	if e.Count > 0 {
		args := []any{"lock", l.of.Name, "owner", e.Owner(), "by", l.core.cfg.ID}
		if e.Refused != nil { // waiters go on at the end of the lease
			args = append(args, "error", e.Refused)
		}
		l.core.cfg.Log.WarnContext(ctx, "redlatch: lock taken away by force", args...)
	}
	return e.Count > 0, err
}

func (l *Lock) forceUnlock(ctx context.Context, which inspect.Which) (e inspect.Evicted, err error) {
	if l.err != nil {
		return e, l.err
	}
	over, answered := l.core.doubt(l.of.Key), false
	defer func() { over(answered, e) }() // an observer may panic
	// Not again when it may have run: the second run would hit the next holder.
	cmd := inspect.ForceCommand(l.core.topo, l.of.Key, which, settings.Force{})
	r, err := l.ask(ctx, "force_unlock", cmd, conn.Unsent)
	answered = err == nil
	if err != nil {
		return e, err
	}
	return inspect.ReadForce(cmd, r, l.of.Name, nil)
}
