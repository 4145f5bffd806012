package faults

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// topologyFaults are those of several servers.
var topologyFaults = []fault{
	{
		name: "failover", needs: "server", alone: true, effects: effForget | effSilent, lowest: 1.2, highest: 1.6, pauses: .6,
		begin: func(w *world, _ planned) func() { w.guard.Failover(w.t); return nil },
	},
	{
		name: "master killed", needs: "server", alone: true, effects: effForget | effSilent, lowest: 1.2, highest: 1.6, pauses: .6,
		begin: func(w *world, _ planned) func() {
			old := w.guard.KillMaster(w.t)
			w.guard.AwaitNewMaster(w.t, old)
			return func() {
				old.Restart(w.t, testbed.Stale)
				w.guard.AwaitReady(w.t)
			}
		},
	},
	{
		// The old one wakes as a master and answers until it is told.
		name: "master frozen", needs: "server", alone: true, effects: effForget | effSilent, lowest: 1.2, highest: 1.6, pauses: .6,
		begin: func(w *world, _ planned) func() {
			old := w.guard.Master()
			old.Freeze(w.t)
			w.guard.AwaitNewMaster(w.t, old)
			return func() {
				old.Thaw(w.t)
				w.guard.AwaitReady(w.t)
			}
		},
	},
	{
		// Some keys are on either side. What is held must be kept, and can be unlocked.
		name: "slot half way", needs: "server", alone: true, effects: effLine | effSplit, lowest: .6, highest: 1, pauses: .1,
		begin: func(w *world, p planned) func() {
			m := w.migrate(p)
			for i, key := range m.From.List(w.t, "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(w.slot(p)), "100") {
				if p.seed>>(i%64)&1 == 1 {
					m.MoveKey(w.t, key)
				}
			}
			return func() { m.Finish(w.t) }
		},
	},
	{
		// All keys are on one side, and the slot stays half-way: nothing is excused by that.
		name: "slot left half way", needs: "server", alone: true, lowest: 1.5, highest: 4, pauses: .1, begin: leaveHalfWay,
	},
	{
		// The same for minutes.
		name: "slot forgotten half way", needs: "server", alone: true, lowest: 9, highest: 12, pauses: .1, begin: leaveHalfWay,
	},
	{
		name: "slot moved", needs: "server", alone: true, effects: effLine, lowest: .001, highest: .002, pauses: .2,
		begin: func(w *world, p planned) func() { w.migrate(p).Finish(w.t); return nil },
	},
	{
		name: "scripts flushed everywhere", needs: "server", alone: true, effects: effReload, lowest: .005, highest: .01,
		begin: func(w *world, _ planned) func() {
			for _, s := range w.cluster.Masters(w.t) {
				s.Do(w.t, "SCRIPT", "FLUSH")
			}
			return nil
		},
	},
	{
		// No write is lost, but some time passes.
		name: "cluster failover", needs: "server", alone: true, effects: effSilent, lowest: .001, highest: .002, pauses: .2,
		begin: func(w *world, p planned) func() {
			w.cluster.Failover(w.t, w.cluster.NodeOfSlot(w.t, w.slot(p)))
			w.cluster.AwaitReady(w.t)
			return nil
		},
	},
	{
		// A crowd gives up on the frozen node's locks; the others' must not notice.
		name: "node frozen", needs: "server", alone: true, effects: effSilent | effFrozen, lowest: .2, highest: .4, pauses: .1,
		begin: func(w *world, p planned) func() {
			i := len(w.windows) - 1
			node := w.cluster.NodeOfSlot(w.t, w.slot(p))
			for _, tag := range tags {
				if w.cluster.NodeOfKey(w.t, "{"+tag+"}") == node {
					for n := range max(names, w.p.work.Names) {
						w.windows[i].names = append(w.windows[i].names, fmt.Sprintf("{%s}%d", tag, n))
					}
					for n := range len(w.all) + 1 {
						w.windows[i].names = append(w.windows[i].names, fmt.Sprintf("{%s}%d", tag, own+n))
					}
				}
			}
			node.Freeze(w.t)
			for _, one := range w.workers {
				one.Send(w.t, "crowd %d %s %d", 800, tags[p.seed%uint64(len(tags))], p.seed)
			}
			return func() { node.Thaw(w.t) }
		},
	},
	{
		// Whether a copy's server was restarted is asked by INFO. Who may not ask must hear of
		// that, not of a lock that is busy; new clients have not asked before.
		name: "ACL: no INFO", needs: "server", alone: true, effects: effRefuse | effSilent, says: "NOPERM",
		lowest: 2, highest: 2.5, pauses: .3,
		begin: func(w *world, _ planned) func() {
			for _, s := range w.servers {
				s.Do(w.t, "ACL", "SETUSER", user, "-info")
			}
			for _, one := range w.workers {
				one.Send(w.t, "close")
			}
			return func() {
				for _, s := range w.servers {
					s.Do(w.t, "ACL", "SETUSER", user, "+info")
				}
			}
		},
	},
	{
		name: "minority frozen", needs: "server", alone: true, effects: effMinor, lowest: .1, highest: 2, pauses: .1,
		begin: func(w *world, p planned) func() {
			w.spread(p)
			w.servers[p.target].Freeze(w.t)
			return func() { w.servers[p.target].Thaw(w.t) }
		},
	},
	{
		// Two restarts within a lease are more than a quorum of three promises to bear.
		name: "minority restarted empty", needs: "server", alone: true, effects: effMinor, lowest: .05, highest: .2, pauses: 2.2,
		begin: func(w *world, p planned) func() {
			w.spread(p)
			w.servers[p.target].Kill(w.t)
			return func() { w.servers[p.target].Restart(w.t, testbed.Empty) }
		},
	},
	oneFrozen("one frozen, another restarted", nil),
	// The server's uptime follows its clock: it says that it is old, or not born yet. Step is how far the clock is set.
	oneFrozen("one frozen, another restarted, its clock set forward", func(w *world, p planned, restarted int) func() {
		return func() { w.stepped(restarted, leases(w.p.lease, 2)+time.Duration(p.seed%20)*time.Second) }
	}),
	oneFrozen("one frozen, another restarted, its clock set back", func(w *world, p planned, restarted int) func() {
		return func() { w.stepped(restarted, -time.Duration(1+p.seed%5)*time.Second) }
	}),
	// Whoever has a lock for longer than LeaseTime and stands still can't hear that a copy was forgotten.
	oneFrozen("one frozen, another restarted, a worker stopped", func(w *world, p planned, _ int) func() {
		one := w.workers[p.seed%uint64(len(w.workers))]
		w.windows = append(w.windows, window{
			name: "worker stopped", from: mono(), to: mono() + p.lasts + leases(w.p.lease, 2.2), proc: one.proc, effects: effPause,
		})
		one.Freeze(w.t)
		return func() {
			time.Sleep(leases(w.p.lease, 1.6))
			one.Thaw(w.t)
		}
	}),
	{
		// The copies of one server end at once, or last for longer. Who has the other two keeps the lock; who has one
		// of them learns of its loss at the next check.
		name: "minority's clock set forward", needs: "server", alone: true, effects: effForget, lowest: .001, highest: .002, pauses: 2.2,
		begin: func(w *world, p planned) func() {
			w.spread(p)
			w.stepped(p.target, leases(w.p.lease, 2)+time.Duration(p.seed%20)*time.Second)
			return nil
		},
	},
	{
		name: "minority's clock set back", needs: "server", alone: true, effects: effMinor, lowest: .001, highest: .002, pauses: 2.2,
		begin: func(w *world, p planned) func() {
			w.spread(p)
			w.stepped(p.target, -time.Duration(1+p.seed%5)*time.Second)
			return nil
		},
	},
}

// tags are the hash tags of the kinds on a cluster.
var tags = []string{kindPlain, kindFair, "rw"}

func (w *world) slot(p planned) int { return testbed.Slot("{" + tags[p.seed%uint64(len(tags))] + "}") }

// migrate begins to move a slot of one of the kinds to another master.
func (w *world) migrate(p planned) *testbed.Migration {
	slot := w.slot(p)
	from := w.cluster.NodeOfSlot(w.t, slot)
	for _, to := range w.cluster.Masters(w.t) {
		if to != from {
			return w.cluster.BeginMigration(w.t, slot, to)
		}
	}
	w.t.Fatal("a cluster of one master")
	return nil
}

// leaveHalfWay moves the keys of a slot, and ends the move later. Only the moments in which keys are on
// both sides are a window in which something may fail.
func leaveHalfWay(w *world, p planned) func() {
	moving := func(move func()) {
		from := mono()
		move()
		w.windows = append(w.windows, window{name: "keys of a slot moved", from: from, to: mono(), effects: effLine | effSplit})
	}
	var m *testbed.Migration
	moving(func() {
		m = w.migrate(p)
		m.MoveKeys(w.t)
	})
	return func() { moving(func() { m.Finish(w.t) }) }
}

// spread notes that the locks that need every server lose this one.
func (w *world) spread(p planned) {
	one := w.windows[len(w.windows)-1]
	one.effects = effForget | effSilent
	for i := range masters {
		one.names = append(one.names, fmt.Sprintf("{%s}0@%d", kindSpread, i))
	}
	// closed by hand: it is no window of run's
	one.to = one.from + p.lasts + 2*time.Second
	w.windows = append(w.windows, one)
}

// oneFrozen: who acquires while one server is frozen has the other two; when one of these forgets, the first and the
// forgetful one are a majority for somebody else, unless it stays out. besides makes what happens when the second one
// has died, and what it returns when that is back.
func oneFrozen(name string, besides func(w *world, p planned, restarted int) (back func())) fault {
	return fault{
		name: name, needs: "server", alone: true, effects: effMinor, lowest: .35, highest: .5, pauses: 2.2,
		begin: func(w *world, p planned) func() {
			next := p
			next.target = (p.target + 1) % masters
			w.windows = append(w.windows, window{
				name: p.fault.name, from: mono(), to: mono() + leases(w.p.lease, .5), target: next.target, effects: effMinor,
			})
			w.spread(p)
			w.spread(next)
			w.servers[p.target].Freeze(w.t)
			time.Sleep(leases(w.p.lease, .3))
			w.servers[p.target].Thaw(w.t)
			w.servers[next.target].Kill(w.t)
			back := func() {}
			if besides != nil {
				back = besides(w, p, next.target)
			}
			return func() {
				w.servers[next.target].Restart(w.t, testbed.Empty)
				back()
			}
		},
	}
}

// stepped sets a server's clock on by so much.
func (w *world) stepped(server int, by time.Duration) {
	c := w.clocks[server]
	c.put(w.t, c.ahead+by)
}
