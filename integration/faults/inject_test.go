package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// faults are all there are. A fault that needs "server" has it for itself; those that
// need a part of it go together.
var faults = slices.Concat(lineFaults, workerFaults, serverFaults, lossFaults, crowdFaults, topologyFaults)

// scripts matches every script that is called.
var scripts = testbed.Contains("EVAL")

// latest is by how much the messages of a slow line are late at most, in leases.
const latest = .04

// onLine is a fault of the network before a server.
func onLine(name string, effects effect, lowest, highest float64, begin func(x *ongoing)) fault {
	return fault{name: name, needs: "line", effects: effects, lowest: lowest, highest: highest, begin: begin}
}

// onWorker is a fault of a process.
func onWorker(name string, effects effect, lowest, highest float64, begin func(x *ongoing)) fault {
	return fault{name: name, needs: "worker", worker: true, effects: effects, lowest: lowest, highest: highest, begin: begin}
}

// onServer is a fault of a part of a server, or of all of it.
func onServer(name, part string, effects effect, lowest, highest float64, begin func(x *ongoing)) fault {
	return fault{name: name, needs: "server", part: part, effects: effects, lowest: lowest, highest: highest, begin: begin}
}

// apart returns the fault with a pause before the next one of the same thing.
func (f fault) apart(pauses float64) fault {
	f.pauses = pauses
	return f
}

// also returns the fault with more effects.
func (f fault) also(effects effect) fault {
	f.effects |= effects
	return f
}

// lineFaults are those of the network.
var lineFaults = []fault{
	caught("reply lost", .05, .2, (*testbed.Proxy).DropReply, 1, 3, nil),
	caught("request lost", .05, .2, (*testbed.Proxy).DropRequest, 1, 3, nil),
	// Held back by the network, and delivered when nobody expects it any more.
	caught("requests late", .01, .05, (*testbed.Proxy).DropRequest, 1, 4, (*testbed.Trap).DeliverAll),
	caught("requests repeated", .01, .05, (*testbed.Proxy).CopyRequest, 5, 20, (*testbed.Trap).DeliverAll).also(effAgain),
	onLine("latency", effLine, .1, .5, func(x *ongoing) {
		line, d := x.line(), time.Duration(x.seed%uint64(leases(x.p.lease, latest)))
		done, ended := make(chan struct{}), make(chan struct{})
		go func() { // until the fault ends
			defer close(ended)
			for i := uint64(1); ; i++ {
				line.Delay(testbed.Requests, d*time.Duration(x.seed*i%7)/7)
				line.Delay(testbed.Replies, d*time.Duration(x.seed*i%5)/5)
				select {
				case <-done:
					line.Delay(testbed.Requests, 0)
					line.Delay(testbed.Replies, 0)
					return
				case <-time.After(20 * ms):
				}
			}
		}()
		x.undo = func() { close(done); <-ended }
	}),
	onLine("cut", effLine, .01, .02, func(x *ongoing) { x.line().Cut() }),
	onLine("refused", effSilent|effFrozen, .1, 1.5, func(x *ongoing) {
		line := x.line()
		line.Refuse()
		line.Cut()
		x.undo = func() { line.Admit(x.t) }
	}),
	held("requests held", testbed.Requests),
	held("replies held", testbed.Replies),
	answer("LOADING", "LOADING Redis is loading the dataset in memory"),
	answer("CLUSTERDOWN", "CLUSTERDOWN The cluster is down"),
}

// caught sets a trap for some scripts, at least so many and fewer than so many more. What is done with them
// then is not where the server is away: the network loses them.
func caught(name string, lowest, highest float64, set func(*testbed.Proxy, testbed.Match) *testbed.Trap, least, more uint64, then func(*testbed.Trap, testbed.TB) int) fault {
	return onLine(name, effLine, lowest, highest, func(x *ongoing) {
		trap := set(x.line(), scripts).Times(int(least + x.seed%more))
		x.undo = func() {
			trap.Release()
			if then != nil && !x.away(x.target) {
				then(trap, x.t)
			}
		}
	})
}

// held is a half-open line.
func held(name string, d testbed.Direction) fault {
	return onLine(name, effSilent|effFrozen, .1, 2, func(x *ongoing) {
		line := x.line()
		line.Pause(d)
		x.undo = func() { line.Resume(d) }
	})
}

// answer is an error that every script gets for a while, from the proxy.
func answer(name, message string) fault {
	return onLine(name, effSilent, .05, .3, func(x *ongoing) { x.undo = x.line().Answer(scripts, message).Times(-1).Release })
}

// workerFaults are those of the processes.
var workerFaults = []fault{
	onWorker("worker stopped", effPause, .1, .9, stop),
	onWorker("worker stopped for long", effPause, 1.1, 2.5, stop),
	onWorker("worker killed", effDead, .05, .4, func(x *ongoing) {
		x.worker().killed = true
		x.worker().Kill(x.t)
		x.undo = func() { x.workers[x.target] = x.spawn() }
	}),
	onWorker("Close", effDead, .05, .1, func(x *ongoing) { x.worker().Send(x.t, "close") }),
	onWorker("Shutdown", effDead, .05, .1, func(x *ongoing) { x.worker().Send(x.t, "shutdown") }),
	onWorker("herd", 0, .5, 1, func(x *ongoing) { x.worker().Send(x.t, "herd %d - %d", 50+x.seed%200, x.seed) }),
}

func stop(x *ongoing) {
	one := x.worker()
	one.Freeze(x.t)
	x.undo = func() { one.Thaw(x.t) }
}

// setting changes a server for a while, by one command of up to four words and another one.
func setting(name, part string, effects effect, lowest, highest float64, set, back string) fault {
	return onServer(name, part, effects, lowest, highest, func(x *ongoing) {
		s := x.server()
		s.Do(x.t, strings.SplitN(set, " ", 4)...)
		x.undo = func() { s.Do(x.t, strings.SplitN(back, " ", 4)...) }
	})
}

// refuses makes a server refuse writes: it wants replicas, or is one.
func refuses(suffix string, lowest, highest float64) []fault {
	return []fault{
		setting("NOREPLICAS"+suffix, "replicas", effSilent, lowest, highest,
			"CONFIG SET min-replicas-to-write 9", "CONFIG SET min-replicas-to-write 0"),
		setting("READONLY"+suffix, "role", effSilent, lowest, highest, "REPLICAOF 127.0.0.1 1", "REPLICAOF NO ONE"),
	}
}

// denial takes a permission away for a while.
func denial(name string, taken ...string) fault {
	return onServer("ACL: no "+name, "acl", effRefuse|effSilent, .05, 1.2, func(x *ongoing) {
		s := x.server()
		s.Do(x.t, append([]string{"ACL", "SETUSER", user}, taken...)...)
		x.undo = func() { s.Do(x.t, "ACL", "SETUSER", user, "~*", "&*", "+@all") }
	})
}

// told runs a command on the server, or on all masters of a cluster.
func told(command ...string) func(x *ongoing) {
	return func(x *ongoing) {
		for _, s := range x.masters(x.target) {
			s.Do(x.t, command...)
		}
	}
}

// serverFaults are those that keep the server's data.
var serverFaults = slices.Concat(refuses("", .05, .3), refuses(" for a moment", .002, .01), []fault{
	// Holds live on when the memory is full.
	setting("OOM", "memory", effRefuse, .5, 2.5, "CONFIG SET maxmemory 1", "CONFIG SET maxmemory 0"),
	setting("subscribers overflow", "buffers", effLine, .02, .1,
		"CONFIG SET client-output-buffer-limit pubsub 1 1 1", "CONFIG SET client-output-buffer-limit pubsub 33554432 8388608 60"),
	denial("scripts", "-eval", "-evalsha"),
	denial("PUBLISH", "-publish"),
	denial("SUBSCRIBE", "-subscribe", "-psubscribe"),
	denial("keys", "resetkeys"),
	onServer("subscriptions killed", "clients", effLine, .005, .01, told("CLIENT", "KILL", "TYPE", "pubsub")),
	onServer("scripts flushed", "scripts", effReload, .005, .01, told("SCRIPT", "FLUSH")),
	onServer("server frozen", "", effSilent|effFrozen, .1, 2, func(x *ongoing) {
		s := x.server()
		s.Freeze(x.t)
		x.undo = func() { s.Thaw(x.t) }
	}),
	// From the append-only file.
	restarted("server restarted, nothing lost", effSilent, .05, .5, testbed.Stale, (*testbed.Server).Kill),
	onServer("MISCONF", "disk", effSilent, .05, .3, func(x *ongoing) { x.undo = x.server().FailSaves(x.t) }),
	onServer("BUSY", "", effSilent, .03, .2, func(x *ongoing) { x.undo = x.server().Hang(x.t) }),
})

// restarted is a server that dies, before its time or at the end of it, and comes back with these data.
func restarted(name string, effects effect, lowest, highest float64, data testbed.Data, before func(*testbed.Server, testbed.TB)) fault {
	return onServer(name, "", effects, lowest, highest, func(x *ongoing) {
		s := x.server()
		before(s, x.t)
		x.undo = func() { s.Restart(x.t, data) }
	})
}

// lossFaults are those by which a server forgets.
var lossFaults = []fault{
	restarted("server restarted empty", effForget|effSilent, .05, .3, testbed.Empty, (*testbed.Server).Kill),
	restarted("server restarted behind", effForget|effSilent, .1, .5, testbed.Stale, func(s *testbed.Server, t testbed.TB) { s.Do(t, "SAVE") }),
	onServer("FLUSHALL", "data", effForget, .001, .002, func(x *ongoing) {
		_, _ = x.server().Try("FLUSHALL") // refused by a replica
	}).apart(.5),
	onServer("lock taken away", "data", effForget|effTaken, .001, .002, func(x *ongoing) {
		name := fmt.Sprintf("{%s}%d", tags[x.seed%3], x.seed>>2%uint64(x.p.work.Names))
		x.window().names = []string{name}
		c := x.visitor()
		defer c.Close()
		_, err := c.ForceUnlock(context.Background(), name)
		testbed.Must(x.t, err)
	}),
	onServer("keys deleted", "data", effForget, .001, .002, func(x *ongoing) {
		for i, key := range x.server().List(x.t, "KEYS", "*") {
			if x.chance(i) && !strings.Contains(key, "_token:") {
				_, _ = x.server().Try("DEL", key) // refused while other faults make the server refuse writes
			}
		}
	}).apart(.3),
	onServer("keys dropped for memory", "", effForget|effRefuse|effSilent, .02, .2, func(x *ongoing) {
		s := x.server()
		s.Do(x.t, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
		s.Do(x.t, "CONFIG", "SET", "maxmemory", "1")
		x.undo = func() {
			s.Do(x.t, "CONFIG", "SET", "maxmemory", "0")
			s.Do(x.t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		}
	}).apart(.3),
	onServer("server's clock set forward", "clock", effForget, .001, .002, func(x *ongoing) {
		x.step(x.target, time.Duration(1+x.seed%20)*time.Second)
	}).apart(.5),
	// Leases live longer; the ends that the server computes from its clock lie in the past.
	onServer("server's clock set back", "clock", effForget, .001, .002, func(x *ongoing) { x.back(x.target) }).apart(.5),
}
