package desk

// Troubles.

func (w *world) anyClient() *client { return w.clients[w.r.n(len(w.clients))] }
func (w *world) anyKey() string     { return w.p.keys[w.r.n(len(w.p.keys))] }

// lose notes that the server forgets, or is made to.
func (w *world) lose(what string, keys ...string) {
	w.note("server: %s %v", what, keys)
	for _, key := range keys {
		w.lock(key).epoch++
	}
}

// forget notes that the server may let late commands in.
func (w *world) forget() {
	for _, key := range w.p.keys {
		w.lock(key).forgot = true
	}
}

func forced(w *world) {
	key := w.anyKey()
	if by := w.anyClient(); w.r.luck(500) {
		by.t.Doubt(by.clock(w.now), key, true)
		by.doubts[key] = w.now
		w.after(by)
		defer func() {
			by.t.Doubt(by.clock(w.now), key, false)
			w.after(by)
		}()
	}
	w.lose("forced open", key)
	w.srv.now = w.now + w.serverD
	w.srv.force(key)
}

func restarted(w *world) {
	w.lose("restarted empty", w.p.keys...)
	w.forget()
	for key := range w.srv.keys {
		*w.srv.keys[key] = lockState{counter: w.srv.keys[key].counter}
	}
	for _, c := range w.clients {
		w.cut(c)
		c.t.Broke(c.clock(w.now))
		c.broke = w.now
		if w.r.luck(500) {
			c.t.Moved(c.clock(w.now))
			c.moved = w.now
		}
		w.after(c)
	}
	for _, i := range w.items { // what is on its way is lost with its connection
		if i.kind == wired {
			i.kind, i.answer, i.at = replied, Answer{}, w.now+w.r.upTo(20*ms)
		}
	}
}

func deafened(w *world) {
	c := w.anyClient()
	w.cut(c)
	w.after(c)
}

// cut ends a client's subscriptions; it makes them again.
func (w *world) cut(c *client) {
	for _, key := range w.p.keys {
		s := c.subs[key]
		if s == nil || !s[0] && !s[1] {
			continue
		}
		was := *s
		*s = [2]bool{}
		w.note("client %d: deaf for %s", c.id, key)
		c.t.Deaf(c.clock(w.now), key)
		for n, on := range was {
			if on {
				w.push(&item{kind: sub, c: c, key: key, others: n == 1, at: w.now + w.r.upTo(300*ms)})
			}
		}
	}
}

func broken(w *world) {
	c := w.anyClient()
	c.t.Broke(c.clock(w.now))
	c.broke = w.now
	w.after(c)
}

func stopped(w *world) {
	c := w.anyClient()
	if c.stands > w.now {
		return
	}
	c.stands = w.now + w.r.upTo(2*w.p.lease)
	w.note("client %d: stands still until %v", c.id, c.stands)
}

func asleep(w *world) {
	c := w.anyClient()
	if c.stands > w.now {
		return
	}
	d := w.r.upTo(2 * w.p.lease)
	c.stands = w.now + d
	c.base += Time(float64(d)) // its monotonic clock stands still
	c.wall += Time(float64(d) * c.rate)
	w.note("client %d: sleeps for %v", c.id, d)
}

func wallSet(w *world) {
	c := w.anyClient()
	d := w.r.upTo(4*w.p.lease) - 2*w.p.lease
	c.wall += d
	c.stands = max(c.stands, w.now) // it looks a second from now at the latest
	w.note("client %d: its wall clock is set by %v", c.id, d)
}

func serverSet(w *world) {
	d := w.r.upTo(4*w.p.lease) - 2*w.p.lease
	w.serverD += d
	w.lose("its clock is set", w.p.keys...)
	w.forget()
}

func closes(w *world) {
	c := w.anyClient()
	if c.closed || w.r.luck(700) {
		return
	}
	w.note("client %d: closes", c.id)
	c.closed = true
	c.t.Close(c.clock(w.now))
	w.after(c)
}

func drains(w *world) {
	c := w.anyClient()
	if !c.t.draining && w.r.luck(300) {
		w.note("client %d: drains", c.id)
		c.t.Drain(c.clock(w.now))
		w.after(c)
	}
}

// dies is a process that is killed; another one takes its place.
func dies(w *world) {
	c := w.anyClient()
	if c.closed || len(w.clients) > 12 || w.r.luck(700) {
		return
	}
	w.note("client %d: dies", c.id)
	c.closed = true
	c.t, c.asked, c.subs = New(Config{Lease: w.p.lease}), map[*Request]*user{}, map[string]*[2]bool{}
	kept := w.items[:0]
	for _, i := range w.items {
		if i.c == c && i.kind == wired {
			i.kind = stray
		}
		if i.c != c || i.kind == stray {
			kept = append(kept, i)
		}
	}
	w.items = kept
	for _, l := range w.locks {
		alive := l.live[:0]
		for _, n := range l.live {
			if n.c != c {
				alive = append(alive, n)
			}
		}
		l.live = alive
	}
	next := &client{id: len(w.clients), rate: c.rate}
	w.clients = append(w.clients, next)
	w.start(next)
}
