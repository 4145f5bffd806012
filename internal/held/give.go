package held

import (
	"context"
	"strconv"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/sender"
	"github.com/redlatch/redlatch/lock"
)

// giving is the one path on which anything is given back: it takes the answers,
// classifies each part's, and tries again what was refused for the moment.
type giving struct {
	reg   *Registry
	ctx   context.Context // for its values
	rel   *Releasing      // nil: nobody waits any more
	holds int             // of rel, that have no result yet
	apart bool            // each part has a command of its own from now on
	retry *backoff.ExponentialBackOff
	since time.Time     // when it began
	late  time.Duration // what a late command takes lasts so long at most; 0: that does not matter
}

// run goes on with parts, whose gates are ours, after an answer, until each is
// decided. It leaves the gates.
func (g *giving) run(parts []part, reply conn.Reply, err error) {
	left, why := g.settle(parts, reply, err)
	for len(left) > 0 {
		if conn.IsTryAgain(why) {
			// A cluster moves the slot, and some of the keys have moved.
			g.apart = true
			for i := range left {
				g.split(&left[i])
			}
		}
		if why != nil && !g.pause(left, why) {
			for i := range left {
				g.giveUp(&left[i], g.reg.unavailable(left[i].lock.Name, "release", why))
			}
			return
		}
		left, why = g.again(left)
	}
}

// again sends what is left once more.
func (g *giving) again(parts []part) (left []part, why error) {
	step := len(parts)
	if g.apart {
		step = 1
	}
	for ; len(parts) > 0; parts = parts[step:] {
		reply, err := g.reg.send.Run(g.ctx, sender.Keep, commandOf(parts[:step]))
		some, err := g.settle(parts[:step], reply, err)
		left = append(left, some...)
		if why == nil || conn.IsTryAgain(err) {
			why = err
		}
	}
	return left, why
}

// told notes that one of the holds has its result: with that of the last one the caller's
// wait is over.
func (g *giving) told() {
	if g.holds--; g.holds == 0 {
		g.rel.end()
		g.rel = nil
	}
}

// longSilence is for how many leases a server that does not answer is asked to give back what a late command may take.
// Each that was given up meanwhile is a goroutine: 130 a second where 2,000 are.
const longSilence = 3

// pause waits before what was refused is tried again; false: there is no time for that. A server that stands still may
// have a late command, an attempt or the refresh of a place, and run it when it goes on: the lease begins then.
func (g *giving) pause(parts []part, why error) bool {
	if g.retry == nil {
		g.retry = NewRetry()
	}
	var until time.Time
	for i := range parts {
		until = lease.Later(until, parts[i].ends())
	}
	return g.reg.SleepLate(WhileSilent(until, g.since, g.late, why), g.retry.NextBackOff())
}

// WhileSilent is until when to ask a server to give something back, which failed with why: later than until if it may
// have a late command, whose work lasts for late, and has not answered since began.
func WhileSilent(until, began time.Time, late time.Duration, why error) time.Time {
	if now := time.Now(); conn.Classify(why) != conn.Refused && now.Sub(began) < longSilence*late {
		return lease.Later(until, now.Add(late))
	}
	return until
}

// ends is when what the part may have left on the server has run out by itself. Of an ended session nobody
// knows while a renewal has no answer: that is looked at again before the next pause.
func (p *part) ends() time.Time {
	if p.ended == nil {
		return p.until
	}
	r := p.ended.reg
	r.mu.Lock()
	defer r.mu.Unlock()
	if p.ended.inFlight > 0 {
		return time.Now().Add(time.Hour)
	}
	return p.ended.askedUntilLocked()
}

// settle ends the parts that the answer decides, and returns the others with the
// reason: none if they are to be freed at once.
func (g *giving) settle(parts []part, reply conn.Reply, err error) (left []part, why error) {
	if err == nil && len(parts) > 1 && len(reply.Vals) < 2*len(parts) {
		err = conn.ErrShortReply
	}
	for i := range parts {
		p, code, text, failed := parts[i], reply.Code, reply.Str(1), err
		if err == nil && len(parts) > 1 {
			code, text = reply.Int(2*i), reply.Str(2*i+1)
		}
		var called, heard int64
		switch {
		case code != kind.ReleaseDone:
		case len(parts) == 1:
			called, heard = reply.Int(1), reply.Int(2)
		case text != "": // else it has called nobody
			called, _ = strconv.ParseInt(text, 10, 64)
		}
		if failed == nil && code == kind.ReleaseRefused {
			failed = conn.RefusalOf(commandOf(parts), text)
		}
		decided := true
		switch {
		case failed == nil:
			decided = g.decided(&p, code, text, called, heard)
		case conn.IsPermanent(err) && len(parts) > 1: // of one of them, perhaps
			g.apart = true
			left, why = append(left, p), failed
		case conn.IsPermanent(failed):
			g.giveUp(&p, &lock.ServerError{Name: p.lock.Name, Op: "release", Err: failed})
		case p.count > 0 && conn.Classify(failed) == conn.Refused:
			// Nothing but a number was to be written, and the next release corrects it.
			decided = g.decided(&p, kind.ReleaseDone, "", 0, 0)
		default:
			p.ambiguous = p.ambiguous || conn.Classify(failed) == conn.Ambiguous
			left, why = append(left, p), failed
		}
		if !decided {
			left = append(left, p)
		}
	}
	return left, why
}

// decided ends a part that the server has answered for. It reports false if the lock is to
// be freed now; see released.
func (g *giving) decided(p *part, code int64, text string, called, heard int64) bool {
	if code == kind.ReleaseSilent {
		cfg, ctx, name, owner := &g.reg.cfg, g.ctx, p.lock.Name, p.field.Name
		why := conn.RefusalOf(commandOf([]part{*p}), text)
		cfg.News.Tell(func() {
			cfg.Log.WarnContext(ctx, "redlatch: released, but the next one was not told: waiters go on by themselves",
				"lock", name, "owner", owner, "error", why)
		})
	}
	p.tellReleased(g.reg, called, heard)
	switch {
	case p.hold == nil:
		p.leave()
		return true
	case code == kind.ReleaseGone && (!p.ambiguous || p.count > 0):
		// An earlier try may have ended the session, but only if it was to.
		g.rel.errs[p.index] = p.releaseLost()
		if p.count > 0 && g.reg.Begin() == nil { // a kind may have left more than its field
			g.reg.freeLeft(p.hold)
		}
	default:
		if !p.released() {
			return false
		}
	}
	p.leave()
	g.told()
	return true
}

// giveUp ends a part that can't be given back.
func (g *giving) giveUp(p *part, err error) {
	if p.hold != nil {
		g.rel.errs[p.index] = p.abandoned(err)
		p.leave()
		g.told()
		return
	}
	p.leave()
	cfg, ctx, l, owner := &g.reg.cfg, g.ctx, p.lock, p.field.Name
	cfg.News.Tell(func() {
		cfg.Log.WarnContext(ctx, "redlatch: giving back failed", "lock", l.Name, "owner", owner,
			"type", l.Kind.Traits().Type, "error", err)
	})
}

// split frees a lock by a command of one key, where a cluster refuses those of
// several. The part is nobody's then, and the whole command follows: that is not the
// caller's to wait for, nor another command's, since the field is gone and never used again.
func (g *giving) split(p *part) {
	splitter, ok := p.lock.Kind.(kind.Splitter)
	if !ok || p.hold == nil {
		return
	}
	reply, err := g.reg.send.Run(g.ctx, sender.Keep, splitter.ReleaseSplit(p.field, p.count))
	switch {
	case err != nil:
		p.ambiguous = p.ambiguous || conn.Classify(err) == conn.Ambiguous
		return
	case reply.Code == kind.ReleaseGone && (!p.ambiguous || p.count > 0):
		g.rel.errs[p.index] = p.releaseLost()
	case !p.released():
		return
	}
	p.tellReleased(g.reg, 0, 0)
	p.hold = nil
	p.leave()
	g.told()
}

// leave leaves the part's gate, once.
func (p *part) leave() {
	if !p.gateLeft {
		p.gateLeft = true
		p.claim.Gate.Leave()
	}
}

// Leftover is what an acquisition that was given up may have left on the server:
// a grant or a place, of one attempt. Its claim is retained for it.
type Leftover struct {
	Lock    *Lock
	Claim   *Claim
	Attempt *kind.Attempt
}

// lasts is for how long it stands on the server at most, if nobody takes it back.
func (l *Leftover) lasts() time.Duration {
	if q, ok := l.Lock.Kind.(kind.Queuer); ok && l.Attempt.Wait != 0 {
		return max(l.Attempt.Lease, kind.PlaceLives*q.Every())
	}
	return l.Attempt.Lease
}

// Undo takes back, in the background, what an acquisition may have left, until
// the server has answered or a grant, or a place, would have ended by itself; while the server is silent, for three
// times as long. void > 0 makes the server refuse late commands. entered says that the gates are the caller's;
// Undo leaves them. done, if not nil, is called at the end. The caller has called
// Begin for what is still under way.
func (r *Registry) Undo(ctx context.Context, all []Leftover, void time.Duration, entered bool, done func()) {
	parts, late := make([]part, len(all)), time.Duration(0)
	for i, l := range all {
		lasts := l.lasts()
		parts[i] = part{
			lock: l.Lock, claim: l.Claim, field: l.Attempt.Named(), attempt: l.Attempt, void: void,
			until: time.Now().Add(lasts),
		}
		late = max(late, lasts)
	}
	r.wg.Add(1)
	r.give(ctx, parts, late, entered, done)
}

// freeLeft gives back, in the background, what an ended session had asked for
// beyond the leases of its holds. Whoever found that out has counted it in.
func (r *Registry) freeLeft(h *Hold) {
	s := h.session
	h.claim.Retain()
	r.mu.Lock()
	p := part{lock: s.Lock, claim: h.claim, field: s.Field, ended: s}
	if s.mayArrive > 0 {
		p.void = VoidTTL
	}
	r.mu.Unlock()
	r.give(context.WithoutCancel(h.parent), []part{p}, 0, false, nil)
}

func (r *Registry) give(ctx context.Context, parts []part, late time.Duration, entered bool, done func()) {
	go func() { // ends with the server's answer, the lease, or a long silence
		defer r.wg.Done()
		if done != nil {
			defer done()
		}
		defer func() {
			for i := range parts {
				parts[i].claim.Release()
			}
		}()
		if !entered {
			for i := range parts {
				if !parts[i].claim.Gate.Enter(context.Background(), r.closedLate) {
					for j := range i {
						parts[j].claim.Gate.Leave()
					}
					return
				}
			}
		}
		g := giving{reg: r, ctx: ctx, since: time.Now(), late: late}
		reply, err := r.send.Run(ctx, sender.Keep, commandOf(parts))
		g.run(append([]part(nil), parts...), reply, err)
	}()
}
