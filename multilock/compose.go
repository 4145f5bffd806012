package multilock

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/lock"
)

// leaf is a member that is no MultiLock: a lock of the engine, or a user's.
type leaf struct {
	name  string
	eng   *engine.Lock // nil for a user's own type
	other lock.Locker
	runID string // of its server, where the order needs it
	db    int    // on that server, -1 if not known; where the order needs it
	index int    // as given
}

// engined is what redlatch's own lock kinds have.
type engined interface{ Engine() *engine.Lock }

func refuse(reason string) error {
	return &lock.InvalidOptionError{Option: "MultiLock", Reason: reason}
}

// compose finds the leaves, their canonical order and the units.
func (m *MultiLock) compose() {
	if len(m.members) == 0 {
		m.err = refuse("it has no member")
		m.name = "[]"
		return
	}
	m.tokens = make([][]int, len(m.members))
	names := make([]string, len(m.members))
	for i, member := range m.members {
		names[i] = m.add(i, member)
	}
	m.name = "[" + strings.Join(counted(names), " ") + "]"
	if m.err != nil {
		return
	}
	order(m.leaves)
	for i := 1; i < len(m.leaves); i++ {
		m.tied = m.tied || tied(m.leaves[i-1], m.leaves[i])
	}
	m.units = makeUnits(m.leaves)
}

// counted are names, each once: copies of a lock on several servers have one name.
func counted(names []string) []string {
	times, out := map[string]int{}, []string(nil)
	for _, n := range names {
		if times[n]++; times[n] == 1 {
			out = append(out, n)
		}
	}
	for i, n := range out {
		if times[n] > 1 {
			out[i] = fmt.Sprintf("%s ×%d", n, times[n])
		}
	}
	return out
}

// add puts a member's leaves in and returns its name.
func (m *MultiLock) add(i int, member lock.Locker) string {
	if v := reflect.ValueOf(member); v.Kind() == reflect.Pointer && v.IsNil() {
		member = nil
	}
	switch x := member.(type) {
	case nil:
		refuse := refuse
		if m.quorum {
			refuse = refuseQuorum
		}
		m.err = refuse(fmt.Sprintf("member %d is nil", i+1))
		return "?"
	case *MultiLock:
		if x.err != nil {
			m.err = x.err
			return x.name
		}
		if x.quorum {
			m.addLeaf(i, leaf{name: x.name, other: x})
			return x.name
		}
		for _, l := range x.leaves {
			m.addLeaf(i, l)
		}
		return x.name
	case engined:
		l := x.Engine()
		if err := l.Err(); err != nil {
			if m.err == nil {
				m.err = err
			}
			return l.Name()
		}
		m.addLeaf(i, leaf{name: l.Name(), eng: l})
		return l.Name()
	}
	name := "?"
	if n, ok := member.(interface{ Name() string }); ok {
		name = n.Name()
	}
	m.addLeaf(i, leaf{name: name, other: member})
	return name
}

// addLeaf adds a leaf of member i, unless it is there already: the same lock named
// twice is taken once, by the one that does for both.
func (m *MultiLock) addLeaf(i int, l leaf) {
	for at := range m.leaves {
		have := &m.leaves[at]
		if !same(*have, l) {
			if m.err == nil && have.eng != nil && l.eng != nil && have.eng.Core() == l.eng.Core() && have.eng.Key() == l.eng.Key() {
				m.err = refuse(fmt.Sprintf("lock %q is named as two kinds: it would wait for itself", l.name))
			}
			continue
		}
		old, too := have.eng.Kind().Traits(), l.eng.Kind().Traits()
		better, worse := l.eng, old
		if old.Mode == lock.ModeWrite && too.Mode == lock.ModeRead || old.Mode == too.Mode && old.Fenced {
			better, worse = have.eng, too
		}
		if worse.Fenced && !better.Kind().Traits().Fenced && m.err == nil {
			m.err = refuse(fmt.Sprintf("of lock %q the read lock is fenced, and the write lock, which is taken for both, is not", l.name))
		}
		have.eng = better
		m.tokens[i] = append(m.tokens[i], have.index)
		return
	}
	l.index = len(m.leaves)
	m.leaves = append(m.leaves, l)
	m.tokens[i] = append(m.tokens[i], l.index)
}

// same reports whether two leaves are one lock. Of the two halves of a read-write
// lock the write lock is the one to take: its owner may read.
func same(a, b leaf) bool {
	if a.eng == nil || b.eng == nil || a.eng.Core() != b.eng.Core() || a.eng.Key() != b.eng.Key() {
		return false
	}
	x, y := a.eng.Kind().Traits(), b.eng.Kind().Traits()
	return x.Mode == y.Mode || x.Mode != lock.ModeLock && y.Mode != lock.ModeLock
}

// order sorts leaves canonically: by name, server and database. A user's own come first, so that
// those of one name that may be one lock stand side by side.
func order(leaves []leaf) {
	slices.SortStableFunc(leaves, func(a, b leaf) int {
		switch c := cmp.Compare(a.key(), b.key()); {
		case c != 0:
			return c
		case a.eng == nil && b.eng != nil:
			return -1
		case a.eng != nil && b.eng == nil:
			return 1
		}
		return cmp.Or(cmp.Compare(a.runID, b.runID), cmp.Compare(a.db, b.db))
	})
}

// tied reports whether two leaves of different clients have one name.
func tied(a, b leaf) bool {
	return a.eng != nil && b.eng != nil && a.eng.Key() == b.eng.Key() && a.eng.Core() != b.eng.Core()
}

// key is the lock's name on the server: that is what others mean, too.
func (l leaf) key() string {
	if l.eng != nil {
		return l.eng.Key()
	}
	return l.name
}

// settled is the order of leaves with equal names, once the servers have said who
// they are.
type settled struct {
	units []unit
	err   error
}

// settle asks the servers of equally named leaves who they are. The order is kept.
func (m *MultiLock) settle(ctx context.Context) ([]unit, error) {
	if !m.tied {
		return m.units, nil
	}
	if s := m.settled.Load(); s != nil {
		return s.units, s.err
	}
	leaves := slices.Clone(m.leaves)
	for i := range leaves {
		if l := &leaves[i]; l.eng != nil {
			server, err := l.eng.Server(ctx)
			if err != nil {
				return nil, err
			}
			l.runID, l.db = server.RunID, l.eng.Core().DB()
		}
	}
	order(leaves)
	s := &settled{units: makeUnits(leaves)}
	for i := 1; i < len(leaves); i++ {
		a, b := leaves[i-1], leaves[i] // a database that is not known comes first
		switch {
		case !tied(a, b) || a.runID != b.runID || a.db >= 0 && a.db != b.db:
		case a.db < 0:
			s.err = refuse(fmt.Sprintf("lock %q of two clients may be one lock on one server, which would wait for itself: "+
				"NewWithClient was not told in Config.Redis which database its client uses", a.name))
		default:
			s.err = refuse(fmt.Sprintf("lock %q of two clients is one lock on one server: it would wait for itself", a.name))
		}
	}
	m.settled.Store(s)
	return s.units, s.err
}

// troubled are the servers of the leaves that failed, which may be known, or are
// silent.
func (m *MultiLock) troubled(known []lock.NodeError) []lock.NodeError {
	var away []lock.NodeError
	for i, l := range m.leaves {
		n := lock.NodeError{}
		if known != nil {
			n = known[i]
		}
		if n.Err == nil && l.eng != nil {
			n = lock.NodeError{Node: l.eng.Core().Addr(), Err: l.eng.Trouble()}
		}
		if n.Err != nil {
			away = append(away, n)
		}
	}
	return away
}

// unit is what is tried at once.
type unit struct {
	leaves []leaf         // in canonical order; several are taken by one command
	locks  []*engine.Lock // theirs; none for a user's type
}

// makeUnits puts plain locks of one client and slot together. A unit stands where
// its first leaf does.
func makeUnits(leaves []leaf) []unit {
	var units []unit
	for _, l := range leaves {
		if l.eng == nil {
			units = append(units, unit{leaves: []leaf{l}})
			continue
		}
		i := slices.IndexFunc(units, func(u unit) bool { return u.locks != nil && engine.SameGroup(u.locks[0], l.eng) })
		if i < 0 {
			i = len(units)
			units = append(units, unit{})
		}
		u := &units[i]
		u.leaves, u.locks = append(u.leaves, l), append(u.locks, l.eng)
	}
	return units
}

// fair reports whether an attempt without waiting can't pass a queue.
func (u *unit) fair() bool { return u.locks != nil && u.locks[0].Kind().Traits().Queued }

// of reports whether the unit is of a client, whose end ends its acquisition.
func (u *unit) of(core *engine.Core) bool { return u.locks != nil && u.locks[0].Core() == core }

// acquire takes the unit: wait as for Locker.TryLock, negative without a limit. It
// ends at until, if that is not zero, also where an attempt without waiting would take longer.
// redlatch's own locks stop waiting when quit ends, which may be nil.
func (u *unit) acquire(ctx, quit context.Context, wait, lease time.Duration, until time.Time) (*part, error) {
	if u.locks != nil {
		var over <-chan struct{}
		if quit != nil {
			over = quit.Done()
		}
		holds, err := engine.AcquireBy(ctx, u.locks, wait, lease, until, over)
		if err != nil {
			return nil, err
		}
		return &part{leaves: u.leaves, eng: holds}, nil
	}
	l := u.leaves[0]
	var h lock.Hold
	var err error
	if q, ok := l.other.(*MultiLock); ok {
		h, err = q.take(ctx, quit, wait, lease)
	} else if wait < 0 {
		h, err = l.other.Lock(ctx, lock.WithLease(lease))
	} else {
		h, err = l.other.TryLock(ctx, wait, lease)
	}
	if err != nil {
		return nil, err
	}
	if h == nil {
		return nil, refuse("a member of your own type returned neither a hold nor an error")
	}
	return &part{leaves: u.leaves, other: h}, nil
}

// part is a unit that is held.
type part struct {
	leaves []leaf
	eng    []*held.Hold // or
	other  lock.Hold
}

// holds are the part's holds, one per leaf.
func (p *part) holds() []lock.Hold {
	if p.other != nil {
		return []lock.Hold{p.other}
	}
	out := make([]lock.Hold, len(p.eng))
	for i, h := range p.eng {
		out[i] = h
	}
	return out
}

// unlock is release for an Unlock, which calls what it returns: what an observer hears of the
// end of the members' it hears there.
func (p *part) unlock(ctx context.Context, began time.Time) func() []error {
	if p.other != nil {
		return p.release(ctx, began)
	}
	rel := held.ReleaseAll(ctx, p.eng)
	return func() []error { return rel.Wait(began) }
}

// drop gives parts back in the background, of which some may be nil; see part.drop.
func drop(parts []*part) {
	for _, p := range parts {
		if p != nil {
			p.drop()
		}
	}
}

// drop gives the part back in the background, for one who can't: an observer hears only that its
// holds have ended. What has been given back already must not be: a user's own hold would hear of it
// twice.
func (p *part) drop() {
	for _, h := range p.eng {
		h.Drop()
	}
	switch other := p.other.(type) {
	case nil:
	case *hold:
		other.drop()
	default:
		go func() { _ = other.Unlock(context.Background()) }() // ends with Unlock, whose time is bounded
	}
}

// release begins to give the part back and returns a function that waits for it: as an
// Unlock that began at an instant does.
func (p *part) release(ctx context.Context, began time.Time) func() []error {
	if p.other == nil {
		rel := held.Release(ctx, p.eng, nil)
		return func() []error { return rel.Wait(began) }
	}
	done := make(chan struct{})
	err := errBroken
	var broke any
	go func() { // ends with Unlock, whose time is bounded
		defer close(done)
		broke = caught(func() { err = p.other.Unlock(ctx) })
	}()
	return func() []error {
		if <-done; broke != nil {
			panic(broke)
		}
		return []error{err}
	}
}
