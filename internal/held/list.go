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
	for _, s := range r.dog.heap { // all that have a hold that is not being released
		l := lock.HeldLock{
			Name: s.Lock.Name, Type: s.Lock.Kind.Traits().Type, Mode: s.Lock.Kind.Traits().Mode, Owner: s.Name,
			Count: len(s.holds), ValidUntil: s.latestLocked(), Fixed: true,
		}
		var place Place
		for _, one := range s.holds {
			l.Fixed = l.Fixed && one.lease > 0
			if l.Since.IsZero() || one.began.Before(l.Since) {
				l.Since = one.began
				place = one.placeLocked()
			}
		}
		places = append(places, place)
		out = append(out, l)
	}
	r.mu.Unlock()
	for i := range out {
		out[i].AcquiredAt = places[i].String()
	}
	slices.SortFunc(out, func(a, b lock.HeldLock) int { return a.Since.Compare(b.Since) })
	return out
}
