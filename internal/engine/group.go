package engine

import (
	"context"
	"slices"
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// Group is several plain locks of one client, all in one slot, that are taken by
// one command and freed by one. Each member gets a session and a hold of its own,
// so that renewal, loss and re-entry are those of single locks.
type Group struct{ locks []*Lock }

// Groupable reports whether the lock can be a member of a Group.
func (l *Lock) Groupable() bool { return l.kind != nil && l.kind.Type() == "reentrant" }

// Fenced reports whether the lock gives out fencing tokens.
func (l *Lock) Fenced() bool {
	f, ok := l.kind.(interface{ Fenced() bool })
	return ok && f.Fenced()
}

// SameGroup reports whether two groupable locks can be members of one Group.
func SameGroup(a, b *Lock) bool {
	return a.core == b.core && (!a.core.topo.Cluster || luascript.Slot(a.key) == luascript.Slot(b.key))
}

// NewGroup makes a group of groupable locks with distinct keys, sorted by key:
// gates are entered in that order, so that two groups can't wait for each other.
func NewGroup(locks []*Lock) *Group { return &Group{locks} }

// Acquire takes all locks or none, as Lock.Acquire takes one. The holds are in
// the order of the locks.
func (g *Group) Acquire(ctx context.Context, wait, lease time.Duration) ([]*Hold, error) {
	for _, l := range g.locks {
		if l.err != nil {
			return nil, l.err
		}
	}
	a, err := g.locks[0].open(ctx, wait, lease)
	if err != nil {
		return nil, err
	}
	grp := &group{members: make([]member, len(g.locks))}
	for i, l := range g.locks {
		m := &grp.members[i]
		m.lock, m.slot = l, a.slot
		if i > 0 {
			a.slot.owner.ref()
			m.slot = a.slot.owner.slot(l.core, l.key)
		}
	}
	a.group = grp
	defer a.close()
	if _, err := a.finish(); err != nil {
		return nil, err
	}
	return grp.holds, nil
}

// group is what an acquisition of several locks has more than one of. The
// acquisition's lock, kind, slot and attempt are those of the member that it
// waits for.
type group struct {
	members []member
	holds   []*Hold // the result
}

type member struct {
	lock    *Lock
	slot    *slot
	attempt Attempt
	sess    *session // held already: to re-enter, in the try under way
	count   int      // of its holds
}

// newID implements acquisition.newID for the members.
func (g *group) newID(a *acquisition) {
	for i := range g.members {
		m := &g.members[i]
		m.attempt = a.attempt
		m.attempt.Lock = m.lock
	}
}

// focus makes member i the one that the loop looks at. A waiter that stands in
// another member's line leaves it: that member is free, so the next in its line
// must try.
func (g *group) focus(a *acquisition, i int) {
	m := &g.members[i]
	if a.lock == m.lock {
		return
	}
	if a.waiter != nil {
		a.forget()
	}
	a.mu.Lock() // a log line of the subscription's may be reading
	a.setTarget(target{m.lock, m.slot})
	a.attempt.Lock = m.lock
	a.mu.Unlock()
}

// standsBehind reports whether others of this process wait already for one of
// the members that the owner does not hold, and makes it the one to wait for.
func (g *group) standsBehind(a *acquisition) bool {
	for i := range g.members {
		m := &g.members[i]
		spec, _ := m.lock.spec(&m.attempt)
		if !a.core.hub.Waiting(spec.ID) {
			continue
		}
		a.core.mu.Lock()
		held := m.slot.sessions[modeLock] != nil
		a.core.mu.Unlock()
		if !held {
			g.focus(a, i)
			return true
		}
	}
	return false
}

// enterGates waits for the owner's other commands of all members.
func (g *group) enterGates(ctx context.Context, until time.Time, stop <-chan struct{}) bool {
	if !until.IsZero() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, until)
		defer cancel()
	}
	for i := range g.members {
		if !g.members[i].slot.gate.enter(ctx, stop) {
			for j := range i {
				g.members[j].slot.gate.leave()
			}
			return false
		}
	}
	return true
}

func (g *group) leaveGates() {
	for i := range g.members {
		g.members[i].slot.gate.leave()
	}
}

func (g *group) retain() {
	for i := range g.members {
		g.members[i].slot.retain()
	}
}

func (g *group) release() {
	for i := range g.members {
		g.members[i].slot.release()
	}
}

// prepareLocked finds out which members are held already. It returns holds that
// turned out to be lost, for tell.
func (g *group) prepareLocked(c *Core) (lost []*Hold, fresh int) {
	now := time.Now()
	for i := range g.members {
		m := &g.members[i]
		m.sess = m.slot.sessions[modeLock]
		if m.sess != nil {
			lost = append(lost, c.expireLocked(m.sess, now)...)
		}
		if m.sess == nil || m.sess.dead {
			m.sess = nil
			fresh++
			continue
		}
		m.count, _ = m.sess.remainLocked(nil, now)
	}
	return lost, fresh
}

// try is acquisition.try for a group.
func (g *group) try(a *acquisition) (*Hold, error) {
	c := a.core
	if !g.enterGates(a.ctx, a.until, c.closing) {
		return nil, &stopError{a.endedUnanswered()}
	}
	c.mu.Lock()
	lost, fresh := g.prepareLocked(c)
	drains := c.drains
	c.mu.Unlock()
	c.tell(lost)
	switch {
	case len(lost) > 0 && a.ctx.Err() != nil: // it was made with a lost hold's context
		g.leaveGates()
		return nil, &stopError{a.ended()}
	case drains && fresh > 0:
		g.leaveGates()
		return nil, &stopError{lock.ErrClosed}
	}
	select {
	case c.inFlight <- struct{}{}:
	default:
		if !a.queueForFlight() {
			g.leaveGates()
			return nil, &stopError{a.ended()}
		}
	}
	cmd := g.command(a)
	if c.cfg.ReplicaAcks > 0 && fresh > 0 {
		cmd.Acks, cmd.AckTimeout = c.cfg.ReplicaAcks, c.cfg.AckTimeout
	}
	if a.obs != nil {
		a.obs.Attempt()
	}
	f, ok := c.fly(a.ctx, a.cctx, a.until, cmd, groupFlight{a})
	if !ok {
		a.adrift = true
		return nil, &stopError{a.endedUnanswered()}
	}
	<-c.inFlight
	defer g.leaveGates()
	if f.err != nil {
		a.failed(f.err)
		return nil, a.classify(f.err)
	}
	return g.answered(a, f)
}

// command builds the script's call from what the members' kind would send.
func (g *group) command(a *acquisition) conn.Command {
	cmd := conn.Command{
		Script: luascript.GroupAcquire,
		Keys:   make([]string, 0, 3*len(g.members)),
		Args:   append(make([]string, 0, 1+5*len(g.members)), Millis(a.attempt.Lease)),
	}
	for i := range g.members {
		m := &g.members[i]
		if s := m.sess; s != nil {
			cmd.Keys = append(cmd.Keys, m.lock.key)
			cmd.Args = append(cmd.Args, "1", s.Field, strconv.Itoa(m.count+1), "", "")
			continue
		}
		m.attempt.Trace = a.attempt.Trace
		one := m.lock.kind.Acquire(&m.attempt) // field, lease, fence, trace
		cmd.Keys = append(cmd.Keys, one.Keys...)
		cmd.Args = append(cmd.Args, strconv.Itoa(len(one.Keys)), one.Args[0], "0", one.Args[2], one.Args[3])
	}
	return cmd
}

// answered reads the answer of a try. The gates are ours.
func (g *group) answered(a *acquisition, f *flight) (*Hold, error) {
	c, r := a.core, f.reply
	switch r.Code {
	case -1:
		a.newID()
		return nil, errVoid
	case -2:
		m := &g.members[min(max(r.Int(1), 1), int64(len(g.members)))-1]
		c.mu.Lock()
		var lost []*Hold
		if m.sess != nil {
			lost = c.loseLocked(m.sess, lock.LossGone, nil)
		}
		c.mu.Unlock()
		c.tell(lost)
		return nil, errSessionGone
	case 0:
		g.focus(a, int(min(max(r.Int(1), 1), int64(len(g.members)))-1))
		f.reply = conn.Reply{Vals: r.Vals[min(1, len(r.Vals)):]}
		a.read(f)
		if a.limbo > 0 {
			// An earlier try without an answer may have taken all of them, and
			// some were lost since: nothing may be kept while we wait.
			a.undoApart()
			a.newID()
		}
		return nil, nil //nolint:nilnil // busy is neither
	}
	if r.Code == 2 && a.limbo > 0 {
		a.limbo--
	}
	lease := a.attempt.Lease
	if passed(time.Now(), f.sent.Add(lease-drift(lease))) {
		a.givenBack("grant given back: its answer came after the lease had run out")
		a.undoApart()
		a.newID()
		return nil, errTooLate
	}
	if want := c.cfg.ReplicaAcks; want > 0 && g.fresh() && r.Acked < want {
		a.givenBack("grant given back: too few replicas acknowledged it")
		a.queued = true // giving up undoes it
		return nil, &stopError{&lock.ReplicaAcksError{Name: a.lock.name, Want: want, Got: r.Acked, Err: r.Waits}}
	}
	return g.won(a, f)
}

func (g *group) fresh() bool {
	for i := range g.members {
		if g.members[i].sess == nil {
			return true
		}
	}
	return false
}

// won makes the holds. A session that was lost in the meantime makes it a
// failure, with nothing kept.
func (g *group) won(a *acquisition, f *flight) (*Hold, error) {
	c, lease := a.core, a.attempt.Lease
	g.retain()  // for the holds
	a.mu.Lock() // the target changes below
	c.mu.Lock()
	unlock := func() { c.mu.Unlock(); a.mu.Unlock() }
	if c.drains && g.fresh() || c.closed {
		unlock()
		g.release()
		a.queued = true // giving up undoes it
		return nil, &stopError{lock.ErrClosed}
	}
	for i := range g.members {
		if s := g.members[i].sess; s != nil && s.dead {
			unlock()
			g.release()
			a.undoApart()
			a.newID()
			return nil, errSessionGone
		}
	}
	g.holds = make([]*Hold, len(g.members))
	was := *a.target()
	for i := range g.members {
		m := &g.members[i]
		if m.sess != nil {
			g.holds[i] = a.reenteredLocked(m.sess, f.sent, lease)
			continue
		}
		out := m.lock.kind.Acquired(&m.attempt, conn.Reply{Code: 1, Vals: []conn.Value{{Int: 1}, {Int: f.reply.Int(i + 1)}}})
		a.setTarget(target{m.lock, m.slot})
		g.holds[i] = a.holdLocked(f.sent, lease, out)
	}
	a.setTarget(was)
	unlock()
	for i := range g.members {
		if was.lock == g.members[i].lock {
			return g.holds[i], nil
		}
	}
	return g.holds[0], nil
}

// target is the lock that the acquisition is about at the moment.
type target struct {
	lock *Lock
	slot *slot
}

func (a *acquisition) target() *target { return &target{a.lock, a.slot} }

// setTarget changes it. a.mu is the caller's.
func (a *acquisition) setTarget(t target) { a.lock, a.kind, a.slot = t.lock, t.lock.kind, t.slot }

// apart is what undoing a try in the background needs of the group, while the
// acquisition goes on.
func (g *group) apart() *group { return &group{members: slices.Clone(g.members)} }

// groupFlight takes over a try whose caller has gone.
type groupFlight struct{ a *acquisition }

func (gf groupFlight) leaving() { gf.a.group.retain() }

func (gf groupFlight) late(f *flight) {
	a := gf.a
	<-a.core.inFlight
	defer a.group.release()
	defer a.group.leaveGates()
	if f.err != nil {
		a.failed(f.err)
	}
	if a.limbo > 0 || (f.err == nil && f.reply.Code > 0) {
		a.group.abandon(a)
	}
}

// undo takes back, in the background, what tries without an answer may have left.
func (g *group) undo(a *acquisition) {
	g.retain()
	a.core.wg.Add(1)
	undone := a.undone
	go func() { // ends with the server's answer or the lease
		defer a.core.wg.Done()
		defer close(undone)
		defer g.release()
		if g.enterGates(context.Background(), time.Time{}, a.core.closingLate()) {
			g.abandon(a)
			g.leaveGates()
		}
	}()
}

// abandon undoes what tries may have left, until the server has answered or the
// lease would have run out: not for a goroutine that a caller waits for. What a
// re-entry raised is settled apart. The gates are the caller's.
func (g *group) abandon(a *acquisition) {
	var items []conn.Command
	for i := range g.members {
		m := &g.members[i]
		if m.sess != nil {
			a.core.settleApart(m.sess)
			continue
		}
		items = append(items, m.lock.kind.Abandon(&m.attempt, a.void()))
	}
	if len(items) == 0 {
		a.limbo = 0
		return
	}
	cmd := groupRelease(items)
	deadline := time.Now().Add(a.attempt.Lease)
	retry := newRetry()
	for {
		_, err := a.core.run.Run(context.WithoutCancel(a.cctx), cmd)
		if err == nil || conn.IsPermanent(err) {
			if err != nil {
				a.core.cfg.Log.WarnContext(a.ctx, "redlatch: giving back refused", a.logArgs("error", err)...)
			}
			a.limbo = 0
			return
		}
		if !sleep(context.Background(), a.core.closingLate(), deadline, retry.NextBackOff()) {
			return
		}
	}
}

// groupRelease makes one command of several single releases.
func groupRelease(items []conn.Command) conn.Command {
	cmd := conn.Command{Script: luascript.GroupRelease}
	for _, it := range items {
		cmd.Keys = append(cmd.Keys, it.Keys...)
		cmd.Args = append(cmd.Args, strconv.Itoa(len(it.Keys)))
		cmd.Args = append(cmd.Args, it.Args...)
	}
	return cmd
}
