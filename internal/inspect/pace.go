package inspect

import (
	"context"
	"sync"
	"time"
)

// What a scan takes of a server's thread, about, as measured with Redis 7: for a key that SCAN passes, for a hash that
// may be a lock, for a lock that is looked at, and for a byte of CLIENT LIST.
const (
	perKey  = time.Microsecond
	perHash = 2 * time.Microsecond
	perLock = 30 * time.Microsecond
	perByte = 5 * time.Nanosecond
)

// Pace bounds what scans take of a server's time to a share, after a burst. It counts the work, not the time that answers
// need: a slow network makes nothing slower still. It is safe for concurrent use; nil has no bound.
type Pace struct {
	share float64
	burst time.Duration
	Slow  func() // if it is set: called once, by a scan that has waited for more than a second

	mu     sync.Mutex
	at     time.Time     // guarded by mu; of credit
	credit time.Duration // guarded by mu; of the server's time; below zero: owed
	rested time.Duration // guarded by mu
}

// NewPace makes a Pace that begins with the burst.
func NewPace(share float64, burst time.Duration) *Pace {
	return &Pace{share: share, burst: burst, credit: burst, at: time.Now()}
}

type paceKey struct{}

// WithPace makes the scans under a ctx keep to a Pace.
func WithPace(ctx context.Context, p *Pace) context.Context {
	return context.WithValue(ctx, paceKey{}, p)
}

// PaceOf is the Pace of a ctx, nil if there is none.
func PaceOf(ctx context.Context) *Pace {
	p, _ := ctx.Value(paceKey{}).(*Pace)
	return p
}

// owe notes work that a server did.
func (p *Pace) owe(work time.Duration) {
	if p == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	earned := time.Duration(float64(now.Sub(p.at)) * p.share)
	p.credit, p.at = min(p.credit+earned, p.burst)-work, now
}

// rest waits until nothing is owed, or ctx ends.
func (p *Pace) rest(ctx context.Context) {
	if p == nil {
		return
	}
	p.owe(0)
	p.mu.Lock()
	wait := time.Duration(float64(max(-p.credit, 0)) / p.share)
	before := p.rested
	p.rested += wait
	p.mu.Unlock()
	if p.Slow != nil && before <= time.Second && before+wait > time.Second {
		p.Slow()
	}
	sleep(ctx, wait)
}

// Rested is how long scans have waited so far, altogether.
func (p *Pace) Rested() time.Duration {
	if p == nil {
		return 0
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.rested
}
