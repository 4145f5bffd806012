package held

import (
	"time"

	"github.com/redlatch/redlatch/lock"
)

// tell ends the contexts of lost holds and gives back what they leave on the server. An
// observer and the log hear of the losses in the background: whoever finds one has
// deadlines to look after, or a gate, or a caller who waits.
func (r *Registry) tell(lost []*Hold) { r.tellBut(lost, nil) }

// tellBut is tell for a release that tells an observer of its own holds by itself.
func (r *Registry) tellBut(lost []*Hold, by *Releasing) {
	if len(lost) == 0 {
		return
	}
	for _, h := range lost {
		h.end()
	}
	if r.cfg.Gone != nil {
		var told *Session
		for _, h := range lost { // those of a session stand together
			if h.session != told && h.lost.Reason == lock.LossGone {
				told = h.session
				if !r.suspectBeside(h.session.Lock) { // else the last of them comes here
					r.cfg.Gone(h.session.Lock)
				}
			}
		}
	}
	now := time.Since(r.epoch)
	var others []*Hold
	for _, h := range lost {
		if h.leavesBehind {
			r.freeLeft(h)
		}
		h.claim.Release()
		if !by.tells(h) {
			others = append(others, h)
		}
	}
	r.cfg.News.Tell(func() {
		r.tellUnrenewed(lost)
		for _, h := range others {
			h.tellEnd(h.howLost(), now-h.began)
		}
		r.logLost(lost)
	})
}

// suspectBeside has what else this client holds of a lock, of which a hold is gone, checked at once: nobody of this client
// is woken, who could take the lock beside those holds, before they are told.
func (r *Registry) suspectBeside(l *Lock) (held bool) {
	return l.Kind.Traits().Mode != lock.ModeLock && r.Suspect(l.Key, lock.ModeNone, ManyHeld)
}

// tellUnrenewed tells an observer, for each session, that its renewals failed until it was lost.
func (r *Registry) tellUnrenewed(lost []*Hold) {
	if r.cfg.Observer == nil || !r.cfg.Observer.Renewals() {
		return
	}
	var told *Session
	for _, h := range lost { // those of a session stand together
		if h.session != told && h.lost.Err != nil && !h.endedAsPlanned {
			told = h.session
			r.cfg.Observer.Renewed(h.session.Lock.Observed(), h.session.Name, h.link, h.lost.At, true, h.lost)
		}
	}
}

// howLost is the end of a lost hold in an observer's words.
func (h *Hold) howLost() string {
	if h.endedAsPlanned {
		return "expired"
	}
	return "lost"
}

func (r *Registry) logLost(lost []*Hold) {
	for _, h := range lost {
		args := r.TracedArgs(h.parent, h.link, "lock", h.session.Lock.Name,
			"owner", h.session.Name, "type", h.session.Lock.Kind.Traits().Type, "reason", string(h.lost.Reason))
		if h.lost.Err != nil {
			args = append(args, "error", h.lost.Err)
		}
		if h.passes > 0 { // who had it before can't have known
			args = append(args, "passed_on", h.passes)
		}
		if h.endedAsPlanned {
			r.cfg.Log.DebugContext(h.parent, "redlatch: fixed lease ended", args...)
		} else {
			r.cfg.Log.WarnContext(h.parent, "redlatch: lease lost", args...)
		}
	}
}
