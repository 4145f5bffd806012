package engine

import (
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
)

// A Lock without a deadline goes on trying through an outage, and its caller hears nothing: the log must tell.
const (
	outageTold  = 5 * time.Second // after so long without an answer that decides
	outageAgain = time.Minute     // of all acquisitions of a client together
)

// tellOfOutage tells that the acquisition has failed for some time, and goes on.
func (a *acquisition) tellOfOutage(err error) {
	if a.retry.GetElapsedTime() < outageTold || !a.core.outage.tell(time.Now()) {
		return
	}
	log, ctx, args := a.core.cfg.Log, a.values, append(a.Logged(), "error", err)
	a.core.cfg.News.Tell(func() {
		log.WarnContext(ctx, "redlatch: acquiring failed, retrying", observe.Resolve(args)...)
	})
}

// outage is when the log was last told of one. The zero value says never. It is safe for concurrent use.
type outage struct{ at atomic.Int64 }

// tell reports whether it is time to tell.
func (o *outage) tell(now time.Time) bool {
	last := o.at.Load()
	return (last == 0 || now.UnixNano()-last >= int64(outageAgain)) && o.at.CompareAndSwap(last, now.UnixNano())
}
