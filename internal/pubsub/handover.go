package pubsub

import "time"

// headPause is after how long the new head is told that it is, when the line moved
// on by a hand-over: most are handed the lock themselves before that.
const headPause = time.Millisecond

// TakeHead takes the head out of a topic's line if accept says so: the lock, which
// this process has, is handed to it without the server. It reports whether that was
// done. A head without a value (see Carry) is not taken, and nobody is taken past it.
//
// The taken waiter is signalled, its News tell who held the lock and nothing else, and its Leave does nothing. The
// next in line is the head then. It is not told to try, not even if the taken one
// was, and learns within a millisecond that it has to look after the holder's lease.
//
// accept gets the value that the waiter carries, and returns the new holder, for those
// behind it, if it has a trace. It runs under the hub's mutex: it
// must neither block nor call the hub. A waiter that has left is not offered, and one
// that is taken can't leave meanwhile: Leave returns after accept has decided.
func (h *Hub) TakeHead(id string, accept func(v any) (Holder, bool)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	t := h.topics[id]
	if t == nil || t.line.First() == nil || !t.line.First().receives {
		return false
	}
	w := t.line.First()
	who, ok := accept(w.carry)
	if !ok {
		return false
	}
	w.passed = t.since(w.turn)
	if who.Trace != "" {
		t.heldBy(t.expect, who)
	}
	w.goLocked()
	if t.line.First() != nil {
		t.lookSoonLocked()
	}
	w.signalLocked(false)
	return true
}

// lookSoonLocked tells whoever is the head in a moment to look where it stands.
func (t *topic) lookSoonLocked() {
	if t.lookSet {
		return
	}
	t.lookSet = true
	if t.lookTimer != nil {
		t.lookTimer.Reset(headPause)
		return
	}
	h := t.node.hub
	t.lookTimer = time.AfterFunc(headPause, func() { // ends at once
		h.mu.Lock()
		defer h.mu.Unlock()
		t.lookSet = false
		if t.line.First() != nil {
			t.line.First().signalLocked(false)
		}
	})
}
