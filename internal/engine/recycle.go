package engine

// An acquisition is a kilobyte and a half, and most live for two round trips. One that got its
// lock is used again: without that, a turn among the goroutines of one process costs the client
// 4.1 µs instead of 2.9, and any pair more than 2 KB. It is safe when nobody but its caller can
// reach the acquisition any more:
//
//   - the sender: its call has been answered and taken out of the lane's lists under the
//     lane's mutex, before the signal that its caller received; the channel of that is used
//     again, too. An acquisition whose answer somebody else takes ends with an error, and is
//     left to the garbage collector, as are all that end with one. What a command carries as
//     its ctx is never part of it.
//   - the hub: it has left its line, under the hub's mutex, by itself or taken by a giver, who
//     signals it under that mutex last of all. Log lines about a waiter are written without
//     the mutex: a waiter of which one was in the making is not forgotten.
//   - the registry: the giver of a lock puts its hold, and tells watchers, under the registry's
//     mutex, which the receiver takes (TakePassed, Unwatch) before it ends.
//   - the refreshes of places read it without a mutex that outlives the place: one that has
//     had a place is not used again.
//   - an observer gets nothing of it, and a user gets the hold, which is no part of it.
//
// Under the race detector nothing is used again. There what ended is wiped instead, so that
// whoever still reaches it is found: by the detector, or by a panic.

// newAcquisition is an empty one.
func (c *Core) newAcquisition() *acquisition {
	if a, ok := c.used.Get().(*acquisition); ok {
		return a
	}
	return &acquisition{}
}

// closeAndRecycle ends an acquisition and keeps its memory for another one, if nobody else
// can reach it.
func (a *acquisition) closeAndRecycle() {
	a.close()
	if a.forgotten() {
		c, line, call := a.core, a.line.C, a.call.Signal
		*a = acquisition{}
		if !poison {
			a.line.C, a.call.Signal = line, call
			c.used.Put(a)
		}
	}
}

// forgotten reports whether nobody but the caller can reach the acquisition any more.
func (a *acquisition) forgotten() bool {
	return len(a.members) == 1 && a.members[0].hold != nil && !a.hadPlace && !a.mayBeLogged &&
		(a.waiter == nil || a.waiter.Forgotten())
}
