package faults

import (
	"fmt"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// alone is a fault of several servers, beside which there is no other of a server.
func alone(name string, effects effect, lowest, highest, pauses float64, begin func(x *ongoing)) fault {
	return fault{
		name: name, needs: "server", alone: true, effects: effects, lowest: lowest, highest: highest, pauses: pauses, begin: begin,
	}
}

// replaced is a master that another one takes the place of.
func replaced(name string, begin func(x *ongoing)) fault {
	return alone(name, effForget|effSilent, 1.2, 1.6, .6, begin)
}

// topologyFaults are those of several servers.
var topologyFaults = []fault{
	replaced("failover", func(x *ongoing) { x.guard.Failover(x.t) }),
	replaced("master killed", func(x *ongoing) {
		old := x.guard.KillMaster(x.t)
		x.guard.AwaitNewMaster(x.t, old)
		x.undo = func() {
			old.Restart(x.t, testbed.Stale)
			x.guard.AwaitReady(x.t)
		}
	}),
	// The old one wakes as a master and answers until it is told.
	replaced("master frozen", func(x *ongoing) {
		old := x.guard.Master()
		old.Freeze(x.t)
		x.guard.AwaitNewMaster(x.t, old)
		x.undo = func() {
			old.Thaw(x.t)
			x.guard.AwaitReady(x.t)
		}
	}),
	// Some keys are on either side. What is held must be kept, and can be unlocked.
	alone("slot half way", effLine|effSplit, .6, 1, .1, func(x *ongoing) {
		m := x.migrate()
		for i, key := range m.From.List(x.t, "CLUSTER", "GETKEYSINSLOT", fmt.Sprint(testbed.Slot(x.tag())), "100") {
			if x.chance(i) {
				m.MoveKey(x.t, key)
			}
		}
		x.undo = func() { m.Finish(x.t) }
	}),
	// All keys are on one side, and the slot stays half-way: nothing is excused by that.
	alone("slot left half way", 0, 1.5, 4, .1, leaveHalfWay),
	// The same for minutes.
	alone("slot forgotten half way", 0, 9, 12, .1, leaveHalfWay),
	alone("slot moved", effLine, .001, .002, .2, func(x *ongoing) { x.migrate().Finish(x.t) }),
	alone("scripts flushed everywhere", effReload, .005, .01, 0, told("SCRIPT", "FLUSH")),
	// No write is lost, but some time passes.
	alone("cluster failover", effSilent, .001, .002, .2, func(x *ongoing) {
		x.cluster.Failover(x.t, x.cluster.NodeOfKey(x.t, x.tag()))
		x.cluster.AwaitReady(x.t)
	}),
	// A crowd gives up on the frozen node's locks; the others' must not notice.
	alone("node frozen", effSilent|effFrozen, .2, .4, .1, func(x *ongoing) {
		node := x.cluster.NodeOfKey(x.t, x.tag())
		for _, tag := range tags {
			if x.cluster.NodeOfKey(x.t, "{"+tag+"}") != node {
				continue
			}
			for n := range x.p.work.Names {
				x.window().names = append(x.window().names, fmt.Sprintf("{%s}%d", tag, n))
			}
			for n := range len(x.all) + 1 {
				x.window().names = append(x.window().names, fmt.Sprintf("{%s}%d", tag, own+n))
			}
		}
		node.Freeze(x.t)
		for _, one := range x.workers {
			one.Send(x.t, "crowd 800 %s %d", strings.Trim(x.tag(), "{}"), x.seed)
		}
		x.undo = func() { node.Thaw(x.t) }
	}),
	{
		// Whether a copy's server was restarted is asked by INFO. Who may not ask must hear of
		// that, not of a lock that is busy; new clients have not asked before.
		name: "ACL: no INFO", needs: "server", alone: true, effects: effRefuse | effSilent, says: "NOPERM",
		lowest: 2, highest: 2.5, pauses: .3,
		begin: func(x *ongoing) {
			info := func(right string) {
				for _, s := range x.servers {
					s.Do(x.t, "ACL", "SETUSER", user, right)
				}
			}
			info("-info")
			for _, one := range x.workers {
				one.Send(x.t, "close")
			}
			x.undo = func() { info("+info") }
		},
	},
	alone("minority frozen", effMinor, .1, 2, .1, func(x *ongoing) {
		x.spread()
		x.server().Freeze(x.t)
		x.undo = func() { x.server().Thaw(x.t) }
	}),
	// Two restarts within a lease are more than a quorum of three promises to bear.
	alone("minority restarted empty", effMinor, .05, .2, 2.2, func(x *ongoing) {
		x.spread()
		x.server().Kill(x.t)
		x.undo = func() { x.server().Restart(x.t, testbed.Empty) }
	}),
	oneFrozen("one frozen, another restarted", func(*ongoing, int) func() { return func() {} }),
	// The server's uptime follows its clock: it says that it is old, or not born yet.
	oneFrozen("one frozen, another restarted, its clock set forward", func(x *ongoing, restarted int) func() {
		return func() { x.forward(restarted) }
	}),
	oneFrozen("one frozen, another restarted, its clock set back", func(x *ongoing, restarted int) func() {
		return func() { x.back(restarted) }
	}),
	// Whoever has a lock for longer than LeaseTime and stands still can't hear that a copy was forgotten.
	oneFrozen("one frozen, another restarted, a worker stopped", func(x *ongoing, _ int) func() {
		one := x.workers[x.seed%uint64(len(x.workers))]
		x.windows = append(x.windows, window{
			name: "worker stopped", from: mono(), to: mono() + x.lasts + leases(x.p.lease, 2.2), proc: one.proc, effects: effPause,
		})
		one.Freeze(x.t)
		return func() {
			time.Sleep(leases(x.p.lease, 1.6))
			one.Thaw(x.t)
		}
	}),
	// The copies of one server end at once, or last for longer. Who has the other two keeps the lock; who has one
	// of them learns of its loss at the next check.
	alone("minority's clock set forward", effForget, .001, .002, 2.2, func(x *ongoing) {
		x.spread()
		x.forward(x.target)
	}),
	alone("minority's clock set back", effMinor, .001, .002, 2.2, func(x *ongoing) {
		x.spread()
		x.back(x.target)
	}),
}

// tags are the hash tags of the kinds on a cluster.
var tags = []string{kindPlain, kindFair, "rw"}

// tag is one of the kinds', as part of a key.
func (x *ongoing) tag() string { return "{" + tags[x.seed%uint64(len(tags))] + "}" }

// forward sets a server's clock so that all leases are over.
func (x *ongoing) forward(server int) {
	x.step(server, leases(x.p.lease, 2)+time.Duration(x.seed%20)*time.Second)
}

// migrate begins to move a slot of one of the kinds to another master.
func (x *ongoing) migrate() *testbed.Migration {
	from := x.cluster.NodeOfKey(x.t, x.tag())
	for _, to := range x.cluster.Masters(x.t) {
		if to != from {
			return x.cluster.BeginMigration(x.t, testbed.Slot(x.tag()), to)
		}
	}
	x.t.Fatal("a cluster of one master")
	return nil
}

// leaveHalfWay moves the keys of a slot, and ends the move later. Only the moments in which keys are on
// both sides are a window in which something may fail.
func leaveHalfWay(x *ongoing) {
	moving := func(move func()) {
		from := mono()
		move()
		x.windows = append(x.windows, window{name: "keys of a slot moved", from: from, to: mono(), effects: effLine | effSplit})
	}
	var m *testbed.Migration
	moving(func() {
		m = x.migrate()
		m.MoveKeys(x.t)
	})
	x.undo = func() { moving(func() { m.Finish(x.t) }) }
}

// spread notes that the locks that need every server lose one.
func (x *ongoing) spread() {
	one := *x.window()
	one.effects = effForget | effSilent
	for i := range masters {
		one.names = append(one.names, fmt.Sprintf("{%s}0@%d", kindSpread, i))
	}
	// closed by hand: it is no window of run's
	one.to = one.from + x.lasts + 2*time.Second
	x.windows = append(x.windows, one)
}

// oneFrozen: who acquires while one server is frozen has the other two; when one of these forgets, the first and the
// forgetful one are a majority for somebody else, unless it stays out. besides makes what happens when the second one
// has died, and what it returns when that is back.
func oneFrozen(name string, besides func(x *ongoing, restarted int) (back func())) fault {
	return alone(name, effMinor, .35, .5, 2.2, func(x *ongoing) {
		next := (x.target + 1) % masters
		x.windows = append(x.windows, window{
			name: name, from: mono(), to: mono() + leases(x.p.lease, .5), target: next, effects: effMinor,
		})
		x.spread()
		x.server().Freeze(x.t)
		time.Sleep(leases(x.p.lease, .3))
		x.server().Thaw(x.t)
		x.servers[next].Kill(x.t)
		back := besides(x, next)
		x.undo = func() {
			x.servers[next].Restart(x.t, testbed.Empty)
			back()
		}
	})
}
