package held

import (
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
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

// Ages is for how long each lock has been held: the oldest hold of each session or, if names are of
// no use, of each type. It looks at every session under the mutex, at about 0.1 µs each.
func (r *Registry) Ages(named bool) []observe.Age {
	var out []observe.Age
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Since(r.epoch)
	if named {
		out = make([]observe.Age, 0, r.dog.heap.Len())
	}
	for s := range r.dog.heap.All() {
		a := observe.Age{Lock: s.Lock.Observed()}
		for _, h := range s.holds {
			a.Age = max(a.Age, now-h.began)
		}
		if !named {
			a.Name = ""
			if i := slices.IndexFunc(out, func(o observe.Age) bool { return o.Lock == a.Lock }); i >= 0 {
				out[i].Age = max(out[i].Age, a.Age)
				continue
			}
		}
		out = append(out, a)
	}
	return out
}
