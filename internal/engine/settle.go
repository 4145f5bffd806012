package engine

import (
	"context"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
)

// A re-entry or an extension whose caller has given up may have raised the count
// and the lease for nobody. The lease of a holder that dies then would keep the
// lock for that long, so it is settled: lowered to what the live holds need.

// reentry is a re-entry, or an extension, that nobody waits for any more.
type reentry struct{ s *session }

func (r reentry) leaving() { r.s.slot.retain() }

func (r reentry) late(f *flight) {
	if f.err == nil || conn.Classify(f.err) == conn.Ambiguous {
		r.s.slot.core.settle(r.s)
	}
	r.s.slot.gate.leave()
	r.s.slot.release()
}

// settle makes the count and the lease on the server those of the session's live
// holds, until the server has answered or they have ended. The gate is the
// caller's.
func (c *Core) settle(s *session) {
	c.mu.Lock()
	count, lease := s.remainLocked(nil, time.Now())
	dead, deadline := s.dead, s.latestLocked()
	c.mu.Unlock()
	if dead || count == 0 {
		return // nothing renews it, or the release that follows ends it
	}
	defer s.lowered()
	retry := newRetry()
	for {
		r, err := c.run.Run(context.Background(), s.Lock.kind.Release(s, count, lease, 0))
		switch {
		case err == nil && s.lowersMore(r):
			continue
		case err == nil, conn.IsPermanent(err):
			return // a lock that is gone shows at the next check
		case !sleep(context.Background(), c.closedLate, deadline, retry.NextBackOff()):
			return
		}
	}
}

// settleApart settles in the background.
func (c *Core) settleApart(s *session) {
	s.slot.retain()
	c.wg.Add(1)
	go func() { // ends with the server's answer or the lease
		defer c.wg.Done()
		defer s.slot.release()
		if s.slot.gate.enter(context.Background(), c.closedLate) {
			c.settle(s)
			s.slot.gate.leave()
		}
	}()
}
