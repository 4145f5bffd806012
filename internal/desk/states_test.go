package desk

// hash is of all that the future depends on, the times as they are from now.
func (w *searched) hash() uint64 {
	h := sum(0x9e3779b97f4a7c15)
	for _, n := range w.left {
		h.add(uint64(n))
	}
	srv := w.srv.key("a")
	h.add(uint64(srv.holder.client), srv.holder.id, uint64(srv.count))
	h.from(w.now, srv.ends)
	for _, p := range srv.list {
		h.add(uint64(p.client), uint64(p.score>>63))
	}
	h.add(uint64(len(srv.void)))
	h.from(w.now, w.lock("a").free)
	for n, c := range w.clients {
		now := c.clock(w.now).Mono
		h.add(uint64(n))
		if s := c.subs["a"]; s != nil && s[0] {
			h.add(1)
		}
		for _, u := range c.users {
			h.add(uint64(w.at[u]), uint64(len(u.waits)), uint64(len(u.holds)), uint64(u.unlocks))
		}
		if e := c.t.entries["a"]; e != nil {
			e.sum(&h, now)
		}
	}
	items := sum(0)
	for _, i := range w.items {
		x := sum(uint64(i.kind) + 7)
		x.add(uint64(i.c.id), i.id, uint64(i.answer.Verdict))
		if i.cmd != nil {
			x.add(uint64(i.cmd.Verb), i.cmd.Field, uint64(i.cmd.Count), uint64(i.cmd.Place))
			x.from(w.now, i.cmd.sent.Mono)
		}
		items += x // in any order
	}
	h.add(uint64(items))
	return uint64(h)
}

// sum is a hash under way.
type sum uint64

func (h *sum) add(ns ...uint64) {
	for _, n := range ns {
		x := (uint64(*h) ^ n) * 0xff51afd7ed558ccd
		*h = sum(x ^ x>>32)
	}
}

// from adds an instant as it is from now, in steps in which nothing happens.
func (h *sum) from(now, at Time) {
	if at == never || at <= 0 {
		h.add(uint64(at))
		return
	}
	h.add(uint64((at - now) / ms))
}

// sum adds an entry.
func (e *Entry) sum(h *sum, now Time) {
	c := e.calls
	h.add(uint64(e.line.n), uint64(e.listens), uint64(e.fails), uint64(c.place), uint64(c.told), uint64(e.doubts), e.holder.Field)
	for _, b := range []bool{c.listed, c.open, c.late, e.departed != nil} {
		h.add(map[bool]uint64{true: 3, false: 5}[b])
	}
	h.from(now, e.due)
	h.from(now, e.retryAt)
	h.from(now, c.standing)
	for r := range e.line.all {
		h.add(r.id)
	}
	for _, s := range e.sessions {
		v := &s.server
		h.add(s.field, uint64(s.phase), uint64(s.owner), uint64(len(s.holds)), uint64(len(s.joins)), uint64(len(s.unlock)), uint64(len(s.extend)),
			uint64(s.passes), uint64(v.count), uint64(v.fails), uint64(v.tries))
		for _, b := range []bool{s.had, s.bids != nil, v.unsure, v.final, v.doubtful, v.undo, v.flight != nil, v.renewing != nil} {
			h.add(map[bool]uint64{true: 3, false: 5}[b])
		}
		h.from(now, s.until.Mono)
		h.from(now, s.renewAt)
		h.from(now, v.retryAt)
		h.from(now, v.asked)
		h.from(now, v.known)
	}
}
