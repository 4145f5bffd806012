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
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/lock"
)

// Member is what a MultiLock or QuorumLock is made of: redlatch's own locks. The interface is sealed:
// no other type has its private method. A type that embeds one of them is taken for that one.
type Member interface {
	lock.Locker
	object
}

type object = engine.Object

// combined is a member that is a MultiLock, or embeds one.
type combined interface{ whole() *MultiLock }

func (m *MultiLock) whole() *MultiLock { return m }

// leaf is a member that is no MultiLock of different locks.
type leaf struct {
	name   string
	eng    *engine.Lock // nil: a quorum
	quorum *MultiLock
	index  int // as given
}

// leafID tells locks apart.
type leafID struct {
	core    *engine.Core // nil: a quorum
	clients string       // of a quorum
	key     string
}

func (l leaf) id() leafID {
	if l.eng != nil {
		return leafID{core: l.eng.Core(), key: l.eng.Key()}
	}
	return leafID{clients: strings.Join(l.quorum.clients(), ","), key: l.quorum.leaves[0].eng.Key()}
}

// clients are the sorted ids of a quorum's clients.
func (m *MultiLock) clients() []string {
	ids := make([]string, len(m.leaves))
	for i, l := range m.leaves {
		ids[i] = l.eng.Core().ID()
	}
	slices.Sort(ids)
	return ids
}

// traits are those of the leaf's kind, which all copies of a quorum have.
func (l leaf) traits() *kind.Traits {
	if l.eng != nil {
		return l.eng.Kind().Traits()
	}
	return l.quorum.leaves[0].eng.Kind().Traits()
}

// refuse is an error that says what of the lock can't be.
func (m *MultiLock) refuse(reason string) error {
	of := "MultiLock"
	if m.quorum {
		of = "QuorumLock"
	}
	return &lock.InvalidOptionError{Option: of, Reason: reason}
}

// refused is why the members can't be one lock.
func (m *MultiLock) refused() error {
	if m.err == nil && len(m.leaves) == 0 {
		return m.refuse("it is a zero value")
	}
	return m.err
}

// compose finds the leaves, their canonical order and the units.
func (m *MultiLock) compose() {
	m.name = "[" + strings.Join(counted(m.addAll()), " ") + "]"
	if m.err == nil {
		order(m.leaves)
		m.units = makeUnits(m.leaves)
	}
}

// addAll puts all members' leaves in and returns their names.
func (m *MultiLock) addAll() []string {
	if len(m.members) == 0 {
		m.err, m.name = m.refuse("it has no member"), "[]"
	}
	m.tokens, m.at = make([][]int, len(m.members)), map[leafID]int{}
	names := make([]string, len(m.members))
	for i, member := range m.members {
		names[i] = m.add(i, member)
	}
	m.at = nil
	return names
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
func (m *MultiLock) add(i int, member Member) string {
	if missing(member) {
		m.err = m.refuse(fmt.Sprintf("member %d is nil or a zero value", i+1))
		return "?"
	}
	if c, is := member.(combined); is {
		x := c.whole()
		switch {
		case x.err != nil:
			m.err = x.err
		case x.quorum:
			m.addLeaf(i, leaf{name: x.name, quorum: x})
		default:
			for _, l := range x.leaves {
				m.addLeaf(i, l)
			}
		}
		return x.name
	}
	l := engine.Of(member)
	if err := l.Err(); err != nil {
		m.err = cmp.Or(m.err, err)
		return l.Name()
	}
	m.addLeaf(i, leaf{name: l.Name(), eng: l})
	return l.Name()
}

// missing reports whether a member is nil or a zero value.
func missing(member Member) bool {
	if v := reflect.ValueOf(member); !v.IsValid() || v.Kind() == reflect.Pointer && v.IsNil() {
		return true
	}
	if c, is := member.(combined); is {
		x := c.whole()
		return x == nil || len(x.members) == 0 && x.err == nil
	}
	return engine.Of(member) == nil
}

// addLeaf adds a leaf of member i, unless it is there already: the same lock named
// twice is taken once, by the one that does for both.
func (m *MultiLock) addLeaf(i int, l leaf) {
	id := l.id()
	at, there := m.at[id]
	if there && same(m.leaves[at], l) {
		have := &m.leaves[at]
		old, too := have.traits(), l.traits()
		better, worse := l, old
		if old.Mode == lock.ModeWrite && too.Mode == lock.ModeRead || old.Mode == too.Mode && old.Fenced {
			better, worse = *have, too
		}
		if worse.Fenced && !better.traits().Fenced && m.err == nil {
			m.err = m.refuse(fmt.Sprintf("of lock %q the read lock is fenced, and the write lock, which is taken for both, is not", l.name))
		}
		have.eng, have.quorum = better.eng, better.quorum
		m.tokens[i] = append(m.tokens[i], have.index)
		return
	}
	if there && m.err == nil {
		m.err = m.refuse(fmt.Sprintf("lock %q is named as two kinds: it would wait for itself", l.name))
	}
	l.index = len(m.leaves)
	m.at[id] = l.index
	m.leaves = append(m.leaves, l)
	m.tokens[i] = append(m.tokens[i], l.index)
}

// same reports whether two leaves with one key are one lock. Of the two halves of a read-write
// lock the write lock is the one to take: its owner may read.
func same(a, b leaf) bool {
	x, y := a.traits(), b.traits()
	return x.Mode == y.Mode || x.Mode != lock.ModeLock && y.Mode != lock.ModeLock
}

// order sorts leaves canonically: by name, address and database.
func order(leaves []leaf) {
	slices.SortStableFunc(leaves, func(a, b leaf) int {
		key, addr, db := a.place()
		key2, addr2, db2 := b.place()
		return cmp.Or(cmp.Compare(key, key2), cmp.Compare(addr, addr2), cmp.Compare(db, db2))
	})
}

// place is the lock's name on the server, which others mean, too, its client's address, and the database there, -1 if
// that is not known.
func (l leaf) place() (key, addr string, db int) {
	if l.eng == nil {
		return l.name, "", 0
	}
	return l.eng.Key(), l.eng.Core().Addr(), l.eng.Core().DB()
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
	locks  []*engine.Lock // theirs; none for a quorum
}

// makeUnits puts RLocks of one client and slot together. A unit stands where
// its first leaf does.
func makeUnits(leaves []leaf) []unit {
	var units []unit
	at := map[engine.Group]int{}
	for _, l := range leaves {
		if l.eng == nil {
			units = append(units, unit{leaves: []leaf{l}})
			continue
		}
		g, grouped := l.eng.Group()
		i, ok := at[g]
		if !grouped || !ok {
			i = len(units)
			units = append(units, unit{})
		}
		if grouped {
			at[g] = i
		}
		u := &units[i]
		u.leaves, u.locks = append(u.leaves, l), append(u.locks, l.eng)
	}
	return units
}

// fair reports whether an attempt without waiting can't pass a queue.
func (u *unit) fair() bool { return u.locks != nil && u.locks[0].Kind().Traits().Queued }

// acquire takes the unit, for a whole that began then: wait as for Locker.TryLock, negative without a limit. It
// ends at until, if that is not zero, also where an attempt without waiting would take longer.
func (u *unit) acquire(ctx context.Context, wait, lease time.Duration, began, until time.Time) (*part, error) {
	if u.locks != nil {
		holds, err := engine.AcquireAll(ctx, u.locks, wait, lease, began, until)
		if err != nil {
			return nil, err
		}
		return &part{leaves: u.leaves, eng: holds}, nil
	}
	h, err := u.leaves[0].quorum.take(ctx, began, until, wait, lease)
	if err != nil {
		return nil, err
	}
	return &part{leaves: u.leaves, quorum: h}, nil
}

// part is a unit that is held.
type part struct {
	leaves []leaf
	eng    []*held.Hold // or
	quorum *hold
}

// holds are the part's holds, one per leaf.
func (p *part) holds() []lock.Hold {
	if p.quorum != nil {
		return []lock.Hold{p.quorum}
	}
	out := make([]lock.Hold, len(p.eng))
	for i, h := range p.eng {
		out[i] = h
	}
	return out
}

// single are the part's holds on servers: of a quorum those of its copies.
func (p *part) single() []*held.Hold {
	if p.quorum == nil {
		return p.eng
	}
	p.quorum.mu.Lock()
	defer p.quorum.mu.Unlock()
	var out []*held.Hold
	for _, c := range p.quorum.parts {
		out = append(out, c.eng...)
	}
	return out
}

// unlock is release for an Unlock, which calls what it returns: what an observer hears of the
// end of the members' it hears there.
func (p *part) unlock(ctx context.Context, began time.Time) func() []error {
	if p.quorum != nil {
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
// holds have ended. A panic in code of the user's, who has had one, costs none of the others.
func (p *part) drop() {
	for _, h := range p.eng {
		_ = caught(h.Drop)
	}
	if p.quorum != nil {
		_ = caught(p.quorum.drop)
	}
}

// release begins to give the part back and returns a function that waits for it: as an
// Unlock that began at an instant does.
func (p *part) release(ctx context.Context, began time.Time) func() []error {
	if p.quorum == nil {
		rel := held.Release(ctx, p.eng, nil)
		return func() []error { return rel.Wait(began) }
	}
	done := make(chan struct{})
	err := errBroken
	var broke any
	go func() { // ends with Unlock, whose time is bounded
		defer close(done)
		broke = caught(func() { err = p.quorum.Unlock(ctx) })
	}()
	return func() []error {
		if <-done; broke != nil {
			panic(broke)
		}
		return []error{err}
	}
}
