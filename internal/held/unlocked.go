package held

import (
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/lock"
)

// What a release comes to for a hold.

// releasingLocked marks the hold as being released; over says that there is nothing to do, and err
// what an Unlock returns then.
func (h *Hold) releasingLocked() (over bool, err error) {
	switch h.state {
	case stateHeld:
		h.state, h.cause = stateReleasing, lock.ErrUnlocked
		h.session.unkeepLocked(h)
		h.retireLocked()
		h.session.reg.dog.scheduleLocked(h.session, time.Time{})
		return false, nil
	case stateReleasing:
		return false, nil // another Unlock is at it: wait behind it
	case stateLost:
		h.state, h.result = stateReleased, h.lost
		return true, h.lost
	case stateClosed:
		return true, lock.ErrClosed
	default:
		return true, h.releasedLocked()
	}
}

// releasedLocked is what an Unlock of a released hold returns: once, if an
// earlier one gave up waiting, what came of what it had begun.
func (h *Hold) releasedLocked() error {
	if h.unlockLeft {
		h.unlockLeft = false
		return h.result
	}
	return lock.ErrNotHeld
}

// released ends the part's hold after a release that worked. It moves no deadline: the
// holds that stay have the leases that they had. It reports false if nobody stays after
// all: who was counted has gone meanwhile, through a gate of its own or with its lease.
// Then the part is the session's last release, which must follow.
func (p *part) released() bool {
	h := p.hold
	s, r := h.session, h.session.reg
	r.mu.Lock()
	ended := h.state == stateReleasing
	if p.count > 0 && ended && !s.over && s.countLocked(h) == 0 {
		p.ambiguous = false
		p.lastLocked(s)
		r.mu.Unlock()
		return false
	}
	if ended {
		s.removeLocked(h)
		h.endLocked(stateReleased, nil)
	}
	if p.count == 0 {
		r.dropLocked(s)
	}
	r.dog.scheduleLocked(s, time.Time{})
	r.mu.Unlock()
	if ended {
		p.over()
	}
	return true
}

// over notes that the part's release has ended its hold: what an observer hears of that is
// told with the end of the Unlock.
func (p *part) over() {
	p.rel.ended[p.index] = "released"
	p.claim.Release()
}

// lastLocked makes the part the last release of its session.
func (p *part) lastLocked(s *Session) {
	p.count, s.releaseSent = 0, true
	if s.mayArrive > 0 {
		p.void = VoidTTL
	}
}

// releaseLost ends the session of a hold whose release found it gone.
func (p *part) releaseLost() error {
	h, r := p.hold, p.hold.session.reg
	r.mu.Lock()
	lost := r.loseLocked(h.session, lock.LossGone, nil)
	_, err := h.releasingLocked()
	r.mu.Unlock()
	r.tellBut(lost, p.rel)
	return err
}

// leavesLocked reports whether an ended session may still stand on the server for a
// while, and counts in what freeLeft does about it.
func (r *Registry) leavesLocked(s *Session) bool {
	if r.closed || !s.leaseStaysLocked(time.Now()) {
		return false
	}
	r.wg.Add(1)
	return true
}

// abandoned ends a hold that could not be released: the key stays until its
// lease ends, and nothing renews it. Where another hold of the session had asked for
// a longer lease, the release goes on in the background.
func (p *part) abandoned(err error) error {
	h := p.hold
	s, r := h.session, h.session.reg
	r.mu.Lock()
	if r.closed {
		err = lock.ErrClosed
	}
	h.result = err
	ended, left := h.state == stateReleasing, false
	if ended {
		s.removeLocked(h)
		h.endLocked(stateReleased, nil)
		if len(s.holds) == 0 && !s.over {
			r.dropLocked(s)
			left = !conn.IsPermanent(err) && r.leavesLocked(s)
		}
	}
	r.mu.Unlock()
	if left {
		r.freeLeft(h)
	}
	if ended {
		p.over()
	}
	return err
}
