package multilock

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// count is a round being counted.
type count struct {
	q        *quorum
	limit    time.Duration // per node: less than the quorum's at the end of a wait
	got      []*answer
	answered int
	won      int     // held, on nodes that are trusted
	busy     int     // held by another owner
	refused  []error // by nodes that will say so again
	failed   int
}

func (c *count) add(a answer) {
	q := c.q
	q.late[a.i].Store(false)
	c.got[a.i] = &a
	c.answered++
	if a.Hold == nil {
		c.failed++
	}
	defer q.note(a.i)
	age, trusted := q.trusted(a)
	nodes := nodesOf(a.Err)
	trouble := &q.trouble[a.i]
	node := q.m.leaves[a.i].eng.Core().Addr()
	was := trouble.Err
	trouble.Node, trouble.Err = node, nil
	switch {
	case permanent(a.ServerErr): // it can be trusted in no round
		trouble.Err = a.ServerErr
		c.refused = append(c.refused, *trouble)
	case nodes != nil:
		trouble.Err = nodes[0].Err
	case permanent(a.Err):
		trouble.Err = a.Err
		c.refused = append(c.refused, *trouble)
	case a.Hold != nil && trusted:
		c.won++
	case a.Hold != nil:
		if trouble.Err = a.ServerErr; trouble.Err == nil {
			trouble.Err = fmt.Errorf("this client has seen the server's present run for %v only, and an earlier one may have granted what is still held: "+
				"it does not count in a quorum before %v, unless all %d servers grant the lock",
				age.Round(time.Millisecond), stateOf(q.m.leaves[a.i].eng).quarantine(), len(c.got))
		}
	case !observe.Waited(a.Err):
		trouble.Err = a.Err
	case a.Known || a.ServerErr != nil:
		c.busy++
	case c.limit == q.limit && q.ctx.Err() == nil:
		trouble.Err = errNoAnswerInTime
	default: // it was not given the time to answer
		trouble.Err = was
	}
}

// decided reports whether the round is lost whatever else comes, and why. Not before
// each server has been seen once: two of them may be one.
func (c *count) decided() bool {
	spare := c.q.spare()
	if c.failed <= spare || !c.knowsAll() {
		return false
	}
	away := 0
	for _, a := range c.got {
		if a != nil && c.q.trouble[a.i].Err != nil {
			away++
		}
	}
	return c.busy >= c.q.need || away > spare
}

func (c *count) knowsAll() bool {
	for i, l := range c.q.m.leaves {
		if c.got[i] == nil && stateOf(l.eng).lastServer() == "" {
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
	for i, a := range c.got {
		if q.granted[i] = a != nil && a.Hold != nil; q.granted[i] {
			parts = append(parts, q.part(*a))
		}
	}
	if err == nil && c.won < q.need {
		err = c.lost()
	}
	if err == nil {
		kept, rest, token, late := c.keep()
		if err = late; err == nil {
			q.giveBack(rest, q.limit)
			h := newHold(q.plain, q.m, kept, q.need)
			h.token = token
			return h, nil
		}
	}
	q.giveBack(parts, q.limit)
	return nil, err
}

// drop gives back what was taken; see part.drop.
func (c *count) drop() {
	for _, a := range c.got {
		if a != nil && a.Hold != nil {
			c.q.part(*a).drop()
		}
	}
}

// newDeployment counts young servers when this client has seen no server restart, and all have granted
// the lock. If some did restart before, a hold that they have forgotten still has a copy on another one,
// which would not have granted: unless a majority restarted within a lease, no hold can have lost all its
// copies. That is known of this lock and mode alone, so each needs all the servers once. What the same runs
// grant of it later counts without the others.
func (c *count) newDeployment() {
	q := c.q
	if c.won >= q.need || c.answered < len(c.got) {
		return
	}
	for i, a := range c.got {
		if !a.Known || stateOf(q.m.leaves[i].eng).hasRestarted() {
			return
		}
	}
	now, all := time.Now(), true
	for i, a := range c.got {
		all = all && a.Hold != nil && !lease.Passed(now, a.Hold.ValidUntil())
		if a.Hold != nil { // that it is young is not what is in the way
			q.trouble[i].Err = nil
			q.note(i)
		}
	}
	if !all {
		return
	}
	for i, a := range c.got {
		stateOf(q.m.leaves[i].eng).wasFree(a.Server.RunID, q.use(i))
	}
	c.won = len(c.got)
}

// sameServer finds two members on one server.
func (c *count) sameServer() error {
	seen := map[string]int{}
	for i, l := range c.q.m.leaves {
		id := stateOf(l.eng).lastServer()
		if a := c.got[i]; a != nil && a.Known {
			id = a.Server.RunID
		}
		if id == "" {
			continue
		}
		if j, ok := seen[id]; ok {
			return c.q.m.refuse(fmt.Sprintf("members %d and %d of lock %q are on one server (run_id %s)", j+1, i+1, c.q.m.name, id))
		}
		seen[id] = i
	}
	return nil
}

// lost says why no majority was won.
func (c *count) lost() error {
	q := c.q
	out := &lock.NotAcquiredError{Name: q.m.name}
	var held []*lock.NotAcquiredError
	closed := 0
	for _, a := range c.got {
		var busy *lock.NotAcquiredError
		switch {
		case a == nil:
		case errors.Is(a.Err, lock.ErrUpgrade):
			return a.Err
		case errors.Is(a.Err, lock.ErrClosed):
			closed++
		case errors.As(a.Err, &busy) && (busy.Holder != "" || busy.Remaining > 0):
			held = append(held, busy)
		}
	}
	busy := q.inTheWay(held)
	if busy == nil && c.limit < q.limit { // the nodes may not have had the time to say so
		errors.As(q.behind.inTheWay(), &busy)
	}
	if busy != nil {
		out.Holder, out.Remaining, out.Own, out.Age = busy.Holder, busy.Remaining, busy.Own, busy.Age
	}
	switch {
	case closed > q.spare():
		return lock.ErrClosed
	case len(c.refused) > q.spare():
		return c.refusal()
	}
	return q.away(out)
}

// inTheWay is the holder whose lease ends last of those that must end before a majority can be
// free, nil if nobody is in the way. Other nodes may be held for longer: by who has died with a
// long lease on a minority.
func (q *quorum) inTheWay(held []*lock.NotAcquiredError) *lock.NotAcquiredError {
	if len(held) == 0 {
		return nil
	}
	lasts := func(e *lock.NotAcquiredError) time.Duration {
		if e.Remaining == 0 {
			return math.MaxInt64 // a key without a lease
		}
		return e.Remaining
	}
	slices.SortFunc(held, func(a, b *lock.NotAcquiredError) int { return cmp.Compare(lasts(a), lasts(b)) })
	free := len(q.m.leaves) - len(held) // or not known
	return held[max(q.need-1-free, 0)]
}

// refusal is what so many nodes said for good that no majority can come.
func (c *count) refusal() error {
	all := lock.Join(c.refused...)
	var refused *lock.ServerError
	if !errors.As(all, &refused) {
		return all
	}
	return &lock.ServerError{Name: c.q.m.name, Op: refused.Op, Err: all}
}

// errHoldLate: others may have taken the place of a slow copy of the hold meanwhile.
var errHoldLate = errors.New("too few copies of the hold to re-enter answered in time")

var errNoAnswerInTime = errors.New("no answer within the time limit of a node")

// keep decides which copies make the hold, and gives all of them the whole's token. It fails when too few
// are still valid then. A round that a majority of trusted nodes has won proves that nobody else has the
// lock: so the copies of young nodes are the hold's, too.
func (c *count) keep() (kept, rest []*part, token uint64, err error) {
	q := c.q
	// The token of a new hold is the largest, since a copy whose counter is behind may be the
	// one that the next quorum has in common with this one. The token of a re-entry is that
	// of the hold that it re-enters: of one that has a majority still, so that nobody else
	// can have had the lock meanwhile.
	again, local := map[uint64]int{}, map[uint64]int{}
	now, votes := time.Now(), 0
	for _, a := range c.got {
		if a == nil || a.Hold == nil || !a.Known {
			continue
		}
		if _, trusted := q.trusted(*a); trusted && q.part(*a).valid(now) {
			votes++
		}
		token = max(token, a.Hold.Token())
		again[c.outer(a.i)]++
	}
	if votes < q.need {
		return nil, nil, 0, errTooLate
	}
	for i := range q.m.leaves {
		local[c.outer(i)]++
	}
	for t, n := range local {
		switch {
		case t == 0 || n < q.need:
		case again[t] < q.need: // copies that were slow; if they were lost, that is found out
			return nil, nil, 0, errHoldLate
		default:
			token = t
		}
	}
	for _, a := range c.got {
		switch {
		case a == nil || a.Hold == nil:
		case !a.Known || !a.Hold.LowerToken(token):
			rest = append(rest, q.part(*a))
		default:
			kept = append(kept, q.part(*a))
		}
	}
	if token > 0 {
		kept, rest = q.raise(kept, rest, token)
	}
	valid := 0
	now = time.Now()
	for _, p := range kept {
		if p.valid(now) {
			valid++
		}
	}
	if valid < q.need {
		return nil, nil, 0, errTooLate
	}
	return kept, rest, token, nil
}

// outer is the token of the hold that the owner had on leaf i before this acquisition: of a
// read lock also of its write hold. 0: none.
func (c *count) outer(i int) uint64 {
	l, a := c.q.m.leaves[i].eng, c.got[i]
	traits := l.Kind().Traits()
	if traits.Mode == lock.ModeRead {
		if t := l.Token(c.q.ctx, lock.ModeWrite); t > 0 {
			return t
		}
	}
	if a != nil && a.Hold != nil && !a.Hold.Reentry() {
		return 0
	}
	return l.Token(c.q.ctx, traits.Mode)
}

// raise writes the token to the copies that are behind. Those that do not confirm
// it are not part of the hold.
func (q *quorum) raise(parts, rest []*part, token uint64) (kept, dropped []*part) {
	errs := make([]error, len(parts))
	var behind []int
	for i, p := range parts {
		if p.eng[0].Token() < token {
			behind = append(behind, i)
		}
	}
	together(behind, func(i int) { // ends after limit
		errs[i] = errBroken
		errs[i] = parts[i].eng[0].RaiseToken(q.ctx, token, q.limit)
	})
	for i, p := range parts {
		if errs[i] == nil {
			kept = append(kept, p)
		} else {
			rest = append(rest, p)
		}
	}
	return kept, rest
}
