package lease

import "time"

// Pace says when leases of one length are renewed, or those of other lengths checked. It owns nothing: all
// follows from the length.
type Pace struct {
	// Length is the watchdog's lease; set once.
	Length time.Duration
}

// Every is the time between two renewals, or checks.
func (p Pace) Every() time.Duration { return p.Length / 3 }

// Window is how much earlier than due a renewal may travel with others.
func (p Pace) Window() time.Duration { return max(p.Length/200, time.Millisecond) }

// RetryAfter is the pause after a failed renewal.
func (p Pace) RetryAfter() time.Duration {
	return min(max(p.Length/30, 10*time.Millisecond), time.Second)
}

// Spread is by how much earlier than after Every the next renewal may be due; the caller takes a
// random part of it. It spreads, always to the early side: what was acquired in one burst must not
// be renewed in one burst for ever. The first interval spreads most, and more in a crowd: over half
// an interval twice as many would be renewed as on average.
func (p Pace) Spread(first, crowd bool) time.Duration {
	switch every := p.Every(); {
	case first && crowd:
		return every - every/8
	case first:
		return every / 2
	default:
		return every / 16
	}
}
