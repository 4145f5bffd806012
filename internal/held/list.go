package held

import (
	"cmp"
	"math"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// owned is an owner's holds of a session.
type owned struct {
	began time.Duration // of the oldest
	s     *Session
	holds []*Hold
}

// List is what the client holds now, the longest-held first, at most so many (0: all), and how many there are. It looks
// at every session under the mutex.
func (r *Registry) List(most int) (out []lock.HeldLock, all int) {
	var parts []owned
	newest := time.Duration(math.MaxInt64) // who began later is none of the first so many
	sort := func() {
		slices.SortFunc(parts, func(a, b owned) int { return cmp.Compare(a.began, b.began) })
		if most > 0 && len(parts) > most {
			clear(parts[most:])
			parts = parts[:most]
			newest = parts[most-1].began
		}
	}
	add := func(s *Session, holds []*Hold) {
		p := owned{holds[0].began, s, holds}
		for _, h := range holds {
			p.began = min(p.began, h.began)
		}
		if all++; p.began > newest {
			return
		}
		if parts = append(parts, p); most > 0 && len(parts) == 2*most {
			sort()
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for s := range r.dog.heap.All() { // all that have a hold that is not being released
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
	sort()
	out = make([]lock.HeldLock, len(parts))
	for i, p := range parts {
		out[i] = p.s.listLocked(p.holds)
	}
	return out, all
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
		if since := h.since(now); l.HeldSince.IsZero() || since.Before(l.HeldSince) {
			l.HeldSince = since
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

// Follows lists the readers that wait for another one of the process to share its hold with: of more than so many some.
func (r *Registry) Follows(client string, most int) (out []observe.Waiting) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, sh := range r.shares {
		for x := range sh.follow.All() {
			if len(out) >= most {
				break
			}
			owner := x.To.Claim.Owner.AppendText([]byte(client + ":"))
			out = append(out, observe.Waiting{Lock: x.lock.Observed(), Owner: string(owner), Since: x.Came, Holder: sh.seen.Owner})
		}
	}
	return out
}
