package held

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/lock"
)

// List is what the client holds now, the longest-held first.
func (r *Registry) List() []lock.HeldLock {
	r.mu.Lock()
	out := make([]lock.HeldLock, 0, r.dog.heap.Len())
	for s := range r.dog.heap.All() { // all that have a hold that is not being released
		if s.joined == nil {
			out = append(out, s.listLocked(s.holds))
			continue
		}
		byOwner := map[*Claim][]*Hold{}
		for _, h := range s.holds {
			byOwner[h.claim] = append(byOwner[h.claim], h)
		}
		for _, holds := range byOwner {
			out = append(out, s.listLocked(holds))
		}
	}
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b lock.HeldLock) int { return a.Since.Compare(b.Since) })
	return out
}

// listLocked is an owner's holds of a session as one entry.
func (s *Session) listLocked(holds []*Hold) lock.HeldLock {
	now := time.Now()
	l := lock.HeldLock{
		Name: s.Lock.Name, Type: s.Lock.Kind.Traits().Type, Mode: s.Lock.Kind.Traits().Mode, Owner: s.Name,
		Count: len(holds), Fixed: true,
	}
	for _, h := range holds {
		l.Fixed = l.Fixed && h.lease > 0
		l.ValidUntil = lease.Later(l.ValidUntil, h.deadlineLocked())
		if since := h.since(now); l.Since.IsZero() || since.Before(l.Since) {
			l.Since = since
		}
	}
	return l
}
