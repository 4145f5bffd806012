package held

import (
	"slices"

	"github.com/redlatch/redlatch/lock"
)

// List is what the client holds now, the longest-held first.
func (r *Registry) List() []lock.HeldLock {
	r.mu.Lock()
	out := make([]lock.HeldLock, 0, len(r.dog.heap))
	places := make([]Place, 0, len(r.dog.heap))
	add := func(s *Session, holds []*Hold) {
		l, place := s.listedLocked(holds)
		out, places = append(out, l), append(places, place)
	}
	for _, s := range r.dog.heap { // all that have a hold that is not being released
		if s.joined == nil {
			add(s, s.holds)
			continue
		}
		byOwner := map[*Claim][]*Hold{}
		for _, h := range s.holds {
			byOwner[h.claim] = append(byOwner[h.claim], h)
		}
		for _, holds := range byOwner {
			add(s, holds)
		}
	}
	r.mu.Unlock()
	for i := range out {
		out[i].AcquiredAt = places[i].String()
	}
	slices.SortFunc(out, func(a, b lock.HeldLock) int { return a.Since.Compare(b.Since) })
	return out
}

// listedLocked are an owner's holds of a session as one entry, and where the oldest was
// acquired.
func (s *Session) listedLocked(holds []*Hold) (l lock.HeldLock, oldest Place) {
	l = lock.HeldLock{
		Name: s.Lock.Name, Type: s.Lock.Kind.Traits().Type, Mode: s.Lock.Kind.Traits().Mode, Owner: s.Name,
		Count: len(holds), Fixed: true,
	}
	for _, h := range holds {
		l.Fixed = l.Fixed && h.lease > 0
		l.ValidUntil = later(l.ValidUntil, h.deadlineLocked())
		if l.Since.IsZero() || h.began.Before(l.Since) {
			l.Since = h.began
			oldest = h.placeLocked()
		}
	}
	return l, oldest
}
