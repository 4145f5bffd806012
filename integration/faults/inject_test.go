package faults

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// faults are all there are. A fault that needs "server" has it for itself; those that
// need a part of it go together.
var faults = slices.Concat(lineFaults, workerFaults, serverFaults, lossFaults, crowdFaults, topologyFaults)

// scripts matches every script that is called.
var scripts = testbed.Contains("EVAL")

// lineFaults are those of the network.
// latest is by how much the messages of a slow line are late at most, in leases.
const latest = .04

var lineFaults = []fault{
	{
		name: "reply lost", needs: "line", effects: effLine, lowest: .05, highest: .2,
		begin: func(w *world, p planned) func() {
			return w.proxies[p.target].DropReply(scripts).Times(1 + int(p.seed%3)).Release
		},
	},
	{
		name: "request lost", needs: "line", effects: effLine, lowest: .05, highest: .2,
		begin: func(w *world, p planned) func() {
			return w.proxies[p.target].DropRequest(scripts).Times(1 + int(p.seed%3)).Release
		},
	},
	{
		// Held back by the network, and delivered when nobody expects it any more.
		name: "requests late", needs: "line", effects: effLine, lowest: .01, highest: .05,
		begin: func(w *world, p planned) func() {
			trap := w.proxies[p.target].DropRequest(scripts).Times(1 + int(p.seed%4))
			return func() {
				trap.Release()
				if !w.away(p.target) { // else the network loses them
					trap.DeliverAll(w.t)
				}
			}
		},
	},
	{
		name: "requests repeated", needs: "line", effects: effLine, lowest: .01, highest: .05,
		begin: func(w *world, p planned) func() {
			trap := w.proxies[p.target].CopyRequest(scripts).Times(5 + int(p.seed%20))
			return func() {
				trap.Release()
				if !w.away(p.target) { // else the network loses them
					trap.DeliverAll(w.t)
				}
			}
		},
	},
	{
		name: "latency", needs: "line", effects: effLine, lowest: .1, highest: .5,
		begin: func(w *world, p planned) func() {
			proxy, d := w.proxies[p.target], time.Duration(p.seed%uint64(leases(w.p.lease, latest)))
			done, ended := make(chan struct{}), make(chan struct{})
			go func() { // until the fault ends
				defer close(ended)
				for i := uint64(1); ; i++ {
					proxy.Delay(testbed.Requests, d*time.Duration(p.seed*i%7)/7)
					proxy.Delay(testbed.Replies, d*time.Duration(p.seed*i%5)/5)
					select {
					case <-done:
						proxy.Delay(testbed.Requests, 0)
						proxy.Delay(testbed.Replies, 0)
						return
					case <-time.After(20 * time.Millisecond):
					}
				}
			}()
			return func() { close(done); <-ended }
		},
	},
	{
		name: "cut", needs: "line", effects: effLine, lowest: .01, highest: .02,
		begin: func(w *world, p planned) func() { w.proxies[p.target].Cut(); return nil },
	},
	{
		name: "refused", needs: "line", effects: effSilent | effFrozen, lowest: .1, highest: 1.5,
		begin: func(w *world, p planned) func() {
			w.proxies[p.target].Refuse()
			w.proxies[p.target].Cut()
			return func() { w.proxies[p.target].Admit(w.t) }
		},
	},
	{
		name: "requests held", needs: "line", effects: effSilent | effFrozen, lowest: .1, highest: 2,
		begin: func(w *world, p planned) func() {
			w.proxies[p.target].Pause(testbed.Requests)
			return func() { w.proxies[p.target].Resume(testbed.Requests) }
		},
	},
	{
		name: "replies held", needs: "line", effects: effSilent | effFrozen, lowest: .1, highest: 2,
		begin: func(w *world, p planned) func() {
			w.proxies[p.target].Pause(testbed.Replies)
			return func() { w.proxies[p.target].Resume(testbed.Replies) }
		},
	},
	answer("LOADING", "LOADING Redis is loading the dataset in memory"),
	answer("CLUSTERDOWN", "CLUSTERDOWN The cluster is down"),
}

// answer is an error that every script gets for a while, from the proxy.
func answer(name, message string) fault {
	return fault{
		name: name, needs: "line", effects: effSilent, lowest: .05, highest: .3,
		begin: func(w *world, p planned) func() {
			return w.proxies[p.target].Answer(scripts, message).Times(-1).Release
		},
	}
}

// workerFaults are those of the processes.
var workerFaults = []fault{
	{
		name: "worker stopped", needs: "worker", worker: true, effects: effPause, lowest: .1, highest: .9,
		begin: stop,
	},
	{
		name: "worker stopped for long", needs: "worker", worker: true, effects: effPause, lowest: 1.1, highest: 2.5,
		begin: stop,
	},
	{
		name: "worker killed", needs: "worker", worker: true, effects: effDead, lowest: .05, highest: .4,
		begin: func(w *world, p planned) func() {
			w.workers[p.target].killed = true
			w.workers[p.target].Kill(w.t)
			return func() { w.workers[p.target] = w.spawn() }
		},
	},
	{
		name: "Close", needs: "worker", worker: true, effects: effDead, lowest: .05, highest: .1,
		begin: func(w *world, p planned) func() { return w.tell(p, "close") },
	},
	{
		name: "Shutdown", needs: "worker", worker: true, effects: effDead, lowest: .05, highest: .1,
		begin: func(w *world, p planned) func() { return w.tell(p, "shutdown") },
	},
	{
		name: "herd", needs: "worker", worker: true, lowest: .5, highest: 1,
		begin: func(w *world, p planned) func() {
			w.workers[p.target].Send(w.t, "herd %d %d", 50+p.seed%200, p.seed)
			return nil
		},
	},
}

func stop(w *world, p planned) func() {
	one := w.workers[p.target]
	one.Freeze(w.t)
	return func() { one.Thaw(w.t) }
}

func (w *world) tell(p planned, line string) func() {
	w.workers[p.target].Send(w.t, "%s", line)
	return nil
}

// setting changes a server's configuration for a while.
func setting(name, part string, effects effect, lowest, highest float64, set, back []string) fault {
	return fault{
		name: name, needs: "server", part: part, effects: effects, lowest: lowest, highest: highest,
		begin: func(w *world, p planned) func() {
			s := w.master(p.target)
			s.Do(w.t, set...)
			return func() { s.Do(w.t, back...) }
		},
	}
}

// denial takes a permission away for a while.
func denial(name string, taken ...string) fault {
	return setting("ACL: no "+name, "acl", effRefuse|effSilent, .05, 1.2,
		append([]string{"ACL", "SETUSER", user}, taken...), []string{"ACL", "SETUSER", user, "~*", "&*", "+@all"})
}

// serverFaults are those that keep the server's data.
var serverFaults = []fault{
	setting("NOREPLICAS", "replicas", effSilent, .05, .3,
		[]string{"CONFIG", "SET", "min-replicas-to-write", "9"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}),
	setting("READONLY", "role", effSilent, .05, .3,
		[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}),
	setting("NOREPLICAS for a moment", "replicas", effSilent, .002, .01,
		[]string{"CONFIG", "SET", "min-replicas-to-write", "9"}, []string{"CONFIG", "SET", "min-replicas-to-write", "0"}),
	setting("READONLY for a moment", "role", effSilent, .002, .01,
		[]string{"REPLICAOF", "127.0.0.1", "1"}, []string{"REPLICAOF", "NO", "ONE"}),
	// Holds live on when the memory is full.
	setting("OOM", "memory", effRefuse, .5, 2.5,
		[]string{"CONFIG", "SET", "maxmemory", "1"}, []string{"CONFIG", "SET", "maxmemory", "0"}),
	setting("subscribers overflow", "buffers", effLine, .02, .1,
		[]string{"CONFIG", "SET", "client-output-buffer-limit", "pubsub 1 1 1"},
		[]string{"CONFIG", "SET", "client-output-buffer-limit", "pubsub 33554432 8388608 60"}),
	denial("scripts", "-eval", "-evalsha"),
	denial("PUBLISH", "-publish"),
	denial("SUBSCRIBE", "-subscribe", "-psubscribe"),
	denial("keys", "resetkeys"),
	{
		name: "subscriptions killed", needs: "server", part: "clients", effects: effLine, lowest: .005, highest: .01,
		begin: func(w *world, p planned) func() {
			var nodes []*testbed.Server
			if w.cluster != nil {
				nodes = w.cluster.Masters(w.t)
			} else {
				nodes = append(nodes, w.master(p.target))
			}
			for _, s := range nodes {
				s.Do(w.t, "CLIENT", "KILL", "TYPE", "pubsub")
			}
			return nil
		},
	},
	{
		name: "scripts flushed", needs: "server", part: "scripts", effects: effReload, lowest: .005, highest: .01,
		begin: func(w *world, p planned) func() { w.master(p.target).Do(w.t, "SCRIPT", "FLUSH"); return nil },
	},
	{
		name: "server frozen", needs: "server", effects: effSilent | effFrozen, lowest: .1, highest: 2,
		begin: func(w *world, p planned) func() {
			s := w.master(p.target)
			s.Freeze(w.t)
			return func() { s.Thaw(w.t) }
		},
	},
	{
		name: "server restarted, nothing lost", needs: "server", effects: effSilent, lowest: .05, highest: .5,
		begin: func(w *world, p planned) func() {
			s := w.master(p.target)
			s.Kill(w.t)
			return func() { s.Restart(w.t, testbed.Stale) } // from the append-only file
		},
	},
	{
		name: "MISCONF", needs: "server", part: "disk", effects: effSilent, lowest: .05, highest: .3,
		begin: func(w *world, p planned) func() { return w.master(p.target).FailSaves(w.t) },
	},
	{
		name: "BUSY", needs: "server", effects: effSilent, lowest: .03, highest: .2,
		begin: func(w *world, p planned) func() { return w.master(p.target).Hang(w.t) },
	},
}

// lossFaults are those by which a server forgets.
var lossFaults = []fault{
	{
		name: "server restarted empty", needs: "server", effects: effForget | effSilent, lowest: .05, highest: .3,
		begin: func(w *world, p planned) func() {
			s := w.master(p.target)
			s.Kill(w.t)
			return func() { s.Restart(w.t, testbed.Empty) }
		},
	},
	{
		name: "server restarted behind", needs: "server", effects: effForget | effSilent, lowest: .1, highest: .5,
		begin: func(w *world, p planned) func() {
			s := w.master(p.target)
			s.Do(w.t, "SAVE")
			return func() { s.Restart(w.t, testbed.Stale) }
		},
	},
	{
		name: "FLUSHALL", needs: "server", part: "data", effects: effForget, lowest: .001, highest: .002, pauses: .5,
		begin: func(w *world, p planned) func() { _, _ = w.master(p.target).Try("FLUSHALL"); return nil }, // refused by a replica
	},
	{
		name: "lock taken away", needs: "server", part: "data", effects: effForget | effTaken, lowest: .001, highest: .002,
		begin: func(w *world, p planned) func() {
			kinds := []string{kindPlain, kindFair, "rw"}
			name := fmt.Sprintf("{%s}%d", kinds[p.seed%3], p.seed>>2%uint64(max(names, w.p.work.Names)))
			w.windows[len(w.windows)-1].names = []string{name}
			w.visit(func(c *redlatch.Client) {
				if _, err := c.ForceUnlock(context.Background(), name); err != nil {
					w.t.Errorf("ForceUnlock of %s: %v", name, err)
				}
			})
			return nil
		},
	},
	{
		name: "keys deleted", needs: "server", part: "data", effects: effForget, lowest: .001, highest: .002, pauses: .3,
		begin: func(w *world, p planned) func() {
			s := w.master(p.target)
			for i, key := range s.List(w.t, "KEYS", "*") {
				if p.seed>>(i%64)&1 == 1 && !strings.Contains(key, "_token:") {
					_, _ = s.Try("DEL", key) // refused while other faults make the server refuse writes
				}
			}
			return nil
		},
	},
	{
		name: "eviction", needs: "server", effects: effForget | effRefuse | effSilent, lowest: .02, highest: .2, pauses: .3,
		begin: func(w *world, p planned) func() {
			s := w.master(p.target)
			s.Do(w.t, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
			s.Do(w.t, "CONFIG", "SET", "maxmemory", "1")
			return func() {
				s.Do(w.t, "CONFIG", "SET", "maxmemory", "0")
				s.Do(w.t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
			}
		},
	},
	{
		name: "server's clock set forward", needs: "server", part: "clock", effects: effForget, lowest: .001, highest: .002, pauses: .5,
		begin: func(w *world, p planned) func() {
			c := w.clocks[p.target]
			c.put(w.t, c.ahead+time.Duration(1+p.seed%20)*time.Second)
			return nil
		},
	},
	{
		// Leases live longer; the ends that the server computes from its clock lie in the past.
		name: "server's clock set back", needs: "server", part: "clock", effects: effForget, lowest: .001, highest: .002, pauses: .5,
		begin: func(w *world, p planned) func() {
			c := w.clocks[p.target]
			c.put(w.t, c.ahead-time.Duration(1+p.seed%5)*time.Second)
			return nil
		},
	},
}
