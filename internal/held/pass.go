package held

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// Passing a lock on: while others of this process wait for a lock, an unlock gives
// the session to the next of them, without a command. The field on the server goes
// on naming the one who took it; who has it inside the process changes.

// Receiver is who gets a session.
type Receiver struct {
	Claim *Claim
	Ctx   context.Context
	Link  any // the observer's, of its acquisition
	Count bool
}

// passOn offers a session whose only hold is being released to the waiters of this
// process. The gate is ours, and the hold's context has ended.
func (r *Registry) passOn(h *Hold) bool {
	return r.cfg.PassOn != nil && r.cfg.PassOn(h)
}

// Pass gives the session of h, which is being released, to whom offer chooses, at
// most tenure after the sending of the last answered command about it, and after this
// process got it: else the re-entries of its holders would keep the others out. offer is
// called under the registry's mutex with what makes the receiver's
// hold; it returns false when nobody takes it. late says that the time was over. It is that of now, not of the
// Unlock's beginning: code of the user's may have run since.
//
// Nothing is passed on that is not exactly what a new acquisition would get: an
// unfenced lock kept by the watchdog, with one hold, confirmed, of a client that
// takes new sessions, to a receiver whose gate is free and who wants the same. If the first of
// the line wants something else, it is not skipped: the lock is released for it.
//
// After a move to another server, a broken connection or a temporary refusal (a restart, a demotion) it needs an answer
// to a newer command. The client keeps one instant for that (sender.Sender.Broke), not one per node: the key may move
// meanwhile. Each connection that redlatch dialled notes when it ends, and the table of slots when it changes.
func (r *Registry) Pass(h *Hold, tenure time.Duration, offer func(Giver) bool) (passed, late bool) {
	s := h.session
	r.mu.Lock()
	now := time.Now()
	switch {
	case !r.freshLocked(s):
		r.mu.Unlock()
		return false, false
	case r.drains || s.over || h.state != stateReleasing || len(s.holds) != 1 || h.lease > 0,
		s.mayArrive > 0 || s.grant != nil || s.token != 0 || s.releaseSent || lease.Passed(now, s.until),
		s.leaseStaysLocked(now.Add(r.cfg.LeaseTime)): // the server keeps it for longer than the receiver asked for
		r.mu.Unlock()
		return false, false
	case lease.Passed(now, s.answeredAt.Add(tenure)), now.Sub(r.epoch)-s.tenure >= tenure:
		late = s.passes > 0
		r.mu.Unlock()
		return false, late
	}
	passed = offer(Giver{h, now})
	if passed {
		s.claim.tellWatchersLocked() // fellows of the receiver may re-enter
	}
	r.mu.Unlock()
	if passed {
		h.claim.Release()
	}
	return passed, false
}

// unheard is for how long a command without an answer may still run, if it takes a
// lock away.
const unheard = 2 * VoidTTL

// doubt is about a key that commands of this client take away from whoever has it.
type doubt struct {
	asked int       // how many have no answer yet
	until time.Time // until then nothing is known, whatever is answered
}

// Doubt is called before a command of this client that takes a lock away from whoever
// has it, and the function that it returns after the answer: what was known of the
// lock before is no reason to pass it on. Several may run side by side. ours says that holds of
// this client were, or may have been, among those that it ended: they are checked at once.
func (r *Registry) Doubt(key string) (over func(answered, ours bool)) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.pruneDoubtsLocked(time.Now())
	d := r.doubts[key]
	if d == nil {
		d = &doubt{}
		if r.doubts == nil {
			r.doubts = map[string]*doubt{}
		}
		r.doubts[key] = d
	}
	d.asked++
	return func(answered, ours bool) {
		r.mu.Lock()
		defer r.mu.Unlock()
		now := time.Now()
		until := now
		if !answered {
			until = until.Add(unheard)
		}
		d.asked--
		d.until = lease.Later(d.until, until)
		if ours {
			r.dog.suspectLocked(key, lock.ModeNone, now)
		}
	}
}

// ManyHeld is among how many sessions those of a key are looked for where somebody waits.
const ManyHeld = 4096

// Suspect has the sessions of a key, but for those in a mode, checked at once: somebody of this client waits for it, or
// has got it. It reports whether there are any. A client that holds more locks than most does not know: all of them
// would be looked through.
func (r *Registry) Suspect(key string, but lock.Mode, most int) (held bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.dog.heap.Len() > most {
		return false
	}
	return r.dog.suspectLocked(key, but, time.Now())
}

// pruneDoubtsLocked forgets doubts that are no reason any more. Whoever takes away thousands
// of locks does not walk through all of them each time.
func (r *Registry) pruneDoubtsLocked(now time.Time) {
	past := now.Add(-r.cfg.LeaseTime) // more than any tenure
	if !r.pruned.Before(past) {
		return
	}
	r.pruned = now
	for k, d := range r.doubts {
		if d.asked == 0 && d.until.Before(past) {
			delete(r.doubts, k)
		}
	}
}

// freshLocked reports whether nothing has happened since the last answer about the
// session after which the lock may be somebody else's.
func (r *Registry) freshLocked(s *Session) bool { return r.freshSinceLocked(s.Lock.Key, s.answeredAt) }

// Fresh reports whether nothing has happened since an instant after which what a command that was
// sent then was told of a key may not hold any more: a connection that broke, a move of the keys, a
// lock taken away by this client.
func (r *Registry) Fresh(key string, sent time.Time) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.freshSinceLocked(key, sent)
}

func (r *Registry) freshSinceLocked(key string, sent time.Time) bool {
	return !r.doubtedLocked(key, sent) && sent.After(r.send.Broke()) && !sent.Before(r.dog.movedAt)
}

// doubtedLocked reports whether this client may have taken a lock away since an instant.
func (r *Registry) doubtedLocked(key string, sent time.Time) bool {
	d := r.doubts[key]
	return d != nil && (d.asked > 0 || !sent.After(d.until))
}

// Giver makes the hold of whoever gets the session of the one that is being released. It
// works within the call of Pass that offers it.
type Giver struct {
	from *Hold
	now  time.Time
}

// To makes the session the receiver's; nil: it can't take it.
func (g Giver) To(to Receiver) *Hold {
	from, s := g.from, g.from.session
	r := s.reg
	i := modeIndex(s.Lock.Kind.Traits().Mode)
	if to.Claim.sessions[i] != nil || !to.Claim.Gate.TryEnter() {
		return nil // it, or another acquisition of its owner, has a command under way
	}
	defer to.Claim.Gate.Leave()
	to.Claim.retainLocked()
	h := &Hold{}
	s.claim, s.link = to.Claim, to.Link
	s.addLocked(to.Ctx, h, to.Claim, 0, g.now, to.Count)
	s.removeLocked(from)
	from.endLocked(stateReleased, lock.ErrUnlocked)
	if from.claim.sessions[i] == s {
		from.claim.sessions[i] = nil
	}
	to.Claim.sessions[i] = s
	s.passes++
	r.dog.scheduleLocked(s, time.Time{})
	return h
}

// TakePassed takes a hold from where a giver put it; lost reports whether it is over by now,
// as far as is known.
func (r *Registry) TakePassed(at **Hold) (h *Hold, lost bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if h = *at; h == nil {
		return nil, false
	}
	*at = nil
	return h, h.state != stateHeld || lease.Passed(time.Now(), h.deadlineLocked())
}
