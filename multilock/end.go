package multilock

import (
	"errors"
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/lock"
)

// watch has memberEnded called once, when the member ends: by whoever ends it, since its client's
// Close waits for that one.
func (h *hold) watch(member lock.Hold) {
	f := func() { h.memberEnded(member) }
	switch m := member.(type) {
	case *held.Hold:
		m.OnEnd(f)
	case *hold:
		m.whenOver(f)
	}
}

// whenOver has f called once, when the hold is lost or closed: at once, if it is by now.
func (h *hold) whenOver(f func()) {
	h.mu.Lock()
	over := h.why != nil
	if !over {
		h.onEnd = f
	}
	h.mu.Unlock()
	if over {
		f()
	}
}

// memberEnded notes that a member has ended. It does not block.
func (h *hold) memberEnded(member lock.Hold) {
	cause := endOf(member)
	closed := errors.Is(cause, lock.ErrClosed)
	h.mu.Lock()
	if h.released || cause == nil { // nil: the caller's context ended, no more
		h.mu.Unlock()
		return
	}
	h.alive--
	over := h.alive < h.need
	h.mu.Unlock()
	one, _ := member.(*held.Hold)
	switch {
	case !over:
	case closed:
		h.endWith(lock.ErrClosed, "closed", one)
		h.forsake()
	default:
		how := "lost"
		if one != nil && one.Planned() {
			how = "expired"
		}
		h.endWith(&lock.LeaseLostError{Name: h.m.name, Owner: ownerOf(cause), Reason: lock.LossMember, At: time.Now(), Err: cause}, how, one)
		h.forsake()
	}
}

// forsake has nothing renewed of what is left of a lost hold.
func (h *hold) forsake() {
	_, holds := h.members()
	for _, m := range holds {
		switch m := m.(type) {
		case *held.Hold:
			m.Forsake()
		case *hold:
			m.forsake()
		}
	}
}

// endWith ends the section, and has its end told behind it. An Unlock that comes meanwhile tells no
// other end. by is the member whose end it is, nil if that is none of redlatch's: the client of the
// first member may be closed by then, and its Close waits for nothing any more.
func (h *hold) endWith(cause error, how string, by *held.Hold) {
	tell := h.toTell(how)
	h.mu.Lock()
	if h.why == nil {
		h.why = cause
	}
	onEnd := h.onEnd
	h.onEnd = nil
	h.mu.Unlock()
	h.cancel(cause)
	if onEnd != nil {
		onEnd()
	}
	news := h.m.core().Tell
	if by != nil {
		news = by.Tell
	}
	news(h.forget)
	if tell != nil {
		news(tell)
	}
}

// endOf is why a member's hold ended, nil while it is held: the end of the context that it was
// acquired with does not end it.
func endOf(member lock.Hold) error {
	q, ok := member.(*hold)
	if !ok {
		return member.(*held.Hold).Ended()
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.why
}

func ownerOf(cause error) string {
	if lost, ok := errors.AsType[*lock.LeaseLostError](cause); ok {
		return lost.Owner
	}
	return ""
}
