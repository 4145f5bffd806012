package lock

import "time"

const (
	// DefaultSkipAfter is the skip time without [WithSkipAfter].
	DefaultSkipAfter = 5 * time.Second
	// MinSkipAfter is the shortest skip time: a living waiter tells of itself five
	// times as often.
	MinSkipAfter = 100 * time.Millisecond
	// MaxSkipAfter is the longest: a dead waiter must not hold up the others for
	// ever.
	MaxSkipAfter = 365 * 24 * time.Hour
)

// WithSkipAfter sets how long after its last sign of life a waiter of a FairLock
// or a ReadWriteLock is passed over. A process that dies or stands still delays
// the others by no more than this: those behind it in a fair lock's queue, readers
// that stand back for a waiting writer, and writers for a reader whose turn it is.
// A living waiter whose signs of life are held up for longer (a stop of the
// machine, a broken network) loses its place and takes a new one. Waiters tell of
// themselves every fifth of it, all those of a client and lock in one command.
//
// Below [MinSkipAfter] or above [MaxSkipAfter], or on a lock whose waiters have no
// place on the server (RLock), it is an [ErrInvalidOption] of every call. Lock
// objects of one name may have different ones: each counts for the waiters that
// came through it.
func WithSkipAfter(d time.Duration) Option {
	return func(s *Settings) {
		if s.SkipAfter = d; d == 0 {
			s.SkipAfter = -1 // not the default: refused
		}
	}
}
