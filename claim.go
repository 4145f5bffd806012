package redlatch

import (
	"cmp"
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// claims sends the commands of [Once]. It is safe for concurrent use.
type claims struct {
	run           conn.Runner
	id            string // the Client's
	addr          string
	acks          int
	ackTimeout    time.Duration
	unlockTimeout time.Duration

	closing chan struct{} // closed: all callers leave
	over    chan struct{} // closed: the time to undo what is left behind is over

	mu     sync.Mutex
	closed bool           // guarded by mu
	wg     sync.WaitGroup // calls, but not their runs, and what they left behind; see begin
}

func newClaims(cfg Config, run conn.Runner, id, addr string) *claims {
	return &claims{
		run: run, id: id, addr: addr, acks: cfg.ReplicaAcks, ackTimeout: cfg.ReplicaAckTimeout, unlockTimeout: cfg.UnlockTimeout,
		closing: make(chan struct{}), over: make(chan struct{}),
	}
}

// close makes all callers leave; settle waits until what they leave behind is undone.
func (cs *claims) close() {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	cs.closed = true
	close(cs.closing)
}

// settle waits until what was left behind is undone, for at most UnlockTimeout.
func (cs *claims) settle() {
	done := make(chan struct{})
	go func() { // ends with the commands, at the latest when the connection is closed
		cs.wg.Wait()
		close(done)
	}()
	timer := time.NewTimer(cs.unlockTimeout)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
	close(cs.over)
}

// begin counts a call in; end with cs.wg.Done. What is counted in itself may count more in, whether
// the Client has been closed or not.
func (cs *claims) begin() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if cs.closed {
		return lock.ErrClosed
	}
	cs.wg.Add(1)
	return nil
}

// claim is one call's attempt to get a period.
type claim struct {
	cs     *claims
	name   string
	key    string
	id     string
	period time.Duration
	since  time.Time // when the command that claimed it was sent, or one that may have
}

func (cs *claims) claim(l *engine.Lock, period time.Duration) *claim {
	return &claim{cs: cs, name: l.Name(), key: l.Key(), id: cs.id + "." + uuid.NewString(), period: period}
}

// stale reports whether the claim, which was granted, is so old that another one may have been
// granted after it: by either clock, since one of them stands still while a machine sleeps.
func (c *claim) stale() bool {
	return lease.Passed(time.Now(), lease.LocalDeadline(c.since, c.period-c.period/earlyShare))
}

// voidTime is how long a late command of a claim that was given up is refused.
const voidTime = 5 * time.Second

// silence is after how long a server that has not answered counts as unavailable.
const silence = time.Second

func ms(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }

// command claims the period. After one that may run late, void > 0 makes the server refuse that
// one, as soon as this one is granted: the next period may be due when it comes.
func (c *claim) command(void time.Duration) conn.Command {
	return conn.Command{
		Script: luascript.Once,
		Keys:   []string{luascript.OnceKey(c.key), luascript.VoidKey(c.key), c.key},
		Args:   []string{c.id, ms(c.period), ms(c.period / earlyShare), ms(void)},
		Acks:   c.cs.acks, AckTimeout: c.cs.ackTimeout,
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
	limit := time.NewTimer(c.period)
	defer limit.Stop()
	r, unsure, err := c.ask(ctx, opClaim, c.command, limit.C, func(a answer, unsure bool) {
		if unsure || claimed(a.reply) || a.err != nil && conn.Classify(a.err) == conn.Ambiguous {
			_ = c.undoLate(ctx, voidTime)
		}
	})
	if unsure && (err != nil || !claimed(r)) {
		// An earlier command may run yet, also when the next period is due.
		c.background(func() { _ = c.undoLate(ctx, voidTime) })
	}
	switch {
	case err != nil:
		return false, err
	case r.Code == codeBusy:
		return false, c.busy(r.Str(2), kind.Remaining(r.Int(1)))
	case r.Code == codeVoid:
		return false, c.unavailable(opClaim, errVoid)
	case !claimed(r):
		return false, nil
	case c.cs.acks > 0 && r.Acked < c.cs.acks:
		return false, c.giveBack(ctx, &lock.ReplicaAcksError{Name: c.name, Want: c.cs.acks, Got: r.Acked, Err: r.Waits})
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
	return &lock.NotAcquiredError{Name: c.name, Holder: holder, Remaining: remaining, Own: strings.HasPrefix(holder, c.cs.id+":")}
}

// giveBack undoes a claim that was granted, since fn can't be called because of why. It adds what
// went wrong with that: then nobody knows whether the period has a run. It waits until ctx ends or
// UnlockTimeout has passed; the undoing goes on.
func (c *claim) giveBack(ctx context.Context, why error) error {
	limit := time.NewTimer(c.cs.unlockTimeout)
	defer limit.Stop()
	undone := make(chan error, 1)
	c.background(func() { undone <- c.undoLate(ctx, 0) })
	select {
	case err := <-undone:
		if err != nil {
			return because(why, err)
		}
	case <-ctx.Done():
	case <-c.cs.closing:
	case <-limit.C:
		return because(why, c.unavailable(opGiveBack, errSilent))
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

// forget undoes the last claim, whoever's it is. The server deletes the record that it has told
// and no other: a command that comes late can't touch that of a later run.
func (c *claim) forget(ctx context.Context) (bool, error) {
	limit := time.NewTimer(c.cs.unlockTimeout)
	defer limit.Stop()
	record := ""
	for {
		r, unsure, err := c.ask(ctx, opReset, func(time.Duration) conn.Command {
			return conn.Command{Script: luascript.OnceReset, Keys: []string{luascript.OnceKey(c.key)}, Args: []string{record}}
		}, limit.C, nil)
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
	c.cs.wg.Add(1)
	go func() { // ends with f
		defer c.cs.wg.Done()
		f()
	}()
}

// longSilence is for how many periods a server that does not answer is asked to give back what a late command may claim.
const longSilence = 3

// undoLate repeats the undoing until it is answered, the period has passed or the
// Client has been closed for UnlockTimeout. void is how long the server must refuse commands
// of the claim that come late: one that it does not answer about may claim a period when it goes on.
func (c *claim) undoLate(ctx context.Context, void time.Duration) error {
	began := time.Now()
	end := began.Add(c.period)
	retry := held.NewRetry()
	for {
		_, err := c.cs.run.Run(context.WithoutCancel(ctx), c.undo(void))
		if err == nil {
			return nil
		}
		if !conn.Classify(err).Transient() {
			return &lock.ServerError{Name: c.name, Op: opGiveBack, Err: err}
		}
		if now := time.Now(); void > 0 && conn.Classify(err) != conn.Refused && now.Sub(began) < longSilence*c.period {
			end = now.Add(c.period)
		}
		pause := retry.NextBackOff()
		if time.Now().Add(pause).After(end) {
			return c.unavailable(opGiveBack, err)
		}
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-c.cs.over:
			timer.Stop()
			return lock.ErrClosed
		}
	}
}

// answer is what a command came to.
type answer struct {
	reply conn.Reply
	err   error
}

var (
	errSilent = errors.New("no answer")
	errVoid   = errors.New("the server had marked this claim as given up")
	errStale  = errors.New("the lock was granted when the next run was due")
)

// ask sends what cmd builds until it is answered, ctx ends, limit fires or the Client closes. cmd
// is told for how long earlier commands must be refused: 0 unless one may run late. When the
// caller leaves while a command is under way, late gets the outcome, in the background.
// unsure: a command that failed may have run, or may run yet.
func (c *claim) ask(
	ctx context.Context, op string, cmd func(void time.Duration) conn.Command, limit <-chan time.Time, late func(a answer, unsure bool),
) (r conn.Reply, unsure bool, err error) {
	var last error // the last failure
	retry := held.NewRetry()
	void := time.Duration(0)
	for {
		if ctx.Err() != nil {
			return r, unsure, c.ended(ctx, op, last)
		}
		sent, one := time.Now(), cmd(void)
		if !unsure {
			c.since = sent
		}
		outcome := make(chan answer, 1)
		go func() { // ends with the answer, or with the connection
			r, err := c.cs.run.Run(context.WithoutCancel(ctx), one)
			outcome <- answer{r, err}
		}()
		leave := func(err error) (conn.Reply, bool, error) {
			was := unsure
			c.background(func() { // ends with the command, and what late does
				if a := <-outcome; late != nil {
					late(a, was)
				}
			})
			return conn.Reply{}, false, err // the undoing is late's
		}
		select {
		case a := <-outcome:
			if a.err == nil {
				if a.reply.Code == codeClaimed {
					c.since = sent // those before it claimed nothing
				}
				return a.reply, unsure, nil
			}
			last = a.err
		case <-ctx.Done():
			if time.Since(sent) > silence {
				last = errSilent
			}
			return leave(c.ended(ctx, op, last))
		case <-limit:
			return leave(c.unavailable(op, cmp.Or(last, errSilent)))
		case <-c.cs.closing:
			return leave(lock.ErrClosed)
		}

		class := conn.Classify(last)
		if !class.Transient() {
			return r, unsure, &lock.ServerError{Name: c.name, Op: op, Err: last}
		}
		if class == conn.Ambiguous {
			unsure, void = true, voidTime
		}
		pause := time.NewTimer(retry.NextBackOff())
		select {
		case <-pause.C:
		case <-ctx.Done():
			pause.Stop()
		case <-limit:
			pause.Stop()
			return r, unsure, c.unavailable(op, last)
		case <-c.cs.closing:
			pause.Stop()
			return r, unsure, lock.ErrClosed
		}
	}
}

// What is tried, for errors.
const (
	opClaim    = "claim"
	opGiveBack = "give back"
	opReset    = "reset"
)

func (c *claim) unavailable(op string, cause error) *lock.UnavailableError {
	return &lock.UnavailableError{Name: c.name, Op: op, Nodes: []lock.NodeError{{Node: c.cs.addr, Err: cause}}}
}

// ended is the error of a call whose ctx is over; last is the last failure.
func (c *claim) ended(ctx context.Context, op string, last error) error {
	err := ctx.Err()
	if op != opClaim {
		return c.unavailable(op, lock.Join(err, last))
	}
	if last != nil {
		err = lock.Join(err, c.unavailable(op, last))
	}
	return &lock.NotAcquiredError{Name: c.name, Err: err}
}
