package multilock

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/lock"
)

// count is a round being counted.
type count struct {
	q        *quorum
	got      []*answer
	answered int
	won      int // held, on nodes that are trusted
	young    int // held, on nodes of which it is not known yet whether they forgot something
	failed   int
}

func (c *count) add(a answer) {
	c.got[a.i] = &a
	c.answered++
	trusted := c.q.trusted(a)
	switch {
	case a.Hold == nil:
		c.failed++
	case trusted:
		c.won++
	default:
		c.young++
	}
}

// decided reports whether the round is lost whatever else comes. Not before each
// server has been seen once: two of them may be one.
func (c *count) decided() bool {
	return c.failed > len(c.got)-c.q.need && c.knowsAll()
}

func (c *count) knowsAll() bool {
	for i, l := range c.q.m.leaves {
		if c.got[i] == nil && stateOf(l.eng.Core()).lastServer() == "" {
			return false
		}
	}
	return true
}

// verdict says what the round came to, and frees what it took unless it is won.
func (c *count) verdict() (*hold, error) {
	q := c.q
	var parts []*part
	c.newDeployment()
	err := c.sameServer()
	for _, a := range c.got {
		if a != nil && a.Hold != nil {
			parts = append(parts, q.part(*a))
		}
	}
	q.split = len(parts) > 0
	if err == nil {
		if c.won < q.need {
			err = c.lost()
		} else {
			var kept, rest []*part
			kept, rest, err = c.keep()
			if err == nil {
				if len(rest) > 0 {
					q.release(rest)
				}
				return newHold(q.plain, q.m, kept, q.need), nil
			}
		}
	}
	q.release(parts)
	return nil, err
}

// newDeployment trusts young servers when all of them are young and none was seen
// before: then nothing restarted, everything was started for the first time.
func (c *count) newDeployment() {
	if c.answered < len(c.got) || c.won > 0 {
		return
	}
	for i, a := range c.got {
		core := c.q.m.leaves[i].eng.Core()
		if !a.Known {
			return
		}
		if _, before := stateOf(core).saw(a.Server.RunID, a.Server.Uptime, c.q.quarantine(core)); before {
			return
		}
	}
	for i, a := range c.got {
		stateOf(c.q.m.leaves[i].eng.Core()).saw(a.Server.RunID, math.MaxInt64, 0)
	}
	c.won, c.young = c.young, 0
}

// sameServer finds two members on one server.
func (c *count) sameServer() error {
	seen := map[string]int{}
	for i, l := range c.q.m.leaves {
		id := stateOf(l.eng.Core()).lastServer()
		if a := c.got[i]; a != nil && a.Known {
			id = a.Server.RunID
		}
		if id == "" {
			continue
		}
		if j, ok := seen[id]; ok {
			return refuseQuorum(fmt.Sprintf("members %d and %d are on one server (run_id %s)", j+1, i+1, id))
		}
		seen[id] = i
	}
	return nil
}

// lost says why no majority was won.
func (c *count) lost() error {
	q := c.q
	out := &lock.NotAcquiredError{Name: q.m.name}
	var away []lock.NodeError
	closed := 0
	for i, l := range q.m.leaves {
		core, a := l.eng.Core(), c.got[i]
		var busy *lock.NotAcquiredError
		var un *lock.UnavailableError
		switch {
		case a == nil:
			away = append(away, lock.NodeError{Node: core.Addr(), Err: errNoAnswerInTime})
		case a.Hold != nil && q.trusted(*a):
		case a.Hold != nil:
			away = append(away, lock.NodeError{Node: core.Addr(), Err: fmt.Errorf(
				"the server was started %v ago and may have forgotten locks: it counts in no quorum until it has been up for %v",
				a.Server.Uptime, q.quarantine(core))})
		case errors.As(a.Err, &busy):
			if busy.Remaining > out.Remaining {
				out.Holder, out.Remaining = busy.Holder, busy.Remaining
			}
			if out.Holder == "" {
				out.Holder = busy.Holder
			}
		case errors.As(a.Err, &un) && len(un.Nodes) > 0:
			away = append(away, un.Nodes...)
		default:
			if errors.Is(a.Err, lock.ErrClosed) {
				closed++
			}
			if errors.Is(a.Err, lock.ErrUpgrade) {
				return a.Err
			}
			away = append(away, lock.NodeError{Node: core.Addr(), Err: a.Err})
		}
	}
	switch {
	case q.ctx.Err() != nil:
		return q.ended()
	case closed > len(c.got)-q.need:
		return lock.ErrClosed
	case len(away) > len(c.got)-q.need:
		return &lock.UnavailableError{Name: q.m.name, Op: "acquire", Nodes: away}
	}
	return out
}

var errNoAnswerInTime = errors.New("no answer within the time limit of a node")

// keep decides which of the trusted copies make the hold, and gives all of them
// the whole's token. It fails when too few are still valid then.
func (c *count) keep() (kept, rest []*part, err error) {
	q := c.q
	// The token of a re-entry is that of the hold that it re-enters; of a new
	// hold it is the largest, since a copy whose counter is behind may be the one that
	// the next quorum has in common with this one.
	var token, entered uint64
	again := false
	for _, a := range c.got {
		if a != nil && a.Hold != nil && q.trusted(*a) {
			token = max(token, a.Hold.Token())
			if a.Hold.Reentry() {
				again = true
				entered = max(entered, a.Hold.Token())
			}
		}
	}
	if again && entered > 0 {
		token = entered
	}
	for _, a := range c.got {
		switch {
		case a == nil || a.Hold == nil:
		case !q.trusted(*a) || a.Hold.Token() > token:
			rest = append(rest, q.part(*a))
		default:
			kept = append(kept, q.part(*a))
		}
	}
	if token > 0 {
		kept, rest = q.raise(kept, rest, token)
	}
	now, valid := time.Now(), 0
	for _, p := range kept {
		if h := p.eng[0]; !held.Passed(now, h.ValidUntil()) && !errors.Is(context.Cause(h.Context()), lock.ErrLeaseLost) {
			valid++
		}
	}
	if valid < q.need {
		return nil, nil, errTooLate
	}
	return kept, rest, nil
}

// raise writes the token to the copies that are behind. Those that do not confirm
// it are not part of the hold.
func (q *quorum) raise(parts, rest []*part, token uint64) (kept, dropped []*part) {
	errs := make([]error, len(parts))
	var wg sync.WaitGroup
	for i, p := range parts {
		if p.eng[0].Token() < token {
			wg.Go(func() { errs[i] = p.leaves[0].eng.RaiseToken(q.ctx, p.eng[0], token, q.limit) }) // ends after limit
		}
	}
	wg.Wait()
	for i, p := range parts {
		if errs[i] == nil {
			kept = append(kept, p)
		} else {
			rest = append(rest, p)
		}
	}
	return kept, rest
}
