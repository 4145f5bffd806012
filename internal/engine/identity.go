package engine

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/kind"
)

// newID makes the acquisition a new one for the server. The id begins with the
// time at which it began, for people; nothing is decided by it.
func (a *acquisition) newID() {
	c := a.core
	buf := append(make([]byte, 0, 96), c.cfg.ID...)
	buf = append(a.owner.AppendText(append(buf, ':')), '-')
	at := len(buf)
	buf = append(strconv.AppendInt(buf, a.began.UnixMilli(), 36), '.')
	field := string(strconv.AppendUint(buf, c.acq.Add(1), 36))
	lease := a.lease
	if lease == 0 || a.asksServer {
		lease = c.capped(lease)
	}
	if a.waiter != nil && a.waiter.Keyed() {
		a.stopListening() // messages come by the id: listen for the new one
	}
	a.mu.Lock()
	for i := range a.members {
		m := &a.members[i]
		m.attempt = kind.Attempt{ID: field[at:], Entry: field, Field: field, Lease: lease, Other: m.attempt.Other, Trace: m.attempt.Trace}
	}
	a.mu.Unlock()
	a.leftover = leftover{}
}

// stamp notes in the field for how long the acquisition has waited before it asks: so the server tells since when the
// lock is held. While a command has no answer the field stays: it may still run, and must be recognised.
func (a *acquisition) stamp() {
	if !a.waited || a.leftover.lost > 0 {
		return
	}
	now := a.began.Add(time.Since(a.began)) // whose milliseconds are counted from those of the id
	field := kind.Waited(a.members[0].attempt.Entry, now.UnixMilli()-a.began.UnixMilli())
	a.mu.Lock()
	for i := range a.members {
		a.members[i].attempt.Field = field
	}
	a.mu.Unlock()
}
