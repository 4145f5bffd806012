package pubsub

// Looked is how many channels and idle topics the hub's nodes have looked at.
func (h *Hub) Looked() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.looked
}

// Topics is how many topics the hub keeps.
func (h *Hub) Topics() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.topics)
}

// Nodes is how many nodes the hub keeps.
func (h *Hub) Nodes() int {
	h.mu.Lock()
	defer h.mu.Unlock()
	return len(h.nodes)
}

// Astray asks a dialer whose plain channels are on home.
func Astray(home string, masters ...string) bool { return (&dialer{home: home}).Astray(masters) }

// LongWithout is how long a connection may be waited for before that is told.
const LongWithout = longWithout

// IdleNode is how long a node without topics is kept.
const IdleNode = idleNode

// Carry gives a waiter in line a value for TakeHead, as JoinLine does.
func Carry(v any) Option { return func(w *Waiter) { w.carry, w.receives = v, true } }
