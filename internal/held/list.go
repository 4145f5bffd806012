package held

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/lock"
)

// entry is what of a session is listed as one: readers may share it, and a key may have several names.
type entry struct {
	claim *Claim
	name  string
}

// List is what the client holds now, the longest-held first.
func (r *Registry) List() []lock.HeldLock {
	r.mu.Lock()
	out := make([]lock.HeldLock, 0, r.dog.heap.Len())
	for s := range r.dog.heap.All() { // all that have a hold that is not being released
		if len(s.holds) == 1 {
			out = append(out, s.listLocked(s.holds))
			continue
		}
		entries := map[entry][]*Hold{}
		for _, h := range s.holds {
			e := entry{h.claim, h.lock.Name}
			entries[e] = append(entries[e], h)
		}
		for _, holds := range entries {
			out = append(out, s.listLocked(holds))
		}
	}
	r.mu.Unlock()
	slices.SortFunc(out, func(a, b lock.HeldLock) int { return a.Since.Compare(b.Since) })
	return out
}

// listLocked is holds of one owner and name as one entry.
func (s *Session) listLocked(holds []*Hold) lock.HeldLock {
	now := time.Now()
	l := lock.HeldLock{
		Name: holds[0].lock.Name, Type: s.Lock.Kind.Traits().Type, Mode: s.Lock.Kind.Traits().Mode, Owner: s.Name,
		Count: len(holds), Fixed: true,
	}
	for _, h := range holds {
		l.Fixed = l.Fixed && h.lease > 0
		l.ValidUntil = later(l.ValidUntil, h.deadlineLocked())
		if since := h.since(now); l.Since.IsZero() || since.Before(l.Since) {
			l.Since = since
		}
	}
	return l
}
