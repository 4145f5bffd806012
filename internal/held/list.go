package held

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// List is what the client holds now, the longest-held first.
func (r *Registry) List() []lock.HeldLock {
	r.mu.Lock()
	out := make([]lock.HeldLock, 0, r.dog.heap.Len())
	var places []Place
	for s := range r.dog.heap.All() { // all that have a hold that is not being released
		if s.joined == nil {
			out, places = s.listLocked(s.holds, out, places)
			continue
		}
		byOwner := map[*Claim][]*Hold{}
		for _, h := range s.holds {
			byOwner[h.claim] = append(byOwner[h.claim], h)
		}
		for _, holds := range byOwner {
			out, places = s.listLocked(holds, out, places)
		}
	}
	r.mu.Unlock()
	for i := range out {
		out[i].AcquiredAt = places[i].String()
	}
	slices.SortFunc(out, func(a, b lock.HeldLock) int { return a.Since.Compare(b.Since) })
	return out
}

// listLocked adds an owner's holds of a session as one entry, and where the oldest was
// acquired.
func (s *Session) listLocked(holds []*Hold, to []lock.HeldLock, at []Place) ([]lock.HeldLock, []Place) {
	var place Place
	now := time.Now()
	l := lock.HeldLock{
		Name: s.Lock.Name, Type: s.Lock.Kind.Traits().Type, Mode: s.Lock.Kind.Traits().Mode, Owner: s.Name,
		Count: len(holds), Fixed: true,
	}
	for _, h := range holds {
		l.Fixed = l.Fixed && h.lease > 0
		l.ValidUntil = later(l.ValidUntil, h.deadlineLocked())
		if since := h.since(now); l.Since.IsZero() || since.Before(l.Since) {
			l.Since = since
			place = h.placeLocked()
		}
	}
	return append(to, l), append(at, place)
}
