package pubsub

import "time"

// herd keeps the processes that wait for one lock from all running for it at
// every message: one of them gets it, and the attempts of the others cost the
// server and themselves for nothing. A process that has just had the lock stands
// back for as many messages as three quarters of the processes can use, so that
// those run for it who have waited longest. If none of them does, it tries all
// the same a moment later, and stands back no more until it meets another one.
//
// The zero value stands back for nobody. Guarded by hub.mu.
type herd struct {
	size  int  // how many heard this process's last unlock
	since int  // messages since this process had the lock
	alone bool // nobody else ran for it the last time
	late  bool // the attempt under way is one that nobody else seemed to make
	again *time.Timer
	armed bool // it will fire
}

const (
	// herdSize is how many must listen before a process stands back: among two
	// there is little to save, and a mistake costs more.
	herdSize = 3
	// herdPause is after how long a process that stood back tries. Timers are not
	// much finer than this in a process that does nothing else.
	herdPause = time.Millisecond
)

// Heard tells how many listened to an unlock of this client.
func (h *Hub) Heard(id string, listeners int64) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if t := h.topics[id]; t != nil && t.spec.Herd {
		t.herd.size = int(min(listeners, 1<<16))
	}
}

// standsBack counts a message and says whether to leave it to others.
func (d *herd) standsBack() bool {
	d.since++
	if !d.alone && d.size >= herdSize && 4*d.since < 3*d.size {
		return true
	}
	d.late = false
	d.stop()
	return false
}

// lookLater makes the topic's head try after the pause, unless there is another
// message before: then somebody had the lock meanwhile.
func (d *herd) lookLater(h *Hub, t *topic) {
	if d.again == nil {
		d.again = time.AfterFunc(herdPause, func() { // ends at once
			h.mu.Lock()
			defer h.mu.Unlock()
			if d.armed && t.head != nil {
				d.late = true
				t.head.signalLocked(true)
			}
			d.armed = false
		})
	} else {
		d.again.Reset(herdPause)
	}
	d.armed = true
}

// won says that this process has the lock.
func (d *herd) won() {
	d.alone, d.since, d.late = d.late, 0, false
	d.stop()
}

// lost says that another one has it.
func (d *herd) lost() { d.alone, d.late = false, false }

func (d *herd) stop() {
	if d.armed {
		d.armed = false
		d.again.Stop()
	}
}
