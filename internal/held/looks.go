package held

import "time"

// Looks are the times at which a goroutine looks after something: it sleeps until the next of them. The zero value is
// not usable; see NewLooks.
type Looks struct {
	At   time.Time     // of the next, zero: none is set; guarded by its owner's mutex
	kick chan struct{} // cap 1: At is earlier than the timer
}

// NewLooks begins without one.
func NewLooks() Looks { return Looks{kick: make(chan struct{}, 1)} }

// Wake makes the goroutine look no later than at. The owner's mutex is held.
func (l *Looks) Wake(at time.Time) {
	if l.At.IsZero() || at.Before(l.At) {
		l.At = at
		select {
		case l.kick <- struct{}{}:
		default:
		}
	}
}

// Run is the goroutine, until quit is closed. look returns what it has set At to.
func (l *Looks) Run(quit <-chan struct{}, look func(now time.Time) (next time.Time)) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		pause := time.Hour
		if next := look(time.Now()); !next.IsZero() {
			pause = time.Until(next)
		}
		timer.Reset(pause)
		select {
		case <-timer.C:
		case <-l.kick:
		case <-quit:
			return
		}
	}
}
