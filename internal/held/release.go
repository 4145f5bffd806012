package held

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// VoidTTL is how long the server refuses late commands of an acquisition that
// was given up, or released, while some of its commands had no answer. What is
// left of them is in the server's own buffers: connections that are closed
// discard what they have not sent.
const VoidTTL = 5 * time.Second

// part is one thing that is given back: a hold, or what an acquisition may have
// left on the server.
type part struct {
	lock      *Lock
	claim     *Claim
	field     kind.Field
	attempt   *kind.Attempt // what it may have left; nil: a session
	hold      *Hold         // nil: nobody waits for the result
	ended     *Session      // what its holds left is given back; nil: until is known
	rel       *Releasing    // of the hold
	ctx       *holdContext  // of the hold, if it has one when its release begins
	index     int           // of the hold in its Releasing
	count     int           // to reach
	void      time.Duration
	until     time.Time // after it the lease has run out by itself
	ambiguous bool      // an earlier try may have worked
	gateLeft  bool      // its gate was left
	listed    string    // as its command says; see kind.Field
	args      [8]string // of its command; a copy's commands have their own
}

func (p *part) command() conn.Command {
	if p.attempt != nil {
		return p.lock.Kind.Abandon(p.attempt, p.void)
	}
	f := p.field
	if p.hold != nil && p.count == 0 && p.lock.Calls != "" && p.hold.session.reg.cfg.Listed != nil {
		p.listed = p.hold.session.reg.cfg.Listed(p.lock)
	}
	f.Listed = p.listed
	f.Room = &p.args
	return p.lock.Kind.Release(f, p.count, p.void)
}

// tellReleased tells those who wait in this process what the last release came to: called and
// heard are 0 if that is not known.
func (p *part) tellReleased(r *Registry, called, heard int64) {
	if p.count == 0 && p.lock.Calls != "" && r.cfg.Released != nil {
		r.cfg.Released(p.lock, called, heard, p.listed == "1")
	}
}

// commandOf frees all parts at once.
func commandOf(parts []part) conn.Command {
	if len(parts) == 1 {
		return parts[0].command()
	}
	group, ok := parts[0].lock.Kind.(kind.Group)
	if !ok {
		panic("redlatch: several locks of a kind that can't be released together")
	}
	cmds := make([]conn.Command, len(parts))
	for i := range parts {
		cmds[i] = parts[i].command()
	}
	return group.ReleaseAll(cmds)
}

// Releasing is an unlock under way, of one hold or of several that can be freed
// by one command.
type Releasing struct {
	reg     *Registry
	holds   []*Hold
	errs    []error       // per hold
	ended   []string      // per hold: how it ended, if this release found or made the end
	done    chan struct{} // gets a value when all have an answer
	ends    []observe.End // of the observations; nil: nobody looks
	notify  chan<- *Releasing
	over    bool
	unseen  bool         // an observer hears nothing of the operation
	inGates bool         // the gates are ours, and the parts prepared
	unheard bool         // guarded by reg.mu; nobody hears the result
	teller  atomic.Int32 // who tells an observer of the end

	values context.Context // the caller's, or that with an observer's span: for what it carries
	call   sender.Call
	then   func(*sender.Call) // answered, kept when it is used again
	limit  *time.Timer        // of the Unlock before, kept if it did not fire
	parts  []part

	// most unlocks are of one hold
	one struct {
		holds [1]*Hold
		errs  [1]error
		ended [1]string
		ends  [1]observe.End
		parts [1]part
	}
}

// Unlock implements lock.Hold.
func (h *Hold) Unlock(ctx context.Context) error {
	r := h.session.reg
	rel, ok := r.releases.Get().(*Releasing)
	if !ok {
		rel = &Releasing{}
	}
	rel.one.holds[0] = h
	rel.begin(ctx, r, rel.one.holds[:], nil)
	select {
	case <-rel.done: // passed on, most likely
		rel.heard()
		return rel.again()
	default:
	}
	limit := rel.limit
	if rel.limit = nil; limit == nil {
		limit = time.NewTimer(r.cfg.UnlockTimeout)
	} else {
		limit.Reset(r.cfg.UnlockTimeout)
	}
	if !rel.await(limit.C) {
		return rel.GiveUp()[0]
	}
	if limit.Stop() { // else its tick may be on its way, where GODEBUG=asynctimerchan=1 says so
		rel.limit = limit
	}
	return rel.again()
}

// await blocks until the answer is there; false: limit came first, and the Unlock gives up.
func (rel *Releasing) await(limit <-chan time.Time) bool {
	select {
	case <-rel.done: // also where the time is over
	default:
		select {
		case <-rel.done:
		case <-limit:
			if rel.leave() {
				return false
			}
			<-rel.done // the answer is there after all
		}
	}
	rel.heard()
	return true
}

// again keeps a Releasing of one hold for another Unlock, and returns what came of it.
// Its end was received, so whoever was at it is through with it: end tells last of all,
// and what goes on after it has copies (see rest).
func (rel *Releasing) again() error {
	r, err := rel.reg, rel.errs[0]
	*rel = Releasing{then: rel.then, done: rel.done, limit: rel.limit}
	r.releases.Put(rel)
	return err
}

// Release begins to unlock holds of one client that can be freed by one command,
// and returns at once: their contexts have ended then. It goes on in the
// background until the server has answered or the leases have run out, and then
// tells notify (with room for it), unless that is nil. An observer hears of the end in the
// background.
func Release(ctx context.Context, holds []*Hold, notify chan<- *Releasing) *Releasing {
	rel := &Releasing{}
	rel.teller.Store(tellsOther)
	rel.begin(ctx, holds[0].session.reg, holds, notify)
	return rel
}

// ReleaseAll is Release for one who calls Wait: an observer hears of the end there.
func ReleaseAll(ctx context.Context, holds []*Hold) *Releasing {
	rel := &Releasing{}
	rel.begin(ctx, holds[0].session.reg, holds, nil)
	return rel
}

// Drop releases the hold in the background, for one who can't: an observer hears only that it
// has ended.
func (h *Hold) Drop() {
	rel := &Releasing{unseen: true}
	rel.one.holds[0] = h
	rel.teller.Store(tellsOther)
	rel.begin(context.Background(), h.session.reg, rel.one.holds[:], nil)
}

// begin marks the holds, ends their contexts and sends the first command.
func (rel *Releasing) begin(ctx context.Context, r *Registry, holds []*Hold, notify chan<- *Releasing) {
	rel.reg, rel.holds, rel.notify = r, holds, notify
	if ctx == nil {
		ctx = context.Background() // only its values are used: what would be refused must be released first
	}
	if rel.done == nil {
		rel.done = make(chan struct{}, 1)
	}
	rel.ended = rel.one.ended[:]
	rel.errs, rel.parts = rel.one.errs[:], rel.one.parts[:0]
	if n := len(holds); n > 1 {
		rel.errs, rel.ended, rel.parts = make([]error, n), make([]string, n), make([]part, 0, n)
	}
	rel.values = ctx
	var lost []*Hold
	todo := 0
	r.mu.Lock()
	closed := r.closed
	now := time.Now()
	for i, h := range holds {
		if closed {
			if rel.errs[i] = lock.ErrClosed; h.state == stateLost || h.state == stateReleased {
				_, rel.errs[i] = h.releasingLocked() // Close changes nothing for what had ended before
			}
			continue
		}
		lost = append(lost, r.expireLocked(h.session, now)...)
		if over, err := h.releasingLocked(); over {
			rel.errs[i] = err
			continue
		}
		rel.parts = append(rel.parts, part{lock: h.session.Lock, claim: h.claim, field: h.session.Field, hold: h, rel: rel, ctx: h.ctx, index: i})
		todo++
	}
	if !closed {
		r.wg.Add(1)
	}
	r.mu.Unlock()
	r.tellBut(lost, rel)
	for i := range rel.parts {
		if ctx := rel.parts[i].ctx; ctx != nil {
			ctx.cancel(lock.ErrUnlocked) // one that is asked for from now on ends by itself
			defer rel.forget(ctx)
		}
	}
	if r.cfg.Observer != nil && !rel.unseen { // its code may panic, which must cost no more than this call
		begun := false
		defer func() {
			if !begun {
				rel.goOn(closed, todo)
			}
		}()
		rel.observe(ctx)
		rel.send(closed, todo)
		begun = true
		return
	}
	rel.send(closed, todo)
}

// forget is ctx.forget, which may ask a ctx of the user's: if that panics, nobody waits for the end of the Unlock.
func (rel *Releasing) forget(ctx *holdContext) {
	forgotten := false
	defer func() {
		if !forgotten && rel.reg.cfg.Observer != nil && !rel.leave() {
			rel.teller.Store(tellsOther)
			rel.reg.cfg.News.Tell(rel.tell)
		}
	}()
	ctx.forget()
	forgotten = true
}

// goOn releases in the background what an observer's panic left: its holds have ended.
func (rel *Releasing) goOn(closed bool, todo int) {
	rel.values, rel.ends = context.Background(), nil
	rel.teller.Store(tellsOther)
	if closed || todo == 0 {
		rel.send(closed, todo)
		return
	}
	rel.reg.wg.Add(1)
	go func() { // ends as slow does
		defer rel.reg.wg.Done()
		if rel.inGates {
			rel.run()
		} else {
			rel.slow()
		}
	}()
}

// send sends the first command, if one is to be sent, or passes the lock on.
func (rel *Releasing) send(closed bool, todo int) {
	r := rel.reg
	switch {
	case closed:
		rel.signal()
	case todo == 0:
		rel.end()
	case !rel.enterNow():
		r.wg.Add(1)
		go func() { // ends with the answer, or when the leases have run out by themselves
			defer r.wg.Done()
			rel.slow()
		}()
	case todo == 1 && r.passOn(rel.parts[0].hold):
		rel.ended[rel.parts[0].index] = "released"
		rel.parts[0].claim.Gate.Leave()
		rel.end()
	default:
		rel.first()
	}
}

// enterNow takes all gates if they are free.
func (rel *Releasing) enterNow() bool {
	for i := range rel.parts {
		if !rel.parts[i].claim.Gate.TryEnter() {
			for j := range i {
				rel.parts[j].claim.Gate.Leave()
			}
			return false
		}
	}
	return true
}

// first sends the first command. The gates are ours.
func (rel *Releasing) first() {
	if rel.prepare(); len(rel.parts) == 0 {
		rel.end()
		return
	}
	if rel.then == nil {
		rel.then = rel.answered
	}
	rel.call = sender.Call{Cmd: commandOf(rel.parts), Class: sender.Keep, Ctx: rel.reg.send.Values(rel.values), Then: rel.then, Own: true}
	rel.inGates = true
	rel.reg.send.Start(&rel.call)
}

// answered takes the answer to the first command, in a goroutine of the sender's:
// what is more than noting the success is done in another one.
func (rel *Releasing) answered(c *sender.Call) {
	if c.Err == nil && len(rel.parts) == 1 && c.Reply.Code == kind.ReleaseDone {
		p := &rel.parts[0]
		p.tellReleased(rel.reg, c.Reply.Int(1), c.Reply.Int(2))
		if p.released() {
			p.claim.Gate.Leave()
			rel.end()
			return
		}
		rel.reg.wg.Add(1)
		go func() { // ends as slow does
			defer rel.reg.wg.Done()
			rel.run()
		}()
		return
	}
	rel.reg.wg.Add(1)
	go func() { // ends as slow does
		defer rel.reg.wg.Done()
		rel.rest(c.Reply, c.Err)
	}()
}

// slow waits for the gates and goes on from there.
func (rel *Releasing) slow() {
	entered := rel.parts[:0]
	for _, p := range rel.parts {
		if p.claim.Gate.Enter(context.Background(), rel.reg.closedLate) {
			entered = append(entered, p)
		} else {
			rel.errs[p.index] = p.abandoned(lock.ErrClosed)
		}
	}
	rel.parts = entered
	if rel.prepare(); len(rel.parts) == 0 {
		rel.end()
		return
	}
	rel.run()
}

// run sends a command and goes on until everything is decided.
func (rel *Releasing) run() {
	reply, err := rel.reg.send.Run(rel.reg.send.Values(rel.values), sender.Keep, commandOf(rel.parts))
	rel.rest(reply, err)
}

// prepare says what each part comes to, now that its gate is ours.
func (rel *Releasing) prepare() {
	r := rel.reg
	var lost []*Hold
	var gone []*Claim
	left := rel.parts[:0]
	r.mu.Lock()
	now := time.Now()
	for _, p := range rel.parts {
		h, s := p.hold, p.hold.session
		lost = append(lost, r.expireLocked(s, now)...) // waiting for the gate may have taken long
		if h.state != stateReleasing {
			// another Unlock, a loss or Close came first
			if !rel.unheard { // else the next Unlock tells what came of it
				if over, err := h.releasingLocked(); over {
					rel.errs[p.index] = err
				}
			}
			p.claim.Gate.Leave()
			continue
		}
		p.count, p.until = s.countLocked(h), h.deadlineLocked()
		if p.count > 0 && s.joined != nil && r.freshLocked(s) {
			h.outlastedLocked()
			rel.ended[p.index] = "released"
			gone = append(gone, p.claim)
			p.claim.Gate.Leave()
			continue
		}
		if p.count == 0 {
			p.lastLocked(s)
		}
		left = append(left, p)
	}
	rel.parts = left
	r.mu.Unlock()
	for _, c := range gone {
		c.Release()
	}
	r.tellBut(lost, rel)
}

// rest takes an answer and goes on until everything is decided.
func (rel *Releasing) rest(reply conn.Reply, err error) {
	// Copies: once the caller has its result, rel may be used again.
	g := giving{reg: rel.reg, ctx: context.WithoutCancel(rel.values), rel: rel, holds: len(rel.parts)}
	g.run(append([]part(nil), rel.parts...), reply, err)
}

// end tells what came of it, once.
func (rel *Releasing) end() {
	if rel.over {
		return
	}
	rel.over = true
	rel.reg.wg.Done()
	rel.signal()
}

// signal says that all is over. What an observer hears of it the Unlock tells that waits; if
// none does, it is told in the background.
func (rel *Releasing) signal() {
	r := rel.reg
	if r.cfg.Observer != nil && !rel.teller.CompareAndSwap(tellsUnlock, toldInTime) {
		r.cfg.News.Tell(rel.tell)
	}
	notify := rel.notify
	rel.done <- struct{}{} // from here on it may be used again, unless it notifies
	if notify != nil {
		notify <- rel
	}
}

// Errs are the results, nil or one per hold, of a Releasing that was notified of.
func (rel *Releasing) Errs() []error { return rel.errs }

// Wait blocks until the answer is there, but no longer than the client's UnlockTimeout
// from began on, and returns one error, or nil, per hold; those without an answer get
// lock.ErrUnavailable.
func (rel *Releasing) Wait(began time.Time) []error {
	limit := time.NewTimer(time.Until(began.Add(rel.reg.cfg.UnlockTimeout)))
	defer limit.Stop()
	if !rel.await(limit.C) {
		return rel.GiveUp()
	}
	return rel.errs
}

// GiveUp stops waiting for the answer: another Unlock of the holds gets what came of
// this one.
func (rel *Releasing) GiveUp() []error {
	r := rel.reg
	out := make([]error, len(rel.holds))
	r.mu.Lock()
	defer r.mu.Unlock()
	rel.unheard = true
	for i, h := range rel.holds {
		h.unlockLeft = true
		out[i] = r.unavailable(h.session.Lock.Name, "release", fmt.Errorf("%w of %v", ErrNoAnswer, r.cfg.UnlockTimeout))
	}
	return out
}
