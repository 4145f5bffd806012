package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

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
	clocks  []*testbed.Clock  // theirs, if they can be set
	guard   *testbed.SentinelSet
	cluster *testbed.ClusterSet
	workers []*worker // that live, or are just being replaced
	all     []*worker // killed ones too
	windows windows
	stalls  func() []window // ends the watch over the servers; nil: it has ended
	extra   int             // operations that left no record
}

// worker is a process.
type worker struct {
	*testbed.Process

	proc   int
	file   string
	killed bool
}

// user is who the workers are where a profile takes permissions away.
const user = "worker"

func newWorld(t *testing.T, p *profile, seed uint64) *world {
	w := &world{t: t, p: p, rand: seeded(seed, 1), dir: t.TempDir()}
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
		one.Expect(t, "ready")
	}
	return w
}

func (w *world) server(p *profile) *testbed.Server {
	if !p.clock {
		return testbed.Standalone(w.t, p.servers...)
	}
	clock, env := testbed.NewClock(w.t)
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

// masters returns all of a cluster, else the target's.
func (w *world) masters(target int) []*testbed.Server {
	if w.cluster != nil {
		return w.cluster.Masters(w.t)
	}
	return []*testbed.Server{w.master(target)}
}

// addrs are where a client connects that no fault on the line reaches.
func (w *world) addrs() []string {
	switch {
	case w.guard != nil:
		return w.guard.SentinelAddrs()
	case w.cluster != nil:
		return w.cluster.Addrs()
	}
	return []string{w.servers[0].Addr()}
}

// spawn starts a worker. It says when it is ready.
func (w *world) spawn() *worker {
	proc := len(w.all) + 1
	args := workArgs{
		Proc: proc, History: filepath.Join(w.dir, fmt.Sprintf("history-%d", proc)), Store: w.store.Addr(), Sentinel: w.guard != nil,
		Lease: w.p.lease, Skip: w.p.skip, Seed: w.rand.Uint64(), Loops: w.p.loops, Work: w.p.work,
	}
	if w.p.user {
		args.User = user
	}
	for _, p := range w.proxies {
		args.Sets = append(args.Sets, []string{p.Addr()})
	}
	switch len(w.proxies) {
	case 0:
		args.Sets = [][]string{w.addrs()}
	case 1:
		args.Direct = w.servers[0].Addr()
	}
	one := &worker{Process: testbed.Spawn(w.t, "faults", args), proc: proc, file: args.History}
	w.all = append(w.all, one)
	return one
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

// run does what the plan says and returns when the time is over and every fault has
// ended.
func (w *world) run(steps []planned, length time.Duration) {
	var open []*ongoing
	begin := mono()
	sleep := func(at time.Duration) { time.Sleep(at - (mono() - begin)) }
	finish := func(until time.Duration) {
		slices.SortStableFunc(open, func(a, b *ongoing) int { return cmp.Compare(a.at+a.lasts, b.at+b.lasts) })
		for len(open) > 0 && open[0].at+open[0].lasts <= until {
			x := open[0]
			open = open[1:]
			sleep(x.at + x.lasts)
			if x.undo != nil {
				x.undo()
			}
			w.windows[x.i].to = mono()
		}
	}
	for _, p := range steps {
		finish(p.at)
		sleep(p.at)
		f, x := p.fault, &ongoing{world: w, planned: p, i: len(w.windows)}
		one := window{name: f.name, from: mono(), to: forever, target: p.target, effects: f.effects, says: f.says}
		if f.worker && f.effects&effDead == 0 {
			one.proc = x.worker().proc
		}
		w.windows = append(w.windows, one)
		f.begin(x)
		open = append(open, x)
	}
	finish(length)
	sleep(length)
}

// stop ends the workers and returns what they recorded.
func (w *world) stop() *history {
	t := w.t
	for _, one := range w.workers {
		select {
		case <-one.Done(): // too early; Wait says why
		default:
			one.CloseInput(t)
		}
	}
	var records []*record
	for _, one := range w.all {
		if err := one.Wait(t); err != nil && !one.killed {
			records = append(records, &record{Op: opLeft, Proc: one.proc, Text: fmt.Sprintf("%v\n%s", err, one.Stderr())})
		}
		for line := range one.Lines() {
			var extra int
			if _, err := fmt.Sscanf(line, "done %d", &extra); err != nil && line != "ready" {
				t.Errorf("worker %d said %q", one.proc, line)
			}
			w.extra += extra
		}
		mine, err := readRecords(one.file)
		if err != nil && (!one.killed || !errors.Is(err, fs.ErrNotExist)) { // killed before it began
			t.Errorf("worker %d: %v", one.proc, err)
		}
		records = append(records, mine...)
	}
	w.windows = append(w.windows, w.stalls()...)
	w.stalls = nil
	h := newHistory(w.p.lease, records, w.windows)
	h.writes = writes(t, w.store)
	return h
}

// visitor is a client past all faults on the line.
func (w *world) visitor() *redlatch.Client {
	p := party{args: workArgs{Sentinel: w.guard != nil, Lease: w.p.lease}}
	c, err := redlatch.New(p.config(w.addrs()))
	testbed.Must(w.t, err)
	return c
}

// queue is what the keys of a fair lock's waiters begin with.
const queue = "redisson_lock_queue:"

// tidy takes and unlocks each fair lock in whose queue the dead, those who were not let leave, and
// nobody's places have stayed: they wait for the next one who comes, or for ten minutes.
func (w *world) tidy(r *report) {
	if len(w.servers) > 1 {
		return // no fair locks there
	}
	left := map[string]bool{}
	for _, s := range w.writable() {
		for _, key := range s.List(w.t, "KEYS", queue+"*") {
			left[strings.TrimPrefix(key, queue)] = true
			w.ends(r, s, key, w.p.skip+10*time.Minute)
		}
	}
	for range w.windows.met(0, forever, 0, effDead|effRefuse|effSilent|effFrozen|effForget|effAgain) {
		w.visit(r, left)
		return
	}
}

// visit takes locks that nobody has any more, past all faults on the line.
func (w *world) visit(r *report, names map[string]bool) {
	c := w.visitor()
	defer c.Close()
	for name := range names {
		begin := mono()
		h, err := c.FairLock(name, fairlock.WithSkipAfter(w.p.skip)).TryLock(context.Background(), w.p.lease+2*w.p.skip+slack, 0)
		if err != nil {
			r.violation("nobody lives, and %s is not given: %v after %v", name, err, mono()-begin)
		} else if err := h.Unlock(context.Background()); err != nil {
			r.violation("nobody lives, and %s is not unlocked: %v", name, err)
		}
	}
}

// writable are the masters.
func (w *world) writable() []*testbed.Server {
	return slices.DeleteFunc(slices.Clone(w.nodes()), func(s *testbed.Server) bool { return s.Info(w.t, "replication")["role"] != "master" })
}

// ends checks that a key is not there for longer than limit.
func (w *world) ends(r *report, s *testbed.Server, key string, limit time.Duration) {
	if left := s.Int(w.t, "PTTL", key); left == -1 || time.Duration(left)*ms > limit {
		r.violation("left behind on %s: %s for %d ms", s.Addr(), key, left)
	}
}

// left waits until nothing of the locks is on the servers any more, for as long as the
// leases of the dead allow.
func (w *world) left(r *report) {
	w.tidy(r)
	for _, c := range w.clocks {
		c.Set(w.t, 3*time.Hour) // what was written at a later time ends
	}
	allowed := testbed.AllowKeys("redisson_lock_token:", "redlatch_void:") // a void set lasts for seconds
	deadline := time.Now().Add(3*w.p.lease + 2*w.p.skip + 5*time.Second)
	for _, s := range w.nodes() {
		if err := testbed.LeftBehind(s, time.Until(deadline), allowed); err != nil {
			r.violation("left behind on %s: %v", s.Addr(), err)
		}
	}
	for _, s := range w.writable() {
		for _, key := range s.List(w.t, "KEYS", "redlatch_void:*") {
			w.ends(r, s, key, 10*time.Second)
		}
	}
}
