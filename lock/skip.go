package lock

import (
	"time"

	"github.com/redlatch/redlatch/internal/settings"
)

const (
	// DefaultSkipAfter is the skip time without [WithSkipAfter].
	DefaultSkipAfter = 5 * time.Second
	// MinSkipAfter is the shortest skip time: a living waiter sends a heartbeat five
	// times as often.
	MinSkipAfter = 100 * time.Millisecond
	// MaxSkipAfter is the longest skip time: a dead waiter must not block the others for
	// ever.
	MaxSkipAfter = 365 * 24 * time.Hour
)

// WithSkipAfter sets how long after its last heartbeat a waiter of a FairLock or a
// ReadWriteLock is passed over. A process that dies or stands still delays the others by
// no more than this: those behind it in a fair lock's queue, readers that stand back for
// a waiting writer, and writers behind a reader whose turn it is. A living waiter whose
// heartbeats are delayed for longer (a machine that stood still, a broken network) loses
// its place and queues up again. Heartbeats are sent every fifth of the skip time, one
// command for all waiters of a client and lock. Waiters of a FairLock and readers may
// find a lock that became free without a message (a DEL) so late, too.
//
// A value below [MinSkipAfter] or above [MaxSkipAfter] is an [ErrInvalidOption] of every
// call, as is any value for a lock whose waiters have no place on the server (RLock).
// Lock objects of one name may have different values: each applies to the waiters of
// that object.
func WithSkipAfter(d time.Duration) Option {
	return settings.Func[settings.Lock](func(s *settings.Lock) {
		if s.SkipAfter = d; d == 0 {
			s.SkipAfter = -1 // not the default: refused
		}
	})
}
