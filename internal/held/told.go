package held

import (
	"context"
	"slices"

	"github.com/redlatch/redlatch/internal/observe"
)

// What an observer hears of a release.

// Who tells an observer of the end of a release: the Unlock that waits for it, until it gives
// up, or nobody's goroutine.
const (
	tellsUnlock int32 = iota
	tellsOther
	toldInTime // the Unlock's, for certain: the answer was there while it waited
)

// leave has the end told in the background: the Unlock gives up. It reports false if that came too
// late.
func (rel *Releasing) leave() bool {
	return rel.teller.CompareAndSwap(tellsUnlock, tellsOther) || rel.teller.Load() == tellsOther
}

// heard tells an observer of the end, if the Unlock that calls it does that.
func (rel *Releasing) heard() {
	if rel.teller.Load() == toldInTime {
		rel.tell()
	}
}

// tell tells an observer of the end.
func (rel *Releasing) tell() {
	rel.call.Done()
	for i, h := range rel.holds {
		if how := rel.ended[i]; how != "" {
			h.tellEnd(how, h.lasted())
		}
	}
	for i, end := range rel.ends {
		end(rel.errs[i])
	}
}

// tells reports whether a lost hold is one of the release's, which tells of it.
func (rel *Releasing) tells(h *Hold) bool {
	if rel == nil {
		return false
	}
	i := slices.Index(rel.holds, h)
	if i >= 0 {
		rel.ended[i] = h.howLost()
	}
	return i >= 0
}

// observe begins the observations; a command for several holds belongs to none of
// them, but to what the caller's ctx carries.
func (rel *Releasing) observe(ctx context.Context) {
	if rel.ends = rel.one.ends[:]; len(rel.holds) > 1 {
		rel.ends = make([]observe.End, len(rel.holds))
	}
	one := ctx
	for i, h := range rel.holds {
		one, rel.ends[i] = observe.Operation(ctx, rel.reg.cfg.Observer, h.session.Lock.Observed(), observe.Release, h.session.Name)
	}
	if len(rel.holds) == 1 {
		rel.values = one
	}
}
