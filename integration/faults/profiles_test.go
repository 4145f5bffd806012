package faults

import (
	"cmp"
	"time"
)

// profile is one world and what happens in it.
type profile struct {
	name     string
	topology string // standalone, sentinel, cluster, masters
	faults   []string
	lease    time.Duration
	skip     time.Duration
	workers  int
	loops    int
	work     workload
	pace     time.Duration // the longest pause between two faults
	fifo     bool          // the order of fair locks is checked
	idle     time.Duration // how long a lock may lie free while somebody waits; 0: not checked
	turns    int           // how many others of a plain lock may be served while one waits; 0: not checked
	servers  []string      // extra arguments of the servers
	acks     int
	clock    bool // the servers' clocks can be set
	user     bool // the workers are a user of their own, who can lose permissions
	// episode is how long a run of this profile is in make test; 0: not there, and 4 s elsewhere. At least
	// one fault fits into it.
	episode time.Duration
}

// unhurried are the settings of a cluster in which nobody is killed: a master that the machine holds up for a while is
// replaced by no replica. One that took over in the middle of a slot's move would own a slot of which the node that
// takes it in knows another owner: that node says CLUSTERDOWN until somebody sets the slot by hand.
var unhurried = []string{"--cluster-node-timeout", "5000"}

// longestEpisode bounds an episode: the longest fault fits into it.
const longestEpisode = 150 * time.Second

// length is how long an episode of the profile is; long and bounded runs leave time for locks that lie
// free to be seen.
func (p *profile) length(long, bounded bool) time.Duration {
	length := cmp.Or(p.episode, 4*time.Second)
	if long || bounded {
		length = max(length, 4*time.Second)
	}
	if long {
		length = min(3*length, longestEpisode)
	}
	return length
}

// targets is how many there are that a fault can choose from.
func (p *profile) targets(f *fault) int {
	switch {
	case f.worker:
		return p.workers
	case p.topology == "masters":
		return masters
	}
	return 1
}

// wide returns the profile with its work spread over so many locks that its loops seldom meet.
// A section that stays for a lease keeps few others waiting then, and ten times as many
// operations fit into an episode.
func (p *profile) wide() *profile {
	w := *p
	w.work.Names = 48
	w.loops *= 4
	return &w
}

// masters is how many independent ones a quorum has.
const masters = 3

var profiles = []profile{
	{
		// Nothing but the locks' own users: everything is strict.
		name: "calm", topology: "standalone", lease: 1500 * time.Millisecond, skip: 1500 * time.Millisecond,
		workers: 3, loops: 6, fifo: true, idle: 2 * time.Second, pace: 700 * time.Millisecond,
		faults: []string{"scripts flushed", "herd"}, episode: 4 * time.Second,
		work: workload{Kinds: single, Hammer: true, Lonely: true, Hour: true, Pause: 120},
	},
	{
		name: "line", topology: "standalone", lease: 2 * time.Second, skip: time.Second,
		workers: 3, loops: 6, pace: 60 * time.Millisecond, idle: 3 * time.Second,
		faults:  []string{"reply lost", "request lost", "latency", "cut", "scripts flushed", "subscriptions killed", "herd"},
		episode: 2 * time.Second, work: workload{Kinds: single, Hour: true, Pause: 200},
	},
	{
		// What comes late must find that nobody wants it; a lock taken for nobody would lie
		// there for a lease.
		name: "late", topology: "standalone", lease: 10 * time.Second, skip: 2 * time.Second,
		workers: 3, loops: 4, pace: 200 * time.Millisecond, idle: 2500 * time.Millisecond,
		faults:  []string{"requests late"},
		episode: 3 * time.Second, work: workload{Kinds: single, Idle: 4 * time.Millisecond},
	},
	{
		// A command that runs twice, the second time when its answer has come long ago. No
		// network does that; that nobody is let in beside a holder holds all the same.
		name: "twice", topology: "standalone", lease: time.Second, skip: 500 * time.Millisecond,
		workers: 3, loops: 6, pace: 100 * time.Millisecond,
		faults:  []string{"requests repeated"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		// A lease that is far longer than any wait may be: who is not woken is seen.
		name: "wake-up", topology: "standalone", lease: 20 * time.Second, skip: 6 * time.Second,
		workers: 3, loops: 4, pace: 150 * time.Millisecond, idle: 2500 * time.Millisecond,
		faults:  []string{"subscriptions killed", "subscribers overflow"},
		episode: 3 * time.Second, work: workload{Kinds: single, Idle: 2 * time.Millisecond},
	},
	{
		// Whose unlock was refused for a moment has it done soon after; a lock that was only
		// said to be unlocked would lie there for its lease.
		name: "refused releases", topology: "standalone", lease: 20 * time.Second, skip: 6 * time.Second,
		workers: 3, loops: 4, pace: 800 * time.Millisecond, idle: 2500 * time.Millisecond,
		faults:  []string{"NOREPLICAS for a moment", "READONLY for a moment"},
		episode: 2 * time.Second, work: workload{Kinds: single, Idle: 2 * time.Millisecond},
	},
	{
		// Locks go round inside each process, with all that may happen to them meanwhile.
		name: "passing", topology: "standalone", lease: time.Second, skip: 500 * time.Millisecond,
		workers: 2, loops: 12, pace: 300 * time.Millisecond, turns: 200,
		faults:  []string{"scripts flushed"},
		episode: 2 * time.Second, work: workload{Kinds: []string{kindPlain}, Watched: true, Pause: 200},
	},
	{
		// Nothing but full lines in two processes, each of which could keep the lock to itself.
		name: "taking turns", topology: "standalone", lease: time.Second, skip: 500 * time.Millisecond,
		workers: 2, loops: 24, pace: 300 * time.Millisecond, turns: 200,
		faults:  []string{"scripts flushed"},
		episode: 2 * time.Second, work: workload{Kinds: []string{kindPlain}, Watched: true, Single: true, Unfenced: true},
	},
	{
		// A process for each who waits: a release calls one of them, whoever is dead or leaves. Within the time that the
		// lock may lie free nobody looks by himself, and often nobody else comes.
		name: "crowd", topology: "standalone", lease: 5 * time.Second, skip: time.Second,
		workers: 8, loops: 1, pace: 300 * time.Millisecond, idle: 600 * time.Millisecond,
		faults:  []string{"dead clients on the list", "one leaves when it is called", "scripts flushed"},
		episode: 6 * time.Second,
		work: workload{
			Kinds: []string{kindPlain}, Names: 1, Single: true, Patient: true, Stay: 400 * time.Millisecond, Idle: 3 * time.Second,
		},
	},
	{
		// The same, and what only a look can mend.
		name: "crowd, not called", topology: "standalone", lease: 5 * time.Second, skip: time.Second,
		workers: 8, loops: 1, pace: 1500 * time.Millisecond, idle: 1700 * time.Millisecond,
		faults:  []string{"a deaf client on the list", "list deleted"},
		episode: 8 * time.Second,
		work: workload{
			Kinds: []string{kindPlain}, Names: 1, Single: true, Patient: true, Stay: time.Second, Idle: 6 * time.Second,
		},
	},
	{
		name: "crowd in trouble", topology: "standalone", lease: time.Second, skip: 500 * time.Millisecond,
		workers: 8, loops: 1, pace: 800 * time.Millisecond, idle: 2 * time.Second,
		faults: []string{
			"worker stopped", "worker stopped for long", "worker killed", "subscriptions killed", "Close", "Shutdown", "cut", "list deleted",
		},
		episode: 3 * time.Second, work: workload{Kinds: []string{kindPlain, kindPlain, kindWrite}, Idle: 2 * time.Millisecond, Pause: 400},
	},
	{
		// An operator takes locks away: their holders are told, and whoever waits goes on.
		name: "forced", topology: "standalone", lease: 5 * time.Second, skip: 2 * time.Second,
		workers: 3, loops: 12, pace: 200 * time.Millisecond, idle: 1500 * time.Millisecond,
		faults:  []string{"lock taken away"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 100, Stay: 20 * time.Millisecond},
	},
	{
		name: "half-open", topology: "standalone", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 6, pace: 400 * time.Millisecond,
		faults:  []string{"requests held", "replies held", "refused", "server frozen"},
		episode: 3 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		name: "processes", topology: "standalone", lease: time.Second, skip: 500 * time.Millisecond,
		workers: 4, loops: 4, pace: 400 * time.Millisecond,
		faults:  []string{"worker stopped", "worker stopped for long", "worker killed"},
		episode: 3 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		name: "refusals", topology: "standalone", lease: 4 * time.Second, skip: 2 * time.Second,
		workers: 3, loops: 6, pace: 800 * time.Millisecond, idle: 3 * time.Second,
		faults:  []string{"NOREPLICAS", "READONLY", "LOADING", "CLUSTERDOWN"},
		episode: 4 * time.Second, work: workload{Kinds: single, Pause: 60},
	},
	{
		name: "busy and full disk", topology: "standalone", lease: 4 * time.Second, skip: 2 * time.Second,
		workers: 3, loops: 4, pace: 200 * time.Millisecond, idle: 3 * time.Second,
		faults:  []string{"MISCONF", "BUSY", "scripts flushed"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 60},
	},
	{
		name: "memory", topology: "standalone", lease: 1200 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 4, pace: 300 * time.Millisecond,
		faults:  []string{"OOM"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 12},
	},
	{
		name: "permissions", topology: "standalone", user: true, lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 4, pace: 150 * time.Millisecond,
		faults:  []string{"ACL: no scripts", "ACL: no PUBLISH", "ACL: no SUBSCRIBE", "ACL: no keys"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		name: "closing", topology: "standalone", lease: time.Second, skip: 500 * time.Millisecond,
		workers: 3, loops: 6, pace: 200 * time.Millisecond,
		faults:  []string{"Close", "Shutdown", "cut", "herd"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		name: "restarts", topology: "standalone", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 4, pace: 500 * time.Millisecond,
		servers: []string{"--appendonly", "yes", "--appendfsync", "always"},
		faults:  []string{"server restarted, nothing lost", "server frozen", "cut"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		name: "forgetting", topology: "standalone", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 4, pace: 500 * time.Millisecond,
		faults:  []string{"server restarted empty", "server restarted behind", "FLUSHALL", "keys deleted", "eviction"},
		episode: 3 * time.Second, work: workload{Kinds: single, Pause: 60},
	},
	{
		name: "clock", topology: "standalone", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 4, pace: 600 * time.Millisecond, clock: true,
		faults:  []string{"server's clock set forward", "server's clock set back"},
		episode: 2 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		name: "sentinel", topology: "sentinel", lease: 3 * time.Second, skip: time.Second,
		workers: 3, loops: 3, pace: 1500 * time.Millisecond,
		faults:  []string{"failover", "master killed", "master frozen", "NOREPLICAS", "subscriptions killed"},
		episode: 10 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		// What is held is kept and can be unlocked, wherever its keys are just now.
		name: "migration", topology: "cluster", lease: 2 * time.Second, skip: time.Second,
		workers: 3, loops: 8, pace: 300 * time.Millisecond,
		servers: unhurried,
		faults:  []string{"slot half way", "slot half way", "slot moved"},
		episode: 6 * time.Second, work: workload{Kinds: single, Names: 16, Stay: 400 * time.Millisecond},
	},
	{
		// Slots move on and back under load, and stay half-way: nothing is lost, no free lock is waited for.
		name: "half-way", topology: "cluster", lease: 2 * time.Second, skip: time.Second,
		workers: 3, loops: 4, pace: 200 * time.Millisecond, idle: 2 * time.Second,
		servers: unhurried,
		faults:  []string{"slot left half way", "slot left half way", "slot moved"},
		episode: 6 * time.Second, work: workload{Kinds: single, Idle: 5 * time.Millisecond},
	},
	{
		// A long lease: who is not woken is seen.
		name: "half-way for minutes", topology: "cluster", lease: 10 * time.Second, skip: 2 * time.Second,
		workers: 3, loops: 4, pace: 200 * time.Millisecond, idle: 2 * time.Second,
		servers: unhurried,
		faults:  []string{"slot forgotten half way"},
		episode: longestEpisode, work: workload{Kinds: single, Idle: 5 * time.Millisecond},
	},
	{
		name: "cluster", topology: "cluster", lease: 2 * time.Second, skip: time.Second,
		workers: 3, loops: 4, pace: 500 * time.Millisecond,
		servers: []string{"--cluster-node-timeout", "2500"}, // no master is replaced twice in two of these
		faults:  []string{"slot moved", "cluster failover", "subscriptions killed", "scripts flushed everywhere"},
		episode: 5 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
	{
		name: "one node of many", topology: "cluster", lease: 8 * time.Second, skip: time.Second,
		workers: 2, loops: 12, idle: 2 * time.Second, pace: 400 * time.Millisecond,
		servers: []string{"--cluster-node-timeout", "15000"},
		faults:  []string{"node frozen"},
		episode: 6 * time.Second, work: workload{Kinds: single, Idle: 5 * time.Millisecond, Lonely: true},
	},
	{
		name: "quorum", topology: "masters", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 3, pace: 400 * time.Millisecond,
		faults: []string{
			"minority frozen", "minority restarted empty", "one frozen, another restarted", "one frozen, another restarted",
			"cut", "reply lost", "worker stopped",
		},
		episode: 5 * time.Second, work: workload{Kinds: []string{kindQuorum, kindQuorum, kindSpread}, Stay: 400 * time.Millisecond},
	},
	{
		// What a server says of its age follows its clock. (Locks of one server are not among the kinds: their tokens
		// fall back when a server loses its data and its clock is behind.)
		name: "quorum's clocks", topology: "masters", lease: 1500 * time.Millisecond, skip: time.Second, clock: true,
		workers: 3, loops: 3, pace: 300 * time.Millisecond,
		faults: []string{
			"one frozen, another restarted, its clock set forward", "one frozen, another restarted, its clock set forward",
			"one frozen, another restarted, its clock set back", "minority's clock set forward", "minority's clock set back",
		},
		episode: 5 * time.Second, work: workload{Kinds: []string{kindQuorum}, Stay: 400 * time.Millisecond},
	},
	{
		name: "quorum, long leases", topology: "masters", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 3, pace: 300 * time.Millisecond,
		faults: []string{
			"one frozen, another restarted, a worker stopped", "one frozen, another restarted, a worker stopped",
			"minority frozen", "cut", "worker stopped",
		},
		episode: 5 * time.Second, work: workload{Kinds: []string{kindQuorum, kindQuorum, kindSpread}, Stay: 600 * time.Millisecond, Long: true},
	},
	{
		// A member or the majority is lost, and nobody calls Unlock.
		name: "lost members", topology: "masters", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 3, loops: 4, pace: 300 * time.Millisecond,
		faults: []string{
			"minority restarted empty", "minority restarted empty", "one frozen, another restarted", "worker stopped for long",
		},
		episode: 12 * time.Second, work: workload{Kinds: []string{kindQuorum, kindSpread, kindSpread}, Stay: 1200 * time.Millisecond, Forget: true},
	},
	{
		name: "quorum without INFO", topology: "masters", lease: 1500 * time.Millisecond, skip: time.Second, user: true,
		workers: 2, loops: 8, pace: 400 * time.Millisecond,
		faults:  []string{"ACL: no INFO"},
		episode: 5 * time.Second, work: workload{Kinds: []string{kindQuorum}},
	},
	{
		name: "everything", topology: "standalone", lease: 1500 * time.Millisecond, skip: time.Second,
		workers: 4, loops: 5, pace: 150 * time.Millisecond,
		faults: []string{
			"reply lost", "request lost", "latency", "cut", "scripts flushed", "subscriptions killed", "subscribers overflow",
			"requests late", "requests repeated", "requests held", "replies held", "refused", "server frozen", "worker stopped", "worker stopped for long",
			"worker killed", "NOREPLICAS", "READONLY", "LOADING", "CLUSTERDOWN", "OOM", "FLUSHALL",
			"keys deleted", "server restarted behind", "Close", "Shutdown", "herd",
		},
		episode: 6 * time.Second, work: workload{Kinds: single, Pause: 100},
	},
}
