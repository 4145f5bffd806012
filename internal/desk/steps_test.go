package desk

import "time"

// profile is what a world is like. Chances are in a thousand.
type profile struct {
	name          string
	clients       int
	users         int // of each client
	keys          []string
	lease, tenure Time
	section       Time // how long a user is inside, at most
	think         Time // between two of its turns, at most
	lag           Time // one way
	lies          Time // how long a free lock may lie while somebody waits

	once, fixed, fenced, nested, extends, leavers int // of wishes, and of what users do
	fellows                                       bool

	slow, unsent, lateRun, noReply, twice, notRun, silent int // of commands and messages
	noAcks, refused                                       int
	drift, uncounted                                      bool
	ordered                                               bool // the steps are chosen: nothing is at random
	others                                                int  // another library's clients
	trouble                                               Time // between two of these, at most
	troubles                                              []func(w *world)
}

// step does what an item is about, and forgets it or gives it its next time.
func (w *world) step(n int) {
	i := w.items[n]
	w.steps++
	keep := false
	switch i.kind {
	case queued, wired, stray, replied:
		keep = w.command(i)
	case message, sub, confirmed:
		keep = w.listenStep(i)
	case acts:
		keep = w.act(i)
	case foreigner:
		keep = w.foreign(i)
	case happens:
		keep = !w.calm
		if keep {
			w.p.troubles[w.r.n(len(w.p.troubles))](w)
			i.at = w.now + w.r.upTo(w.p.trouble)
		}
	}
	if !keep {
		for n >= len(w.items) || w.items[n] != i { // a trouble may have moved it
			n--
		}
		last := len(w.items) - 1
		w.items[n] = w.items[last]
		w.items = w.items[:last]
	}
	w.check()
}

// command moves a command one step on: taken to be written, run, answered. R9: each is answered.
func (w *world) command(i *item) (keep bool) {
	c, v := i.c, i.cmd
	switch i.kind {
	case queued:
		c.t.Sent(c.clock(w.now), v)
		i.kind, i.at = wired, w.now+w.lag()
		switch {
		case w.trouble(w.p.notRun):
			i.kind, i.answer = replied, Answer{Verdict: NotRun, Pause: w.r.upTo(5 * ms)}
		case w.trouble(w.p.unsent):
			i.kind, i.answer, i.at = replied, Answer{}, w.now+w.r.upTo(time.Second)
		case w.trouble(w.p.lateRun):
			i.kind, i.answer, i.at = replied, Answer{}, w.now+w.r.upTo(time.Second)
			w.push(&item{kind: stray, c: c, cmd: v, at: i.at + w.r.upTo(2*time.Second)})
		}
		return true
	case wired:
		i.answer = w.run(i)
		i.kind, i.at = replied, w.now+w.lag()
		switch entering := i.cmd.Verb == Acquire || i.cmd.Verb == Reenter; {
		case i.cmd.Verb == Acquire && i.answer.Verdict == Done && w.trouble(w.p.noAcks):
			i.answer.Verdict = NoAcks
		case entering && i.answer.Verdict == Busy && w.trouble(w.p.refused):
			i.answer = Answer{Verdict: Refused}
		}
		twice := w.trouble(w.p.twice)
		if twice || w.trouble(w.p.noReply) {
			i.answer, i.at = Answer{}, w.now+w.r.upTo(time.Second)
		}
		if twice { // and it runs again, after its client was told that it failed
			w.push(&item{kind: stray, c: c, cmd: v, at: i.at + w.r.upTo(2*time.Second)})
		}
		return true
	case stray:
		w.run(i)
	case replied:
		w.note("client %d: %s answered %s", c.id, v, verdicts[i.answer.Verdict])
		if !v.wrote && i.answer.Verdict != NotRun {
			w.fail("%s is answered and was not sent", v)
		}
		w.answered = v
		c.t.Answered(c.clock(w.now), v, i.answer)
		w.after(c)
		w.answered = nil
	case message, sub, confirmed, acts, foreigner, happens:
	}
	return false
}

func (w *world) run(i *item) Answer {
	w.srv.now = w.now + w.serverD
	a := w.srv.run(i.c.id, i.cmd)
	w.note("server: %s of client %d: %s", i.cmd, i.c.id, verdicts[a.Verdict])
	return a
}

// listenStep is a message, or a subscription that the server gets, or that its client is told of.
func (w *world) listenStep(i *item) (keep bool) {
	c := i.c
	now := c.clock(w.now)
	switch i.kind {
	case sub:
		e := c.t.entries[i.key]
		if e == nil || e.listens == silent || i.others && e.calls.others == silent {
			return false // given up meanwhile
		}
		if c.subs[i.key] == nil {
			c.subs[i.key] = &[2]bool{}
		}
		c.subs[i.key][index(i.others)] = true
		i.kind, i.at = confirmed, w.now+w.lag()
		return true
	case confirmed:
		if s := c.subs[i.key]; s == nil || !s[index(i.others)] {
			return false // it broke, or was given up
		}
		w.note("client %d: subscribed %s others=%t", c.id, i.key, i.others)
		c.t.Subscribed(now, i.key, i.others)
	case message:
		w.note("client %d: message %s place=%d others=%t", c.id, i.key, i.place, i.others)
		if i.others {
			c.t.Others(now, i.key)
		} else {
			c.t.Message(now, i.key, i.place)
		}
	case queued, wired, stray, replied, acts, foreigner, happens:
	}
	w.after(c)
	return false
}

// act is what a user does next.
func (w *world) act(i *item) (keep bool) {
	u, c := i.u, i.c
	now := c.clock(w.now)
	if c.closed {
		return false
	}
	i.at = w.now + w.r.upTo(w.p.section)
	var idle []*Hold
	for _, h := range u.holds {
		if h.state != unlocking {
			idle = append(idle, h)
		}
	}
	for _, r := range u.waits {
		if r.next == nil && r.joins == nil && r.bid == nil {
			w.fail("client %d: r%d is forgotten", c.id, r.id)
		}
	}
	switch {
	case len(u.waits) > 0 && (w.calm || u.leaves <= w.now):
		r := u.waits[w.r.n(len(u.waits))]
		w.note("client %d: r%d leaves", c.id, r.id)
		c.t.Leave(now, r)
		u.leaves = never
	case len(u.waits) > 0 && (len(idle) == 0 || w.r.luck(500)):
		i.at = min(i.at+5*ms, u.leaves)
	case len(idle) > 0:
		w.inside(u, idle[w.r.n(len(idle))], now)
	case w.calm:
		return len(u.holds) > 0
	case len(u.holds) == 0:
		if w.p.leavers > 0 && w.r.luck(w.p.leavers) {
			u.leaves = w.now + w.r.upTo(20*ms)
		}
		w.arrive(u, w.p.keys[w.r.n(len(w.p.keys))], now)
		i.at = w.now + w.r.upTo(w.p.think)
	}
	w.after(c)
	return true
}

// arrive is a wish of a user.
func (w *world) arrive(u *user, key string, now Now) {
	v := Wish{Owner: u.owner, Once: w.r.luck(w.p.once), Fenced: w.r.luck(w.p.fenced)}
	if w.p.fellows && w.r.luck(300) && len(u.holds) == 0 {
		u.owner = Owner(1 + w.r.n(2))
		v.Owner = u.owner
	}
	if w.r.luck(w.p.fixed) {
		v.Lease = w.p.lease/10 + w.r.upTo(w.p.lease)*2
	}
	r := u.c.t.Arrive(now, key, v)
	u.waits, u.c.asked[r] = append(u.waits, r), u
	w.note("client %d: r%d arrives for %s %+v", u.c.id, r.id, key, v)
}

// inside is what a holder does.
func (w *world) inside(u *user, h *Hold, now Now) {
	switch {
	case !w.calm && w.r.luck(w.p.extends):
		w.note("client %d: h%d is extended", u.c.id, h.id)
		u.c.t.Extend(now, &Extension{Hold: h, Lease: w.r.upTo(3*w.p.lease) + ms})
	case !w.calm && w.r.luck(w.p.nested) && len(u.holds) < 4:
		if w.r.luck(w.p.leavers) {
			u.leaves = w.now + w.r.upTo(ms)
		}
		w.arrive(u, h.session.entry.key, now)
	default:
		u.unlocks++
		w.note("client %d: h%d is unlocked", u.c.id, h.id)
		u.c.t.Unlock(now, h)
	}
}

// foreign is another library's client: it knows nothing of the list.
func (w *world) foreign(i *item) (keep bool) {
	w.srv.now = w.now + w.serverD
	if i.id == 0 {
		id := w.r.next()
		if w.calm {
			return false
		}
		if w.srv.others(i.key, id, true, w.p.lease) {
			w.note("server: another library has %s", i.key)
			i.id = id
		}
		i.at = w.now + w.r.upTo(w.p.section)
		return true
	}
	w.note("server: another library unlocks %s", i.key)
	w.srv.others(i.key, i.id, false, 0)
	i.id, i.at = 0, w.now+w.r.upTo(w.p.think)
	return true
}

// next is the item, or the timer of a client, that comes first; false: nothing is to come.
func (w *world) next() (n int, timer *client, ok bool) {
	at := never
	for k, i := range w.items {
		when := i.at
		if i.c != nil && i.kind != wired && i.kind != stray && i.kind != sub {
			when = max(when, i.c.stands)
		}
		if when < at {
			at, n, ok = when, k, true
		}
	}
	for _, c := range w.clients {
		if c.t.armed != never {
			if when := max(c.truly(c.t.armed), c.stands); when < at {
				at, timer, ok = when, c, true
			}
		}
	}
	if ok {
		w.now = max(w.now, at)
	}
	return n, timer, ok
}

// play runs so many steps at random, then until all is quiet, and reports the first violation.
func (w *world) play(steps int) string {
	quiet := never
	for w.failed == "" {
		if !w.calm && w.steps >= steps {
			w.calm = true
			quiet = w.now + 12*w.p.lease + time.Minute
		}
		n, timer, ok := w.next()
		if !ok {
			break
		}
		if w.now > quiet {
			w.fail("not quiet long after all users have left")
		}
		if w.spins++; w.now != w.last {
			w.spins, w.last = 0, w.now
		}
		if w.spins > 1000 {
			w.fail("it spins: nothing moves on with the time")
		}
		if timer != nil {
			w.steps++
			w.note("client %d: tick", timer.id)
			timer.t.Tick(timer.clock(w.now))
			w.after(timer)
			w.check()
		} else {
			w.step(n)
		}
	}
	if w.failed == "" {
		w.left()
	}
	return w.failed
}

// left finds what is left when nobody wants anything any more.
func (w *world) left() {
	for _, c := range w.clients {
		if n := len(c.t.entries); n > 0 || c.t.live != 0 || c.t.lines != 0 || len(c.asked) > 0 {
			w.fail("client %d: %d entries, %d sessions, %d lines, %d requests are left", c.id, n, c.t.live, c.t.lines, len(c.asked))
		}
		for _, u := range c.users {
			if !c.closed && u.unlocks != 0 {
				w.fail("client %d: %d Unlocks never return", c.id, u.unlocks)
			}
		}
	}
	w.srv.now = w.now + w.serverD
	for name := range w.srv.keys {
		if k := w.srv.key(name); k.count > 0 && !w.clients[k.holder.client].closed && !w.lock(name).forgot {
			w.fail("%s is held by s%d of client %d, for nobody", name, k.holder.id, k.holder.client)
		}
	}
}
