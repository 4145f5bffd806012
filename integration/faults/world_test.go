package faults

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/internal/testbed"
)

// world is an episode's servers and processes.
type world struct {
	t       *testing.T
	p       *profile
	rand    *rand.Rand
	dir     string
	store   *testbed.Server
	servers []*testbed.Server // standalone: one; masters: several
	proxies []*testbed.Proxy  // in front of them
	clocks  []*clockFile      // theirs, if they can be set
	guard   *testbed.SentinelSet
	cluster *testbed.ClusterSet
	workers []*worker // that live, or are just being replaced
	all     []*worker // killed ones too
	windows []window
	stalls  func() []window // ends the watch over the servers; nil: it has ended
	extra   int64           // operations that left no record
}

// worker is a process and what it said.
type worker struct {
	*testbed.Process
	proc        int
	file        string
	killed      bool
	ended       time.Duration // when; valid after done
	ready, done chan struct{}
	extra       int64  // valid after done
	strange     string // a line that is none of the protocol; valid after done
}

// user is who the workers are where a profile takes permissions away.
const user = "worker"

func newWorld(t *testing.T, p *profile, seed uint64) *world {
	w := &world{t: t, p: p, rand: rand.New(rand.NewPCG(seed, 1)), dir: t.TempDir()} // #nosec G404 -- a test
	w.store = testbed.Standalone(t)
	switch p.topology {
	case "sentinel":
		w.guard = testbed.Sentinel(t, p.servers...)
	case "cluster":
		w.cluster = testbed.Cluster(t, p.servers...)
	default:
		n := 1
		if p.topology == "masters" {
			n = masters
		}
		for range n {
			w.servers = append(w.servers, w.server(p))
		}
	}
	for _, s := range w.servers {
		if p.user {
			s.Do(t, "ACL", "SETUSER", user, "on", ">"+user, "~*", "&*", "+@all")
		}
		w.proxies = append(w.proxies, testbed.NewProxy(t, s.Addr()))
	}
	w.stalls = w.watchServers()
	t.Cleanup(func() {
		if w.stalls != nil {
			w.stalls()
		}
	})
	for range p.workers {
		w.workers = append(w.workers, w.spawn())
	}
	for _, one := range w.workers {
		w.await(one.ready, "a worker does not begin")
	}
	return w
}

func (w *world) server(p *profile) *testbed.Server {
	if !p.clock {
		return testbed.Standalone(w.t, p.servers...)
	}
	clock, env := newClock(w.t)
	w.clocks = append(w.clocks, clock)
	return testbed.StandaloneEnv(w.t, env, p.servers...)
}

// nodes are all servers that hold locks.
func (w *world) nodes() []*testbed.Server {
	switch {
	case w.guard != nil:
		return w.guard.Nodes()
	case w.cluster != nil:
		return w.cluster.Nodes()
	}
	return w.servers
}

// master returns the target's server as it is now.
func (w *world) master(target int) *testbed.Server {
	if w.guard != nil {
		return w.guard.Master()
	}
	return w.servers[target]
}

func (w *world) await(done <-chan struct{}, what string) {
	w.t.Helper()
	select {
	case <-done:
	case <-time.After(2 * patient):
		w.t.Fatal(what)
	}
}

// spawn starts a worker. It says when it is ready.
func (w *world) spawn() *worker {
	proc := len(w.all) + 1
	args := workArgs{
		Proc: proc, History: filepath.Join(w.dir, fmt.Sprintf("history-%d", proc)), Store: w.store.Addr(),
		Lease: w.p.lease, Skip: w.p.skip, Seed: w.rand.Uint64(), Loops: w.p.loops, Work: w.p.work, Acks: w.p.acks,
	}
	switch {
	case w.guard != nil:
		args.Sets, args.Sentinel = [][]string{w.guard.SentinelAddrs()}, true
	case w.cluster != nil:
		args.Sets = [][]string{w.cluster.Addrs()}
	default:
		if w.p.user {
			args.User = user
		}
		for i, p := range w.proxies {
			args.Sets = append(args.Sets, []string{p.Addr()})
			if len(w.proxies) == 1 {
				args.Direct = append(args.Direct, []string{w.servers[i].Addr()})
			}
		}
	}
	one := &worker{
		proc: proc, file: args.History, ready: make(chan struct{}), done: make(chan struct{}),
		Process: testbed.Spawn(w.t, "faults", args),
	}
	w.all = append(w.all, one)
	go func() { // ends with the process
		defer func() {
			one.ended = mono()
			close(one.done)
		}()
		for line := range one.Lines() {
			switch {
			case line == "ready":
				close(one.ready)
			case strings.HasPrefix(line, "done "):
				if _, err := fmt.Sscan(line[5:], &one.extra); err != nil {
					one.strange = line
				}
			default:
				one.strange = line
			}
		}
	}()
	return one
}

// open notes that a fault begins; its end is noted by close.
func (w *world) open(p planned) int {
	one := window{name: p.fault.name, from: mono(), to: forever, target: p.target, effects: p.fault.effects, says: p.fault.says}
	if p.fault.worker && p.fault.effects&effDead == 0 {
		one.proc = w.workers[p.target].proc
	}
	w.windows = append(w.windows, one)
	return len(w.windows) - 1
}

// away tells whether a server of the plan's stands still or is down.
func (w *world) away(target int) bool {
	for _, one := range w.windows {
		if one.to == forever && one.target == target && (one.name == "BUSY" || strings.HasPrefix(one.name, "server ")) {
			return true
		}
	}
	return false
}

func (w *world) close(i int) { w.windows[i].to = mono() }

// run does what the plan says and returns when the time is over and every fault has
// ended.
func (w *world) run(steps []planned, length time.Duration) {
	type ending struct {
		at   time.Duration
		undo func()
		i    int
	}
	var open []ending
	begin := mono()
	sleep := func(at time.Duration) { time.Sleep(at - (mono() - begin)) }
	finish := func(until time.Duration) {
		for len(open) > 0 {
			first := 0
			for k := range open {
				if open[k].at < open[first].at {
					first = k
				}
			}
			if open[first].at > until {
				return
			}
			one := open[first]
			open = append(open[:first], open[first+1:]...)
			sleep(one.at)
			if one.undo != nil {
				one.undo()
			}
			w.close(one.i)
		}
	}
	for _, p := range steps {
		finish(p.at)
		sleep(p.at)
		i := w.open(p)
		open = append(open, ending{p.at + p.lasts, p.fault.begin(w, p), i})
	}
	finish(length)
	sleep(length)
}

// stop ends the workers and returns what they recorded.
func (w *world) stop() *history {
	t := w.t
	for _, one := range w.workers {
		select {
		case <-one.done: // too early; Wait says why
		default:
			one.CloseInput(t)
		}
	}
	h := &history{}
	var records []*record
	for _, one := range w.all {
		w.await(one.done, fmt.Sprintf("worker %d does not end", one.proc))
		err := one.Wait(t)
		if err != nil && !one.killed {
			h.notes = append(h.notes, &record{Proc: one.proc, Text: fmt.Sprintf("%v\n%s", err, one.Stderr())})
		}
		if one.strange != "" {
			t.Errorf("worker %d said %q", one.proc, one.strange)
		}
		w.extra += one.extra
		mine, err := readRecords(one.file)
		if err != nil && (!one.killed || !errors.Is(err, fs.ErrNotExist)) { // killed before it began
			t.Errorf("worker %d: %v", one.proc, err)
		}
		records = append(records, mine...)
	}
	w.windows = append(w.windows, w.stalls()...)
	w.stalls = nil
	died := h.notes
	h = newHistory(w.p.lease, records, w.windows)
	h.notes = append(h.notes, died...)
	h.writes = writes(t, w.store)
	return h
}

// visit lends a client of its own, past all faults on the line.
func (w *world) visit(do func(c *redlatch.Client)) {
	c := w.visitor()
	defer c.Close()
	do(c)
}

func (w *world) visitor() *redlatch.Client {
	opt := rueidis.ClientOption{ForceSingleClient: w.guard == nil && w.cluster == nil}
	switch {
	case w.guard != nil:
		opt.InitAddress, opt.Sentinel.MasterSet = w.guard.SentinelAddrs(), testbed.MasterName
	case w.cluster != nil:
		opt.InitAddress = w.cluster.Addrs()
	default:
		opt.InitAddress = []string{w.servers[0].Addr()}
	}
	c, err := redlatch.New(redlatch.Config{Redis: opt, LeaseTime: w.p.lease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.t.Fatal(err)
	}
	return c
}

// queue is what the keys of a fair lock's waiters begin with.
const queue = "redisson_lock_queue:"

// tidy takes and unlocks each fair lock in whose queue the dead, and those who were not let
// leave, have stayed: they wait for the next one who comes, or for ten minutes.
func (w *world) tidy(r *report) {
	if len(w.nodes()) > 1 && w.guard == nil && w.cluster == nil {
		return // no fair locks there
	}
	excused := false
	for _, one := range w.windows {
		excused = excused || one.effects&(effDead|effRefuse|effSilent|effFrozen|effForget) != 0
	}
	left := map[string]bool{}
	for _, s := range w.nodes() {
		if s.Info(w.t, "replication")["role"] != "master" {
			continue
		}
		for _, key := range s.List(w.t, "KEYS", queue+"*") {
			left[strings.TrimPrefix(key, queue)] = true
			limit := w.p.skip + 10*time.Minute
			if ttl := s.Int(w.t, "PTTL", key); ttl == -1 || time.Duration(ttl)*time.Millisecond > limit {
				r.violation("left behind on %s: %s for %d ms", s.Addr(), key, ttl)
			}
		}
	}
	if len(left) == 0 || !excused {
		return
	}
	w.visit(func(c *redlatch.Client) {
		for name := range left {
			begin := mono()
			h, err := c.FairLock(name, fairlock.WithSkipAfter(w.p.skip)).TryLock(context.Background(), w.p.lease+2*w.p.skip+slack, 0)
			if err != nil {
				r.violation("nobody lives, and %s is not given: %v after %v", name, err, mono()-begin)
				continue
			}
			if err := h.Unlock(context.Background()); err != nil {
				r.violation("nobody lives, and %s is not unlocked: %v", name, err)
			}
		}
	})
}

// left waits until nothing of the locks is on the servers any more, for as long as the
// leases of the dead allow.
func (w *world) left(r *report) {
	t := w.t
	w.tidy(r)
	for _, c := range w.clocks {
		c.put(t, 3*time.Hour) // what was written at a later time ends
	}
	allowed := testbed.AllowKeys("redisson_lock_token:", "redlatch_void:") // a void set lasts for seconds
	deadline := time.Now().Add(3*w.p.lease + 2*w.p.skip + 5*time.Second)
	for _, s := range w.nodes() {
		if err := testbed.LeftBehind(s, time.Until(deadline), allowed); err != nil {
			r.violation("left behind on %s: %v", s.Addr(), err)
		}
		if s.Info(t, "replication")["role"] != "master" {
			continue // says MOVED on a cluster
		}
		for _, key := range s.List(t, "KEYS", "redlatch_void:*") {
			if ms := s.Int(t, "PTTL", key); ms == -1 || ms > 10_000 {
				r.violation("left behind on %s: %s for %d ms", s.Addr(), key, ms)
			}
		}
	}
}
