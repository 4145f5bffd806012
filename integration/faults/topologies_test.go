package faults

import (
	"fmt"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// alone is a fault of several servers, beside which there is no other of a server.
func alone(name string, effects effect, lowest, highest, pauses float64, begin func(w *world, p planned) func()) fault {
	return fault{
		name: name, needs: "server", alone: true, effects: effects, lowest: lowest, highest: highest, pauses: pauses, begin: begin,
	}
}

// topologyFaults are those of several servers.
var topologyFaults = []fault{
	replaced("failover", func(w *world) func() { w.guard.Failover(w.t); return nil }),
	replaced("master killed", func(w *world) func() {
		old := w.guard.KillMaster(w.t)
		w.guard.AwaitNewMaster(w.t, old)
		return func() {
			old.Restart(w.t, testbed.Stale)
			w.guard.AwaitReady(w.t)
		}
	}),
	// The old one wakes as a master and answers until it is told.
	replaced("master frozen", func(w *world) func() {
		old := w.guard.Master()
		old.Freeze(w.t)
		w.guard.AwaitNewMaster(w.t, old)
		return func() {
			old.Thaw(w.t)
			w.guard.AwaitReady(w.t)
		}
	}),
	// Some keys are on either side. What is held must be kept, and can be unlocked.
	alone("slot half way", effLine|effSplit, .6, 1, .1, func(w *world, p planned) func() {
		m := w.migrate(p)
		for i, key := range m.From.List(w.t, "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(w.slot(p)), "100") {
			if p.seed>>(i%64)&1 == 1 {
				m.MoveKey(w.t, key)
			}
		}
		return func() { m.Finish(w.t) }
	}),
	// All keys are on one side, and the slot stays half-way: nothing is excused by that.
	alone("slot left half way", 0, 1.5, 4, .1, leaveHalfWay),
	// The same for minutes.
	alone("slot forgotten half way", 0, 9, 12, .1, leaveHalfWay),
	alone("slot moved", effLine, .001, .002, .2, func(w *world, p planned) func() { w.migrate(p).Finish(w.t); return nil }),
	alone("scripts flushed everywhere", effReload, .005, .01, 0, flush),
	// No write is lost, but some time passes.
	alone("cluster failover", effSilent, .001, .002, .2, func(w *world, p planned) func() {
		w.cluster.Failover(w.t, w.cluster.NodeOfSlot(w.t, w.slot(p)))
		w.cluster.AwaitReady(w.t)
		return nil
	}),
	// A crowd gives up on the frozen node's locks; the others' must not notice.
	alone("node frozen", effSilent|effFrozen, .2, .4, .1, func(w *world, p planned) func() {
		one, node := &w.windows[len(w.windows)-1], w.cluster.NodeOfSlot(w.t, w.slot(p))
		for _, tag := range tags {
			if w.cluster.NodeOfKey(w.t, "{"+tag+"}") != node {
				continue
			}
			for n := range w.p.work.Names {
				one.names = append(one.names, fmt.Sprintf("{%s}%d", tag, n))
			}
			for n := range len(w.all) + 1 {
				one.names = append(one.names, fmt.Sprintf("{%s}%d", tag, own+n))
			}
		}
		node.Freeze(w.t)
		for _, one := range w.workers {
			one.Send(w.t, "crowd 800 %s %d", tags[p.seed%uint64(len(tags))], p.seed)
		}
		return func() { node.Thaw(w.t) }
	}),
	noInfo,
	alone("minority frozen", effMinor, .1, 2, .1, func(w *world, p planned) func() {
		w.spread(p)
		w.servers[p.target].Freeze(w.t)
		return func() { w.servers[p.target].Thaw(w.t) }
	}),
	// Two restarts within a lease are more than a quorum of three promises to bear.
	alone("minority restarted empty", effMinor, .05, .2, 2.2, func(w *world, p planned) func() {
		w.spread(p)
		w.servers[p.target].Kill(w.t)
		return func() { w.servers[p.target].Restart(w.t, testbed.Empty) }
	}),
	oneFrozen("one frozen, another restarted", nil),
	// The server's uptime follows its clock: it says that it is old, or not born yet.
	oneFrozen("one frozen, another restarted, its clock set forward", func(w *world, p planned, restarted int) func() {
		return func() { w.step(restarted, w.forward(p)) }
	}),
	oneFrozen("one frozen, another restarted, its clock set back", func(w *world, p planned, restarted int) func() {
		return func() { w.step(restarted, -time.Duration(1+p.seed%5)*time.Second) }
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
	// The copies of one server end at once, or last for longer. Who has the other two keeps the lock; who has one
	// of them learns of its loss at the next check.
	alone("minority's clock set forward", effForget, .001, .002, 2.2, func(w *world, p planned) func() {
		w.spread(p)
		w.step(p.target, w.forward(p))
		return nil
	}),
	alone("minority's clock set back", effMinor, .001, .002, 2.2, func(w *world, p planned) func() {
		w.spread(p)
		w.step(p.target, -time.Duration(1+p.seed%5)*time.Second)
		return nil
	}),
}

// replaced is a master that another one takes the place of.
func replaced(name string, begin func(w *world) func()) fault {
	return alone(name, effForget|effSilent, 1.2, 1.6, .6, func(w *world, _ planned) func() { return begin(w) })
}

// noInfo: whether a copy's server was restarted is asked by INFO. Who may not ask must hear of
// that, not of a lock that is busy; new clients have not asked before.
var noInfo = func() fault {
	rights := func(w *world, change string) {
		for _, s := range w.servers {
			s.Do(w.t, "ACL", "SETUSER", user, change)
		}
	}
	f := alone("ACL: no INFO", effRefuse|effSilent, 2, 2.5, .3, func(w *world, _ planned) func() {
		rights(w, "-info")
		for _, one := range w.workers {
			one.Send(w.t, "close")
		}
		return func() { rights(w, "+info") }
	})
	f.says = "NOPERM"
	return f
}()

// tags are the hash tags of the kinds on a cluster.
var tags = []string{kindPlain, kindFair, "rw"}

func (w *world) slot(p planned) int { return testbed.Slot("{" + tags[p.seed%uint64(len(tags))] + "}") }

// forward is by how much a clock is set so that all leases are over.
func (w *world) forward(p planned) time.Duration {
	return leases(w.p.lease, 2) + time.Duration(p.seed%20)*time.Second
}

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
	return alone(name, effMinor, .35, .5, 2.2, func(w *world, p planned) func() {
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
	})
}
