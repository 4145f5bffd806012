package multilock

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/lock"
)

// composeQuorum checks that the members can be the copies of one lock.
func (m *MultiLock) composeQuorum() {
	if m.addAll(); len(m.leaves) > 0 {
		m.name = m.leaves[0].name
	}
	if m.err != nil {
		return
	}
	first := m.leaves[0]
	for _, l := range m.leaves {
		switch {
		case l.eng == nil:
			m.err = m.refuse("a member is not a single lock on one server")
		case l.name != first.name:
			m.err = m.refuse(fmt.Sprintf("the members are named %q and %q: they must be copies of one lock", first.name, l.name))
		case l.eng.Kind().Traits().Queued:
			m.err = m.refuse("fair members: the queues of independent servers can wait for each other")
		case l.eng.Kind().Traits().Type != first.eng.Kind().Traits().Type:
			m.err = m.refuse("the members are of different kinds")
		case l.eng.Kind().Traits().Fenced != first.eng.Kind().Traits().Fenced:
			m.err = m.refuse("some members are fenced and some are not")
		}
		if m.err != nil {
			return
		}
	}
	if len(m.leaves) < len(m.members) { // of two of a client the second is the lock that is there already
		m.err = m.refuse("two members belong to one client, which means one server")
	}
}

// majority of n.
func majority(n int) int { return n/2 + 1 }

// perNode is how long one node is waited for in a round: far below the lease, so
// that a round with dead nodes leaves most of it.
func perNode(lease time.Duration) time.Duration {
	return min(max(lease/20, 10*time.Millisecond), 500*time.Millisecond)
}

// effective is the shortest lease that a copy is asked for, of an acquisition with a lease.
func (m *MultiLock) effective(lease time.Duration) time.Duration {
	out := m.leaves[0].eng.Core().LeaseTime()
	for _, l := range m.leaves[1:] {
		out = min(out, l.eng.Core().LeaseTime())
	}
	if lease > 0 {
		out = min(out, lease)
	}
	return out
}

// quorum is one acquisition of a majority.
type quorum struct {
	*acquisition
	need  int
	limit time.Duration // per node

	behind  *line // where it stands, or would
	fellow  *fellow
	turn    bool             // its turn has come
	granted []bool           // per leaf: the last round got it
	late    []atomic.Bool    // per leaf: it was granted when the round was over; cleared by the next answer
	splits  int              // rounds that got some copies, since one that got none
	trip    time.Duration    // how long a majority took to answer in the last round
	bids    []*engine.Bid    // per leaf
	watches []*engine.Watch  // per leaf; nil: not listening
	trouble []lock.NodeError // per leaf: how it failed, until it answers again
}

func (a *acquisition) takeQuorum() (*hold, error) {
	n := len(a.m.leaves)
	a.signal = make(chan struct{}, 1)
	q := &quorum{
		acquisition: a, need: majority(n), limit: perNode(a.m.effective(a.lease)),
		bids: make([]*engine.Bid, n), watches: make([]*engine.Watch, n), trouble: make([]lock.NodeError, n), granted: make([]bool, n),
		late: make([]atomic.Bool, n),
	}
	for i, l := range q.m.leaves {
		q.bids[i] = l.eng.Bid(q.once, q.began)
	}
	q.behind = q.line()
	defer func() { q.behind.leave(q.turn) }()
	q.fellow = q.behind.s.join(q)
	defer q.fellow.leave()
	if !q.once && q.standBehind() {
		for i, l := range q.m.leaves { // as those found who had their turn
			q.trouble[i] = q.behind.lastTrouble(l.eng.Core().ID())
		}
		q.last = q.away(q.behind.inTheWay())
		return nil, q.notAcquired(q.last)
	}
	var h *hold
	defer func() {
		for i, w := range q.watches {
			q.bids[i].Drop()
			if w != nil {
				w.Leave(h.of(i))
			}
		}
	}()
	h, err := q.run()
	if h != nil {
		q.fellow.tell()
	}
	return h, err
}

// standBehind waits until those who came before have had their turn; over says that the wait ended
// first. An owner that is inside goes on without a turn: it must not stand behind others who wait
// for its end.
func (q *quorum) standBehind() (over bool) {
	for !q.inside() {
		ctx, cancel := q.limited()
		entered, told := q.behind.enter(ctx, q.fellow)
		cancel()
		if q.turn = entered; entered || !told {
			return !entered
		}
	}
	return false
}

// rest pauses before the next round. Meanwhile the turn is that of the next in line: what this one
// can't have (its lease is too short for slow servers) they may get. Afterwards it stands behind them.
func (q *quorum) rest() error {
	q.dropBids(func(leaf) bool { return true })
	if q.turn {
		q.turn = false
		q.behind.gate.Leave()
	}
	if err := q.sleep(); err != nil {
		return err
	}
	if q.standBehind() {
		return q.notAcquired(q.last)
	}
	return nil
}

// dropBids gives up what is kept on some of the copies between rounds; the next round begins anew there.
func (q *quorum) dropBids(which func(leaf) bool) {
	for i, l := range q.m.leaves {
		if which(l) {
			q.bids[i].Drop()
			q.bids[i] = l.eng.Bid(q.once, q.began)
		}
	}
}

// inside reports whether the owner holds a copy, in any mode.
func (q *quorum) inside() bool {
	return slices.ContainsFunc(q.m.leaves, func(l leaf) bool { return l.eng.Inside(q.ctx) })
}

// line is where the acquisitions of these copies in this process stand. Who wants others of the
// same name may get them meanwhile.
func (q *quorum) line() *line {
	ids := q.m.clients()
	home := q.m.leaves[slices.IndexFunc(q.m.leaves, func(l leaf) bool { return l.eng.Core().ID() == ids[0] })].eng
	return stateOf(home).line(string(home.Kind().Traits().Mode) + ":" + strings.Join(ids, ",") + ":" + home.Key())
}

// run makes rounds until one is won. Those in line hear what they come to.
func (q *quorum) run() (*hold, error) {
	for {
		if q.m.closed(q.ctx) {
			return nil, lock.ErrClosed
		}
		h, err := q.tryRound()
		if q.turn { // else it may be about this owner
			q.behind.saw(err)
		}
		if err == nil {
			return h, nil
		}
		if err := q.verdict(err); err != nil {
			return nil, err
		}
		if err := q.wait(err); err != nil {
			return nil, err
		}
	}
}

// note tells those in line how copy i is of no use to the one that has its turn, or that it is. Whoever asks without a
// turn may be refused for what its owner holds, or asks for.
func (q *quorum) note(i int) {
	if q.turn {
		q.behind.note(q.m.leaves[i].eng.Core().ID(), q.trouble[i])
	}
}

// away adds the nodes that failed to why no majority was won, if because of them none
// can have answered.
func (q *quorum) away(why error) error {
	away := q.m.troubled(q.trouble)
	if len(away) <= q.spare() {
		return why
	}
	return q.m.unavailable(why, away)
}

// spare is how many nodes a majority can do without.
func (q *quorum) spare() int { return len(q.m.leaves) - q.need }

// permanent reports whether a node's error is one that another round won't change.
func permanent(err error) bool {
	var refused *lock.ServerError
	return errors.As(err, &refused) || errors.Is(err, lock.ErrClosed) || errors.Is(err, lock.ErrInvalidName) ||
		errors.Is(err, lock.ErrInvalidOption) || errors.Is(err, lock.ErrUpgrade)
}

// answer is what one node said.
type answer struct {
	i int
	engine.Attempted
	broke any // it panicked with that
}

// tryRound asks all nodes at once. When it fails nothing is kept: what was taken
// is given back, also what is taken later by an attempt that is still under way.
func (q *quorum) tryRound() (*hold, error) {
	attempt(q.obs)
	n := len(q.m.leaves)
	c := count{q: q, got: make([]*answer, n), limit: q.limit}
	if !q.until.IsZero() {
		c.limit = min(q.limit, max(time.Until(q.until), time.Millisecond))
	}
	began := time.Now()
	q.trip = c.limit
	answers := make(chan answer, n)
	for i, bid := range q.bids {
		go func() { // ends after limit
			a := answer{i: i, Attempted: engine.Attempted{Err: errBroken}}
			defer func() { answers <- a }()
			a.broke = caught(func() { a.Attempted = bounded(q.m.leaves[i], bid.Try(q.ctx, c.limit, q.lease)) })
		}()
	}
	over := false
	defer func() {
		if !over { // a panic in the user's code: nobody gets what was taken
			c.drop()
			go discard(answers, n-c.answered) // ends after limit
		}
	}()
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
			if a.broke != nil {
				c.answered++
				panic(a.broke)
			}
			if c.add(a); c.answered == q.need {
				q.trip = time.Since(began)
			}
			continue
		case <-grace:
		}
		break
	}
	h, err := c.verdict()
	if over = true; c.answered < n {
		go q.stragglers(h, answers, n-c.answered) // ends after limit
	}
	return h, err
}

// boundedToken is the largest token that a quorum takes from one member: it is written to the others, and a
// counter that is wrong must not use theirs up. The clocks of servers come there in the year 2112.
const boundedToken = 1 << 52

// bounded gives a copy back whose token is too large.
func bounded(l leaf, a engine.Attempted) engine.Attempted {
	if a.Hold == nil || a.Hold.Token() <= boundedToken {
		return a
	}
	a.Err = &lock.ServerError{Name: l.name, Op: "acquire", Err: fmt.Errorf(
		"its fencing counter stands at %d, and a quorum takes no token above 2^52 from a member: delete the counter", a.Hold.Token())}
	a.Hold.Drop()
	a.Hold = nil
	return a
}

// stragglers takes what comes after the round was decided: copies for a hold that
// was won, which makes it safer; anything else is given back.
func (q *quorum) stragglers(h *hold, answers <-chan answer, missing int) {
	for range missing {
		a := <-answers
		broke := a.broke
		if a.Hold != nil {
			broke = caught(func() { q.straggler(h, a) })
		}
		if broke != nil { // whose it is has gone
			q.m.core().Tell(func() { panic(broke) })
		}
	}
}

// straggler makes a copy one of the hold's, or gives it back.
func (q *quorum) straggler(h *hold, a answer) {
	p, done := q.part(a), false
	defer func() {
		if !done { // a panic in code of the user's
			p.drop()
		}
	}()
	if h == nil || !q.joins(h, a) || !h.adopt(p) {
		q.late[a.i].Store(true)
		p.release(context.WithoutCancel(q.ctx), time.Now())
	}
	done = true
}

// discard gives back what comes after a round that ended in a panic. Of several panics the caller
// has heard one.
func discard(answers <-chan answer, missing int) {
	for range missing {
		if a := <-answers; a.Hold != nil {
			a.Hold.Drop()
		}
	}
}

// joins reports whether a copy that was taken after the round was won may be one of the hold's: of
// a young node, too; see count.keep. Like the others' its counter must not be behind the hold's
// token: it may outlive one of those, and be what the next quorum has in common with this one.
func (q *quorum) joins(h *hold, a answer) bool {
	if !a.Known || !a.Hold.LowerToken(h.token) {
		return false
	}
	stateOf(q.m.leaves[a.i].eng).saw(a.Server.RunID)
	return a.Hold.Token() == h.token ||
		a.Hold.RaiseToken(context.WithoutCancel(q.ctx), h.token, q.limit) == nil
}

func (q *quorum) part(a answer) *part {
	return &part{leaves: q.m.leaves[a.i : a.i+1], eng: []*held.Hold{a.Hold}}
}

// trusted reports whether the node knows of every holder of the lock that may still be there: this
// client has seen its present run for long enough, or has proof; see count.newDeployment. age is how
// long it has seen it.
func (q *quorum) trusted(a answer) (age time.Duration, trusted bool) {
	if !a.Known {
		return 0, false
	}
	s := stateOf(q.m.leaves[a.i].eng)
	age, old := s.saw(a.Server.RunID)
	return age, old || s.knowsFree(a.Server.RunID, q.use(a.i))
}

// use is what the quorum wants of leaf i.
func (q *quorum) use(i int) use {
	l := q.m.leaves[i].eng
	return use{l.Key(), l.Kind().Traits().Mode}
}
