package engine

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// earlyShare of a period is how early a run may begin: a tenth.
const earlyShare = 10

// claim is one call's attempt to get a period of the job of a lock's name.
type claim struct {
	*Core
	name   string
	key    string
	id     string
	period time.Duration
	since  time.Time  // when the command that claimed it was sent, or one that may have
	hold   *held.Hold // for the run; nil: none was granted
}

func (l *Lock) claim(period time.Duration) *claim {
	return &claim{Core: l.core, name: l.of.Name, key: l.of.Key, id: l.core.cfg.ID + "." + uuid.NewString(), period: period}
}

// Once claims a period and takes the lock, both or neither. Neither a hold nor an error: the run is not due.
func (l *Lock) Once(ctx context.Context, period time.Duration) (*held.Hold, error) {
	if err := l.core.reg.Begin(); err != nil {
		return nil, err
	}
	defer l.core.reg.End()
	if l.core.isDraining() { // claims no tick from those who can run
		return nil, lock.ErrClosed
	}
	c, over := l.claim(period), false
	defer func() {
		if !over { // a panic of ctx: nobody runs
			c.drop()
		}
	}()
	hold, err := c.begin(ctx, l)
	over = true
	return hold, err
}

func (c *claim) begin(ctx context.Context, l *Lock) (_ *held.Hold, err error) {
	due, err := c.take(ctx)
	if err != nil || !due {
		return nil, err
	}
	if c.hold, err = l.Acquire(ctx, 0, 0); err != nil {
		return nil, c.giveBack(ctx, err)
	}
	if err := c.unfit(ctx, c.hold); err != nil {
		err = c.giveBack(ctx, err) // under the lock: nobody is told that the period has its run
		if uerr := c.hold.Unlock(ctx); uerr != nil && !errors.Is(err, uerr) {
			err = lock.Join(err, uerr)
		}
		return nil, err
	}
	c.hold.Context() // made here: that asks ctx
	return c.hold, nil
}

// drop gives back in the background what there may be, for one who can't. Nothing of the caller's ctx goes on.
func (c *claim) drop() {
	c.background(func() { _ = c.undoLate(context.Background(), held.VoidTTL) })
	if c.hold != nil {
		c.hold.Drop()
	}
}

// unfit says why no run may begin under a hold that was granted for the claim. It is stale if another one may have been
// granted after it: by either clock, since one of them stands still while a machine sleeps.
func (c *claim) unfit(ctx context.Context, hold *held.Hold) error {
	switch {
	case hold.Reentry(): // another run of the owner's, or it holds the lock by hand
		return c.busy(hold.Field().Name, max(time.Until(hold.ValidUntil()), 0))
	case lease.Passed(time.Now(), lease.LocalDeadline(c.since, c.period-c.period/earlyShare)):
		return c.unavailable(c.name, opClaim, errStale)
	case ctx.Err() != nil:
		return c.ended(ctx, opClaim, nil)
	}
	return hold.Ended()
}

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// command claims the period. After one that may run late, void > 0 makes the server refuse that
// one, as soon as this one is granted: the next period may be due when it comes.
func (c *claim) command(void time.Duration) conn.Command {
	return conn.Command{
		Script: luascript.Once,
		Keys:   []string{luascript.OnceKey(c.key), luascript.VoidKey(c.key), c.key},
		Args:   []string{c.id, ms(c.period), ms(c.period / earlyShare), ms(void)},
		Acks:   c.cfg.ReplicaAcks, AckTimeout: c.cfg.AckTimeout,
	}
}

// undo gives the period back.
func (c *claim) undo(void time.Duration) conn.Command {
	keys := []string{luascript.OnceKey(c.key)}
	if void > 0 {
		keys = append(keys, luascript.VoidKey(c.key))
	}
	return conn.Command{Script: luascript.OnceUndo, Keys: keys, Args: []string{c.id, ms(c.period), ms(void)}}
}

// take asks for the period until there is an answer, ctx ends or the period has
// passed. Whatever it leaves behind is undone in the background.
func (c *claim) take(ctx context.Context) (due bool, err error) {
	r, unsure, err := c.ask(ctx, opClaim, c.command, c.period, func(a *sender.Call, unsure bool) {
		if unsure || claimed(a.Reply) || a.Err != nil && conn.Classify(a.Err) == conn.Ambiguous {
			_ = c.undoLate(ctx, held.VoidTTL)
		}
	})
	if unsure && (err != nil || !claimed(r)) {
		// An earlier command may run yet, also when the next period is due.
		c.background(func() { _ = c.undoLate(ctx, held.VoidTTL) })
	}
	switch {
	case err != nil:
		return false, err
	case r.Code == codeBusy:
		return false, c.busy(r.Str(2), kind.Remaining(r.Int(1)))
	case r.Code == codeVoid:
		return false, c.unavailable(c.name, opClaim, errVoidClaim)
	case !claimed(r):
		return false, nil
	case r.Acked < c.cfg.ReplicaAcks:
		return false, c.giveBack(ctx, &lock.ReplicaAcksError{Name: c.name, Want: c.cfg.ReplicaAcks, Got: r.Acked, Err: r.Waits})
	}
	return true, nil
}

// The answers to a claim; 0: not due.
const (
	codeClaimed = 1
	codeAgain   = 2
	codeBusy    = 3
	codeVoid    = -1
)

func claimed(r conn.Reply) bool { return r.Code == codeClaimed || r.Code == codeAgain }

// busy is the error of a call whose lock somebody holds.
func (c *claim) busy(holder string, remaining time.Duration) error {
	return &lock.NotAcquiredError{Name: c.name, Holder: holder, Remaining: remaining, Own: c.owns(holder)}
}

// giveBack undoes a claim that was granted, since the run can't begin because of why. It adds what
// went wrong with that: then nobody knows whether the period has a run. It waits until ctx ends or
// UnlockTimeout has passed; the undoing goes on.
func (c *claim) giveBack(ctx context.Context, why error) error {
	limit := time.NewTimer(c.cfg.UnlockTimeout)
	defer limit.Stop()
	undone := make(chan error, 1)
	c.background(func() { undone <- c.undoLate(ctx, 0) })
	select {
	case err := <-undone:
		if err != nil {
			return because(why, err)
		}
	case <-ctx.Done():
	case <-c.closing:
	case <-limit.C:
		return because(why, c.unavailable(c.name, opGiveBack, held.ErrNoAnswer))
	}
	return why
}

// because adds err to why, as its cause where it has one: what is unavailable is not said to be busy.
func because(why, err error) error {
	busy, ok := errors.AsType[*lock.NotAcquiredError](why)
	if !ok {
		return lock.Join(why, err)
	}
	out := *busy
	out.Err = lock.Join(busy.Err, err)
	return &out
}

// Forget undoes the last claim, whoever's it is. The server deletes the record that it has told
// and no other: a command that comes late can't touch that of a later run.
func (l *Lock) Forget(ctx context.Context) (bool, error) {
	if err := l.core.reg.Begin(); err != nil {
		return false, err
	}
	defer l.core.reg.End()
	c, record, limit := l.claim(0), "", time.Now().Add(l.core.cfg.UnlockTimeout)
	for {
		r, unsure, err := c.ask(ctx, opReset, func(time.Duration) conn.Command {
			return conn.Command{Script: luascript.OnceReset, Keys: []string{luascript.OnceKey(c.key)}, Args: []string{record}}
		}, time.Until(limit), nil)
		switch there := r.Str(1); {
		case err != nil:
			return false, err
		case r.Code == 1:
			return true, nil
		case there == "":
			return record != "" && unsure, nil // deleted by a command whose answer was lost, or by others
		default:
			record = there
		}
	}
}

// background runs f for a call that is counted in. Close waits for it.
func (c *claim) background(f func()) {
	c.reg.More()
	go func() { // ends with f
		defer c.reg.End()
		f()
	}()
}

// undoLate repeats the undoing until it is answered, the period has passed (three, while the server is silent and may
// have a late command) or the Client has been closed for UnlockTimeout. void is how long the server must refuse commands
// of the claim that come late: one that it does not answer about may claim a period when it goes on.
func (c *claim) undoLate(ctx context.Context, void time.Duration) error {
	began, late := time.Now(), time.Duration(0)
	end := began.Add(c.period)
	if void > 0 {
		late = c.period
	}
	for retry := held.NewRetry(); ; {
		answer := make(chan error, 1)
		c.send.Start(&sender.Call{
			Cmd: c.undo(void), Class: sender.Keep, Ctx: context.WithoutCancel(ctx), Unseen: true,
			Then: func(a *sender.Call) { answer <- a.Err },
		})
		err := <-answer
		if err == nil {
			return nil
		}
		if conn.IsPermanent(err) {
			return &lock.ServerError{Name: c.name, Op: opGiveBack, Err: err}
		}
		end = held.WhileSilent(end, began, late, err)
		if !c.reg.SleepLate(end, retry.NextBackOff()) {
			return c.unavailable(c.name, opGiveBack, err)
		}
	}
}

var (
	errVoidClaim = errors.New("the server had marked this claim as given up")
	errStale     = errors.New("the lock was granted when the next run was due")
)

// ask sends what cmd builds until it is answered, ctx ends, limit has passed or the Client closes. cmd
// is told for how long earlier commands must be refused: 0 unless one may run late. When the
// caller leaves while a command is under way, late gets the outcome, in the background.
// unsure: a command that failed may have run, or may run yet.
func (c *claim) ask(
	ctx context.Context, op string, cmd func(void time.Duration) conn.Command, limit time.Duration, late func(a *sender.Call, unsure bool),
) (r conn.Reply, unsure bool, err error) {
	var last error // the last failure
	void, deadline, ended := time.Duration(0), time.Now().Add(limit), ctx.Done()
	for retry := held.NewRetry(); ; {
		switch {
		case ctx.Err() != nil:
			return r, unsure, c.ended(ctx, op, last)
		case c.isClosed():
			return r, unsure, lock.ErrClosed
		}
		sent := time.Now()
		if !unsure {
			c.since = sent
		}
		call := &sender.Call{Cmd: cmd(void), Class: sender.Ask, Ctx: context.WithoutCancel(ctx), Unseen: true}
		if call.Cmd.Acks > 0 {
			call.Class = sender.Acked
		}
		c.send.Start(call)
		if c.isClosed() || !call.Wait(ended, deadline) { // closed: perhaps too late for who is interrupted
			was := unsure
			c.reg.More()
			left := call.Leave(func(a *sender.Call) {
				go func() { // ends with what late does
					defer c.reg.End()
					if late != nil {
						late(a, was)
					}
				}()
			})
			if left != sender.Away {
				c.reg.End()
			}
			if left != sender.Answered {
				unsure = unsure && left == sender.Withdrawn // else the undoing is late's
				switch {
				case ctx.Err() != nil:
					if time.Since(sent) > c.slow() {
						last = held.ErrNoAnswer
					}
					return r, unsure, c.ended(ctx, op, last)
				case c.isClosed():
					return r, unsure, lock.ErrClosed
				}
				return r, unsure, c.unavailable(c.name, op, cmp.Or(last, held.ErrNoAnswer))
			}
		}
		if call.Err == nil {
			if call.Reply.Code == codeClaimed {
				c.since = sent // those before it claimed nothing
			}
			return call.Reply, unsure, nil
		}
		last = call.Err
		class := conn.Classify(last)
		if !class.Transient() {
			return r, unsure, &lock.ServerError{Name: c.name, Op: op, Err: last}
		}
		if class == conn.Ambiguous {
			unsure, void = true, held.VoidTTL
		}
		if !held.Sleep(ctx, c.closing, deadline, retry.NextBackOff()) && ctx.Err() == nil && !c.isClosed() {
			return r, unsure, c.unavailable(c.name, op, last)
		}
	}
}

// What is tried, for errors.
const (
	opClaim    = "claim"
	opGiveBack = "give back"
	opReset    = "reset"
)

// ended is the error of a call whose ctx is over; last is the last failure.
func (c *claim) ended(ctx context.Context, op string, last error) error {
	err := ctx.Err()
	if op != opClaim {
		return c.unavailable(c.name, op, lock.Join(err, last))
	}
	if last != nil {
		err = lock.Join(err, c.unavailable(c.name, op, last))
	}
	return &lock.NotAcquiredError{Name: c.name, Err: err}
}
