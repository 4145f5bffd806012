package desk

import (
	"time"

	"github.com/redlatch/redlatch/internal/lease"
)

// What docs/SAFETY.md promises, as it is looked at after each step.

func (w *world) ended(c *client, x Effect) {
	l := w.lock(x.Hold.session.entry.key)
	if x.Why == LostGone || x.Why == LostExpired {
		w.lost[x.Hold] = x.Why
	}
	for i, n := range l.live {
		if n.h == x.Hold {
			l.live = append(l.live[:i], l.live[i+1:]...)
			return
		}
	}
	w.fail("client %d: h%d ends twice", c.id, x.Hold.id)
}

func (w *world) grantTo(c *client, x Effect) {
	u := c.asked[x.Request]
	if u == nil {
		w.fail("client %d: r%d ends twice", c.id, x.Request.id)
		return
	}
	w.unask(u, x.Request)
	u.holds = append(u.holds, x.Hold)
	s := x.Hold.session
	l := w.lock(s.entry.key)
	for _, n := range l.live {
		if n.c == c && n.u.owner != u.owner {
			w.fail("client %d: h%d of r%d begins while h%d of another owner is alive", c.id, x.Hold.id, x.Request.id, n.h.id)
		}
	}
	if over(c.clock(w.now), x.Hold.Deadline()) {
		w.fail("client %d: h%d is over when it begins", c.id, x.Hold.id)
	}
	if f := s.fenced; x.Request.Fenced && (!f || s.token == 0 || s.passes > 0) {
		w.fail("client %d: h%d has no token of its own", c.id, x.Hold.id)
	}
	if had := c.owned[s.field]; had != 0 && had != u.owner { // it is passed on
		k, known := w.srv.key(s.entry.key), c.truly(s.server.known)
		switch now := c.clock(w.now).Mono; {
		case now >= s.got.Mono+w.p.tenure || now >= s.server.known+w.p.tenure:
			w.fail("client %d: s%d is passed on after %v", c.id, s.field, now-s.got.Mono)
		case s.entry.line.n > 0 && s.entry.line.first().ticket < x.Request.ticket:
			w.fail("client %d: s%d is passed on past r%d", c.id, s.field, s.entry.line.first().id)
		case max(c.broke, c.doubts[s.entry.key]) > known:
			w.fail("client %d: s%d is passed on, as known before a break", c.id, s.field)
		case !w.p.strays() && k.heldBy(field{c.id, s.field}) && k.count != 1:
			w.fail("client %d: s%d is passed on with a count of %d", c.id, s.field, k.count)
		}
	}
	if c.owned[s.field] == 0 && c.moved > c.truly(s.got.Mono) {
		w.fail("client %d: s%d was granted by a server that another one has replaced", c.id, s.field)
	}
	c.owned[s.field] = u.owner
	l.live = append(l.live, &tenant{c: c, h: x.Hold, u: u})
}

func (w *world) rejects(c *client, x Effect) {
	u := c.asked[x.Request]
	if u == nil {
		w.fail("client %d: r%d ends twice", c.id, x.Request.id)
		return
	}
	w.unask(u, x.Request)
}

func (w *world) unask(u *user, r *Request) {
	delete(u.c.asked, r)
	for i, o := range u.waits {
		if o == r {
			u.waits = append(u.waits[:i], u.waits[i+1:]...)
			return
		}
	}
}

// check looks at the promises (docs/SAFETY.md) that hold at every moment.
func (w *world) check() {
	w.srv.now = w.now + w.serverD
	for key, l := range w.locks {
		k := w.srv.key(key)
		for _, n := range l.live {
			f := field{n.c.id, n.h.session.field}
			now, end := n.c.clock(w.now), n.h.Deadline()
			if n.c.stands+ms < w.now && now.Mono > end.Mono+ms || n.c.stands+2*lookEvery < w.now && now.Wall > end.Wall+2*lookEvery {
				w.fail("client %d: h%d goes on after its deadline", n.c.id, n.h.id)
			}
			if s := n.h.session; !w.p.strays() && k.heldBy(f) && s.server.flight == nil && s.server.retryAt <= n.c.clock(w.now).Mono && k.count != len(s.holds) {
				w.fail("client %d: the server counts %d holds of s%d, and there are %d", n.c.id, k.count, s.field, len(s.holds))
			}
			if k.heldBy(f) {
				n.gone = 0
			} else if n.gone == 0 {
				n.gone = w.now
			} else if found := w.p.lease/3 + time.Second; w.p.name == "sparse, forced" && w.now-n.gone > found {
				w.fail("client %d: h%d is lost for %v, and not told", n.c.id, n.h.id, found)
			}
			if k.heldBy(f) || l.granted[f] != l.epoch || over(n.c.clock(w.now), n.h.Deadline()) {
				continue
			}
			w.fail("client %d: h%d of s%d is alive until %v, now %v, and the server does not hold it", n.c.id, n.h.id, f.id,
				n.h.Deadline(), n.c.clock(w.now))
		}
		w.lying(l, key, k)
	}
}

// lying finds a free lock that is left lying while somebody waits who could take it.
func (w *world) lying(l *truth, key string, k *lockState) {
	if k.count > 0 {
		l.free, l.waits = -1, -1
		return
	}
	if l.free < 0 {
		l.free = w.now
	}
	waits := false
	for _, c := range w.clients {
		e := c.t.entries[key]
		if e != nil && c.stands <= w.now && e.unseen(c.clock(w.now).Mono) {
			w.fail("client %d: the line is on no list, and asks at %v", c.id, e.due)
		}
		under := false // an answer comes when it is chosen
		for n := 0; w.p.ordered && e != nil && n < len(e.sessions); n++ {
			under = under || e.sessions[n].server.flight != nil
		}
		waits = waits || e != nil && e.line.n > 0 && !under && c.stands <= w.now && w.now >= c.base
	}
	if !waits {
		l.waits = -1
		return
	}
	if l.waits < 0 {
		l.waits = w.now
	}
	if since := w.now - max(l.free, l.waits); since > w.p.lies {
		w.fail("%s is free for %v while somebody waits", key, since)
	}
}

// alone finds a second command of a session in flight; renewals go beside.
func (w *world) alone(c *Command) {
	for _, i := range w.items {
		if i.cmd != nil && i.kind != stray && i.cmd.Session == c.Session && (i.cmd.Verb == Renew) == (c.Verb == Renew) && i.cmd != w.answered {
			w.fail("%s is sent while %s is in flight", c, i.cmd)
		}
	}
}

// over is whether a deadline has passed on either clock: here, and not as package lease has it.
func over(now Now, end lease.Instant) bool { return now.Mono >= end.Mono || now.Wall >= end.Wall }

// unseen is what R3 forbids: somebody of the line waits, no own session is in the way, nothing is asked, and the client
// is on no list, and does not ask by itself.
func (e *Entry) unseen(now Time) bool {
	if e.line.n == 0 || e.calls.listed || e.calls.open || e.due <= now+javaFirst || e.bid != nil && e.bid.server.flight != nil {
		return false
	}
	for _, s := range e.sessions {
		if s.against() {
			return false
		}
	}
	return true
}

// strays says that commands may run after their clients have given up on them.
func (p *profile) strays() bool {
	return p.lateRun+p.twice+p.unsent+p.noReply+p.notRun > 0 || len(p.troubles) > 0
}
