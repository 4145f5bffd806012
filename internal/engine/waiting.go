package engine

import (
	"slices"
	"sync"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/sender"
)

// Waiting lists the acquisitions that wait, the longest-waiting first, and how many were found: of more than so many
// some are looked at. One whose first command has no answer yet is none of them; see Troubled. Who waits pays nothing
// for it: they are where they stand in line, follow another reader, or pause after an error.
func (c *Core) Waiting(most int) []observe.Waiting {
	all := slices.Concat(c.hub.Waits(most), c.reg.Follows(c.cfg.ID, most), c.pausing.list(most))
	slices.SortFunc(all, func(a, b observe.Waiting) int { return a.Since.Compare(b.Since) })
	return all
}

// Troubled are the servers that failed since they last answered, or are silent.
func (c *Core) Troubled() []sender.Trouble {
	all := c.send.Troubled()
	for i := range all {
		if all[i].Node == "" {
			all[i].Node = c.cfg.Addr
		}
	}
	return all
}

// Masters tells which nodes of a cluster have slots. It does not block.
func (c *Core) Masters(addrs []string) {
	c.hub.Masters(addrs)
	c.send.Masters(addrs)
}

// Waits implements pubsub.Member.
func (a *acquisition) Waits() observe.Waiting {
	a.mu.Lock()
	defer a.mu.Unlock()
	m := a.about()
	owner := m.attempt.Entry
	if owner == "" { // it has asked for nothing yet
		owner = string(a.owner.AppendText([]byte(a.core.cfg.ID + ":")))
	}
	return observe.Waiting{Lock: m.lock.of.Observed(), Owner: owner, Since: a.began}
}

// Logged implements pubsub.Member: a quorum's owner is not known to each of its copies.
func (w *Watch) Logged() []any {
	l := w.l.of.Observed()
	return []any{"lock", l.Name, "type", l.Type}
}

// Waits implements pubsub.Member.
func (w *Watch) Waits() observe.Waiting {
	return observe.Waiting{Lock: w.l.of.Observed(), Since: w.since}
}

// pauses are the acquisitions that pause after an error, and stand in no line yet.
type pauses struct {
	mu  sync.Mutex
	all map[*acquisition]struct{} // guarded by mu
}

// enter counts an acquisition in until leave.
func (p *pauses) enter(a *acquisition) (leave func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[*acquisition]struct{}{}
	}
	p.all[a] = struct{}{}
	return func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.all, a)
	}
}

func (p *pauses) list(most int) (out []observe.Waiting) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for a := range p.all {
		if len(out) == most {
			break
		}
		out = append(out, a.Waits())
	}
	return out
}
