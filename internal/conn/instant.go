package conn

import (
	"sync/atomic"
	"time"
)

// Instant is when something last happened. Its zero value says that it never has. It is
// safe for concurrent use.
type Instant struct{ at atomic.Pointer[time.Time] }

// Now notes that it happens now.
func (i *Instant) Now() {
	for now := time.Now(); ; {
		last := i.at.Load()
		if last != nil && !last.Before(now) || i.at.CompareAndSwap(last, &now) {
			return
		}
	}
}

// Last is when it happened; zero: never.
func (i *Instant) Last() time.Time {
	if at := i.at.Load(); at != nil {
		return *at
	}
	return time.Time{}
}
