package lease

import "time"

// wallJump is how far the wall clock may run ahead of the monotonic one before the machine
// has slept: less where leases are so short that their margin is.
const wallJump = 200 * time.Millisecond

// CheckEvery is how often the clocks are compared while anything is held.
const CheckEvery = time.Second

// Clocks finds out that a machine slept. It owns what is known of how far its clocks are
// apart. It is not safe for concurrent use.
//
// Invariant: after Compare, the wall clock is ahead by no more than a jump since the clocks were
// compared with each other last, and many short sleeps add up.
type Clocks struct {
	epoch time.Time // when both clocks began; set once
	// ahead is by how much the wall clock had run ahead of the monotonic one since epoch: set when a sleep
	// is found, and when the wall clock was set back
	ahead time.Duration
}

// NewClocks compares from an instant on.
func NewClocks(epoch time.Time) Clocks { return Clocks{epoch: epoch} }

// Compare reports whether the monotonic clock stood still since deadlines were compared with both, or else whether the
// wall clock was set back since. Many short sleeps count as one. The leases have at least this length.
func (c *Clocks) Compare(now time.Time, length time.Duration) (slept, setBack bool) {
	ahead := now.Round(0).Sub(c.epoch.Round(0)) - now.Sub(c.epoch)
	slept, setBack = Slept(ahead-c.ahead, length), Slept(c.ahead-ahead, length)
	if slept || ahead < c.ahead {
		c.ahead = ahead
	}
	return slept, setBack
}

// Slept reports whether the machine slept, if the wall clock ran ahead by so much while leases of this length were held.
func Slept(ahead, length time.Duration) bool { return ahead > min(wallJump, Drift(length)/2) }
