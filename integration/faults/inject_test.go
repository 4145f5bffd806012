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
func onLine(name string, effects effect, lowest, highest float64, begin func(w *world, p planned, line *testbed.Proxy) func()) fault {
	return fault{
		name: name, needs: "line", effects: effects, lowest: lowest, highest: highest,
		begin: func(w *world, p planned) func() { return begin(w, p, w.proxies[p.target]) },
	}
}

// onWorker is a fault of a process.
func onWorker(name string, effects effect, lowest, highest float64, begin func(w *world, p planned, one *worker) func()) fault {
	return fault{
		name: name, needs: "worker", worker: true, effects: effects, lowest: lowest, highest: highest,
		begin: func(w *world, p planned) func() { return begin(w, p, w.workers[p.target]) },
	}
}

// onServer is a fault of a part of a server, or of all of it.
func onServer(name, part string, effects effect, lowest, highest float64, begin func(w *world, p planned, s *testbed.Server) func()) fault {
	return fault{
		name: name, needs: "server", part: part, effects: effects, lowest: lowest, highest: highest,
		begin: func(w *world, p planned) func() { return begin(w, p, w.master(p.target)) },
	}
}

// apart returns the fault with a pause before the next one of the same thing.
func (f fault) apart(pauses float64) fault {
	f.pauses = pauses
	return f
}

// lineFaults are those of the network.
var lineFaults = []fault{
	caught("reply lost", .05, .2, (*testbed.Proxy).DropReply, 1, 3, nil),
	caught("request lost", .05, .2, (*testbed.Proxy).DropRequest, 1, 3, nil),
	// Held back by the network, and delivered when nobody expects it any more.
	caught("requests late", .01, .05, (*testbed.Proxy).DropRequest, 1, 4, deliver),
	caught("requests repeated", .01, .05, (*testbed.Proxy).CopyRequest, 5, 20, deliver),
	onLine("latency", effLine, .1, .5, func(w *world, p planned, line *testbed.Proxy) func() {
		d := time.Duration(p.seed % uint64(leases(w.p.lease, latest)))
		done, ended := make(chan struct{}), make(chan struct{})
		go func() { // until the fault ends
			defer close(ended)
			for i := uint64(1); ; i++ {
				line.Delay(testbed.Requests, d*time.Duration(p.seed*i%7)/7)
				line.Delay(testbed.Replies, d*time.Duration(p.seed*i%5)/5)
				select {
				case <-done:
					line.Delay(testbed.Requests, 0)
					line.Delay(testbed.Replies, 0)
					return
				case <-time.After(20 * ms):
				}
			}
		}()
		return func() { close(done); <-ended }
	}),
	onLine("cut", effLine, .01, .02, func(_ *world, _ planned, line *testbed.Proxy) func() { line.Cut(); return nil }),
	onLine("refused", effSilent|effFrozen, .1, 1.5, func(w *world, _ planned, line *testbed.Proxy) func() {
		line.Refuse()
		line.Cut()
		return func() { line.Admit(w.t) }
	}),
	held("requests held", testbed.Requests),
	held("replies held", testbed.Replies),
	answer("LOADING", "LOADING Redis is loading the dataset in memory"),
	answer("CLUSTERDOWN", "CLUSTERDOWN The cluster is down"),
}

// caught sets a trap for some scripts, at least so many and fewer than so many more.
func caught(name string, lowest, highest float64, set func(*testbed.Proxy, testbed.Match) *testbed.Trap, least, more uint64, then func(*world, planned, *testbed.Trap)) fault {
	return onLine(name, effLine, lowest, highest, func(w *world, p planned, line *testbed.Proxy) func() {
		trap := set(line, scripts).Times(int(least + p.seed%more))
		return func() {
			trap.Release()
			if then != nil {
				then(w, p, trap)
			}
		}
	})
}

// deliver sends what was caught, unless the server is away: the network loses it then.
func deliver(w *world, p planned, trap *testbed.Trap) {
	if !w.away(p.target) {
		trap.DeliverAll(w.t)
	}
}

// held is a half-open line.
func held(name string, d testbed.Direction) fault {
	return onLine(name, effSilent|effFrozen, .1, 2, func(_ *world, _ planned, line *testbed.Proxy) func() {
		line.Pause(d)
		return func() { line.Resume(d) }
	})
}

// answer is an error that every script gets for a while, from the proxy.
func answer(name, message string) fault {
	return onLine(name, effSilent, .05, .3, func(_ *world, _ planned, line *testbed.Proxy) func() {
		return line.Answer(scripts, message).Times(-1).Release
	})
}

// workerFaults are those of the processes.
var workerFaults = []fault{
	onWorker("worker stopped", effPause, .1, .9, stop),
	onWorker("worker stopped for long", effPause, 1.1, 2.5, stop),
	onWorker("worker killed", effDead, .05, .4, func(w *world, p planned, one *worker) func() {
		one.killed = true
		one.Kill(w.t)
		return func() { w.workers[p.target] = w.spawn() }
	}),
	onWorker("Close", effDead, .05, .1, func(w *world, _ planned, one *worker) func() { one.Send(w.t, "close"); return nil }),
	onWorker("Shutdown", effDead, .05, .1, func(w *world, _ planned, one *worker) func() { one.Send(w.t, "shutdown"); return nil }),
	onWorker("herd", 0, .5, 1, func(w *world, p planned, one *worker) func() {
		one.Send(w.t, "herd %d - %d", 50+p.seed%200, p.seed)
		return nil
	}),
}

func stop(w *world, _ planned, one *worker) func() {
	one.Freeze(w.t)
	return func() { one.Thaw(w.t) }
}

// setting changes a server for a while, by one command of up to four words and another one.
func setting(name, part string, effects effect, lowest, highest float64, set, back string) fault {
	return onServer(name, part, effects, lowest, highest, func(w *world, _ planned, s *testbed.Server) func() {
		s.Do(w.t, strings.SplitN(set, " ", 4)...)
		return func() { s.Do(w.t, strings.SplitN(back, " ", 4)...) }
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
	return onServer("ACL: no "+name, "acl", effRefuse|effSilent, .05, 1.2, func(w *world, _ planned, s *testbed.Server) func() {
		s.Do(w.t, append([]string{"ACL", "SETUSER", user}, taken...)...)
		return func() { s.Do(w.t, "ACL", "SETUSER", user, "~*", "&*", "+@all") }
	})
}

// flush has servers forget the scripts.
func flush(w *world, p planned) func() {
	for _, s := range w.masters(p.target) {
		s.Do(w.t, "SCRIPT", "FLUSH")
	}
	return nil
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
	{
		name: "subscriptions killed", needs: "server", part: "clients", effects: effLine, lowest: .005, highest: .01,
		begin: func(w *world, p planned) func() {
			for _, s := range w.masters(p.target) {
				s.Do(w.t, "CLIENT", "KILL", "TYPE", "pubsub")
			}
			return nil
		},
	},
	{name: "scripts flushed", needs: "server", part: "scripts", effects: effReload, lowest: .005, highest: .01, begin: flush},
	onServer("server frozen", "", effSilent|effFrozen, .1, 2, func(w *world, _ planned, s *testbed.Server) func() {
		s.Freeze(w.t)
		return func() { s.Thaw(w.t) }
	}),
	// From the append-only file.
	restarted("server restarted, nothing lost", effSilent, .05, .5, testbed.Stale, (*testbed.Server).Kill),
	onServer("MISCONF", "disk", effSilent, .05, .3, func(w *world, _ planned, s *testbed.Server) func() { return s.FailSaves(w.t) }),
	onServer("BUSY", "", effSilent, .03, .2, func(w *world, _ planned, s *testbed.Server) func() { return s.Hang(w.t) }),
})

// restarted is a server that dies, before its time or at the end of it, and comes back with these data.
func restarted(name string, effects effect, lowest, highest float64, data testbed.Data, before func(*testbed.Server, testbed.TB)) fault {
	return onServer(name, "", effects, lowest, highest, func(w *world, _ planned, s *testbed.Server) func() {
		before(s, w.t)
		return func() { s.Restart(w.t, data) }
	})
}

// lossFaults are those by which a server forgets.
var lossFaults = []fault{
	restarted("server restarted empty", effForget|effSilent, .05, .3, testbed.Empty, (*testbed.Server).Kill),
	restarted("server restarted behind", effForget|effSilent, .1, .5, testbed.Stale, func(s *testbed.Server, t testbed.TB) { s.Do(t, "SAVE") }),
	onServer("FLUSHALL", "data", effForget, .001, .002, func(_ *world, _ planned, s *testbed.Server) func() {
		_, _ = s.Try("FLUSHALL") // refused by a replica
		return nil
	}).apart(.5),
	onServer("lock taken away", "data", effForget|effTaken, .001, .002, func(w *world, p planned, _ *testbed.Server) func() {
		name := fmt.Sprintf("{%s}%d", tags[p.seed%3], p.seed>>2%uint64(w.p.work.Names))
		w.windows[len(w.windows)-1].names = []string{name}
		c := w.visitor()
		defer c.Close()
		if _, err := c.ForceUnlock(context.Background(), name); err != nil {
			w.t.Errorf("ForceUnlock of %s: %v", name, err)
		}
		return nil
	}),
	onServer("keys deleted", "data", effForget, .001, .002, func(w *world, p planned, s *testbed.Server) func() {
		for i, key := range s.List(w.t, "KEYS", "*") {
			if p.seed>>(i%64)&1 == 1 && !strings.Contains(key, "_token:") {
				_, _ = s.Try("DEL", key) // refused while other faults make the server refuse writes
			}
		}
		return nil
	}).apart(.3),
	onServer("eviction", "", effForget|effRefuse|effSilent, .02, .2, func(w *world, _ planned, s *testbed.Server) func() {
		s.Do(w.t, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
		s.Do(w.t, "CONFIG", "SET", "maxmemory", "1")
		return func() {
			s.Do(w.t, "CONFIG", "SET", "maxmemory", "0")
			s.Do(w.t, "CONFIG", "SET", "maxmemory-policy", "noeviction")
		}
	}).apart(.3),
	stepped("server's clock set forward", func(w *world, p planned) { w.step(p.target, time.Duration(1+p.seed%20)*time.Second) }),
	// Leases live longer; the ends that the server computes from its clock lie in the past.
	stepped("server's clock set back", func(w *world, p planned) { w.step(p.target, -time.Duration(1+p.seed%5)*time.Second) }),
}

// stepped sets a server's clock.
func stepped(name string, step func(w *world, p planned)) fault {
	return onServer(name, "clock", effForget, .001, .002, func(w *world, p planned, _ *testbed.Server) func() {
		step(w, p)
		return nil
	}).apart(.5)
}

// step sets a server's clock on by so much.
func (w *world) step(server int, by time.Duration) {
	c := w.clocks[server]
	c.put(w.t, c.ahead+by)
}
