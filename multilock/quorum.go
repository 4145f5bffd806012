package multilock

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/cenkalti/backoff/v4"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// composeQuorum checks that the members can be the copies of one lock.
func (m *MultiLock) composeQuorum() {
	if len(m.members) == 0 {
		m.err, m.name = refuseQuorum("it has no member"), "[]"
		return
	}
	m.tokens = make([][]int, len(m.members))
	for i, member := range m.members {
		m.add(i, member)
	}
	if len(m.leaves) > 0 {
		m.name = m.leaves[0].name
	}
	if m.err != nil {
		return
	}
	first := m.leaves[0]
	for i, l := range m.leaves {
		switch {
		case l.eng == nil:
			m.err = refuseQuorum("a member is no lock of one name on one server")
		case l.name != first.name:
			m.err = refuseQuorum(fmt.Sprintf("the members are named %q and %q: they must be copies of one lock", first.name, l.name))
		case l.eng.Kind().Traits().Queued:
			m.err = refuseQuorum("fair members: the queues of independent servers can wait for each other")
		case l.eng.Kind().Traits().Type != first.eng.Kind().Traits().Type:
			m.err = refuseQuorum("the members are of different kinds")
		case l.eng.Kind().Traits().Fenced != first.eng.Kind().Traits().Fenced:
			m.err = refuseQuorum("some members are fenced and some are not")
		}
		for _, other := range m.leaves[:i] {
			if l.eng != nil && other.eng != nil && l.eng.Core() == other.eng.Core() {
				m.err = refuseQuorum("two members are of one client: that is one server")
			}
		}
		if m.err != nil {
			return
		}
	}
	if len(m.leaves) < len(m.members) {
		m.err = refuseQuorum("two members are of one client: that is one server")
	}
}

func refuseQuorum(reason string) error {
	return &lock.InvalidOptionError{Option: "QuorumLock", Reason: reason}
}

// majority of n.
func majority(n int) int { return n/2 + 1 }

// perNode is how long one node is waited for in a round: far below the lease, so
// that a round with dead nodes leaves most of it.
func perNode(lease time.Duration) time.Duration {
	return min(max(lease/20, 10*time.Millisecond), 500*time.Millisecond)
}

// effective is the lease that an acquisition gets.
func (m *MultiLock) effective(lease time.Duration) time.Duration {
	if lease > 0 {
		return lease
	}
	out := m.leaves[0].eng.Core().LeaseTime()
	for _, l := range m.leaves[1:] {
		out = min(out, l.eng.Core().LeaseTime())
	}
	return out
}

// quorum is one acquisition of a majority.
type quorum struct {
	ctx   context.Context // with the whole's span
	plain context.Context // without: what the hold is made with
	obs   observe.Acquisition
	m     *MultiLock
	need  int
	once  bool
	until time.Time // zero: no limit
	lease time.Duration
	limit time.Duration // per node

	pause   *backoff.ExponentialBackOff
	split   bool // the last round got some nodes
	signal  chan struct{}
	watches []*engine.Watch // per leaf; nil: not listening
	last    error
}

func (m *MultiLock) takeQuorum(plain, ctx context.Context, obs observe.Acquisition, once bool, until time.Time, lease time.Duration) (*hold, error) {
	q := &quorum{
		ctx: ctx, plain: plain, obs: obs, m: m, need: majority(len(m.leaves)), once: once, until: until, lease: lease,
		limit: perNode(m.effective(lease)), signal: make(chan struct{}, 1), watches: make([]*engine.Watch, len(m.leaves)),
		pause: newPause(),
	}
	if once {
		return q.tryRound()
	}
	if !q.reenters() {
		line := q.line()
		entered := q.enter(line)
		defer line.leave(entered)
		if !entered {
			return nil, q.ended()
		}
	}
	h, err := q.run()
	for i, w := range q.watches {
		if w != nil {
			w.Leave(h.of(i))
		}
	}
	if err != nil {
		return nil, err
	}
	return h, nil
}

// line is where the acquisitions of this name in this process stand.
func (q *quorum) line() *line {
	home := q.m.leaves[0].eng
	for _, l := range q.m.leaves[1:] {
		if l.eng.Core().ID() < home.Core().ID() {
			home = l.eng
		}
	}
	return stateOf(home.Core()).line(string(home.Kind().Traits().Mode) + ":" + home.Key())
}

func (q *quorum) enter(line *line) bool {
	if q.until.IsZero() {
		return line.enter(q.ctx)
	}
	ctx, cancel := context.WithDeadline(q.ctx, q.until)
	defer cancel()
	return line.enter(ctx)
}

// reenters reports whether the owner holds copies already: it must not stand
// behind others who wait for it.
func (q *quorum) reenters() bool {
	for _, l := range q.m.leaves {
		if l.eng.Holds(q.ctx) {
			return true
		}
	}
	return false
}

// run makes rounds until one is won.
func (q *quorum) run() (*hold, error) {
	for {
		h, err := q.tryRound()
		switch {
		case err == nil:
			return h, nil
		case q.ctx.Err() != nil && !errors.Is(err, q.ctx.Err()):
			q.last = err
			return nil, q.ended()
		case q.final(err):
			return nil, err
		}
		q.last = err
		if err := q.wait(err); err != nil {
			return nil, err
		}
	}
}

// final reports whether another round is no use.
func (q *quorum) final(err error) bool {
	var un *lock.UnavailableError
	switch {
	case q.ctx.Err() != nil, !q.until.IsZero() && !time.Now().Before(q.until):
		return true
	case errors.Is(err, lock.ErrNotAcquired), errors.Is(err, errTooLate):
		return false
	case errors.As(err, &un):
		// refused for good by so many that no majority can come
		refused := 0
		for _, n := range un.Nodes {
			if permanent(n.Err) {
				refused++
			}
		}
		return refused > len(q.m.leaves)-q.need
	}
	return true
}

// permanent reports whether a node's error is one that another round won't change.
func permanent(err error) bool {
	var refused *lock.ServerError
	return errors.As(err, &refused) || errors.Is(err, lock.ErrClosed) || errors.Is(err, lock.ErrInvalidName)
}

// answer is what one node said.
type answer struct {
	i int
	engine.Attempted
}

// tryRound asks all nodes at once. When it fails nothing is kept: what was taken
// is given back, also what is taken later by an attempt that is still under way.
func (q *quorum) tryRound() (*hold, error) {
	attempt(q.obs)
	n := len(q.m.leaves)
	limit := q.limit
	if !q.until.IsZero() {
		limit = min(limit, max(time.Until(q.until), time.Millisecond))
	}
	began := time.Now()
	answers := make(chan answer, n)
	for i, l := range q.m.leaves {
		go func() { answers <- answer{i, l.eng.Try(q.ctx, limit, q.lease)} }() // ends after limit
	}
	c := count{q: q, got: make([]*answer, n)}
	var grace <-chan time.Time
	for c.answered < n && !c.decided() {
		if grace == nil && c.won >= q.need && c.knowsAll() {
			// A majority is there. The others get some time more, so that the hold can
			// afford to lose one, but not all of theirs.
			t := time.NewTimer(max(2*time.Since(began), 5*time.Millisecond))
			defer t.Stop()
			grace = t.C
		}
		select {
		case a := <-answers:
			c.add(a)
			continue
		case <-grace:
		}
		break
	}
	h, err := c.verdict()
	if c.answered < n {
		go q.stragglers(h, answers, n-c.answered) // ends after limit
	}
	return h, err
}

// stragglers takes what comes after the round was decided: copies for a hold that
// was won, which makes it safer; anything else is given back.
func (q *quorum) stragglers(h *hold, answers <-chan answer, missing int) {
	for range missing {
		a := <-answers
		if a.Hold == nil {
			continue
		}
		p := q.part(a)
		if h == nil || !q.joins(h, a) || !h.adopt(p) {
			p.release(context.WithoutCancel(q.ctx))
		}
	}
}

// joins reports whether a copy that was taken after the round was won may be one of
// the hold's. Like the others it must have the hold's token: it may outlive one of
// those, and be what the next quorum has in common with this one.
func (q *quorum) joins(h *hold, a answer) bool {
	token := h.Token()
	switch {
	case !q.trusted(a) || a.Hold.Token() > token:
		return false
	case a.Hold.Token() == token:
		return true
	}
	return q.m.leaves[a.i].eng.RaiseToken(context.WithoutCancel(q.ctx), a.Hold, token, q.limit) == nil
}

func (q *quorum) part(a answer) *part {
	return &part{leaves: q.m.leaves[a.i : a.i+1], eng: []*held.Hold{a.Hold}}
}

// trusted reports whether the node has been up for long enough to know of every
// lock that was taken on it and may still be held.
func (q *quorum) trusted(a answer) bool {
	if !a.Known {
		return false
	}
	core := q.m.leaves[a.i].eng.Core()
	ok, _ := stateOf(core).saw(a.Server.RunID, a.Server.Uptime, q.quarantine(core))
	return ok
}

// quarantine is how long a restarted node stays out.
func (q *quorum) quarantine(core *engine.Core) time.Duration { return max(core.LeaseTime(), q.lease) }

// release gives the parts back and waits for the answers, no longer than a node
// may take.
func (q *quorum) release(parts []*part) {
	notify := make(chan *held.Releasing, len(parts))
	for _, p := range parts {
		held.Release(q.ctx, p.eng, notify)
	}
	if q.ctx.Err() != nil {
		return
	}
	t := time.NewTimer(q.limit)
	defer t.Stop()
	for range parts {
		select {
		case <-notify:
		case <-t.C:
			return
		}
	}
}

// ended says why the wait ended.
func (q *quorum) ended() error {
	if q.ctx.Err() == nil {
		for _, l := range q.m.leaves {
			select {
			case <-l.eng.Core().Draining():
				return lock.ErrClosed
			default:
			}
		}
		if q.last != nil {
			return q.last
		}
		return &lock.NotAcquiredError{Name: q.m.name}
	}
	out := &lock.NotAcquiredError{Name: q.m.name, Err: engine.CtxError(q.ctx)}
	var busy *lock.NotAcquiredError
	switch {
	case errors.As(q.last, &busy):
		out.Holder, out.Remaining = busy.Holder, busy.Remaining
	case q.last != nil:
		out.Err = errors.Join(out.Err, q.last)
	}
	return out
}
