package faults

import (
	"cmp"
	"time"
)

// profile is one world and what happens in it.
type profile struct {
	name     string
	topology string // sentinel, cluster, masters; "": one server
	faults   []string
	lease    time.Duration
	skip     time.Duration // 0: a second
	workers  int           // 0: 3
	loops    int           // of a worker; 0: 4
	work     workload
	pace     time.Duration // the longest pause between two faults
	fifo     bool          // the order of fair locks is checked
	idle     time.Duration // how long a lock may lie free while somebody waits; 0: not checked
	turns    int           // how many others of a plain lock may be served while one waits; 0: not checked
	servers  []string      // extra arguments of the servers
	clock    bool          // the servers' clocks can be set
	user     bool          // the workers are a user of their own, who can lose permissions
	episode  time.Duration // how long a run is in make test; at least one fault fits into it
}

// complete fills in what most profiles have.
func complete(all []profile) []profile {
	for i := range all {
		p := &all[i]
		p.skip, p.workers, p.loops = cmp.Or(p.skip, time.Second), cmp.Or(p.workers, 3), cmp.Or(p.loops, 4)
		if p.work.Kinds == nil {
			p.work.Kinds = single
		}
		p.work.Names = cmp.Or(p.work.Names, names)
	}
	return all
}

// wanted tells whether a run plays the profile. Several servers, and all faults at once, take minutes on a
// quiet machine to say something: make test leaves them out.
func (p *profile) wanted(only string, long bool) bool {
	return p.name == only || only == "" && (long || p.topology == "" && p.name != "everything")
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
	switch {
	case long:
		return min(3*max(p.episode, 4000*ms), longestEpisode)
	case bounded:
		return max(p.episode, 4000*ms)
	}
	return p.episode
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

var profiles = complete([]profile{
	{
		// Nothing but the locks' own users: everything is strict.
		name: "calm", lease: 1500 * ms, skip: 1500 * ms, loops: 6, pace: 700 * ms, episode: 4000 * ms, idle: 2000 * ms,
		fifo: true, work: workload{Hammer: true, Lonely: true, Hour: true, Pause: 120},
		faults: []string{"scripts flushed", "herd"},
	},
	{
		name: "line", lease: 2000 * ms, loops: 6, pace: 60 * ms, episode: 2000 * ms, idle: 3000 * ms,
		work:   workload{Hour: true, Pause: 200},
		faults: []string{"reply lost", "request lost", "latency", "cut", "scripts flushed", "subscriptions killed", "herd"},
	},
	{
		// What comes late must find that nobody wants it; a lock taken for nobody would lie
		// there for a lease.
		name: "late", lease: 10000 * ms, skip: 2000 * ms, pace: 200 * ms, episode: 3000 * ms, idle: 2500 * ms,
		work:   workload{Idle: 4 * ms},
		faults: []string{"requests late"},
	},
	{
		// A command that runs twice, the second time when its answer has come long ago. No
		// network does that; that nobody is let in beside a holder holds all the same.
		name: "twice", lease: 1000 * ms, skip: 500 * ms, loops: 6, pace: 100 * ms, episode: 2000 * ms,
		work:   workload{Pause: 100},
		faults: []string{"requests repeated"},
	},
	{
		// A lease that is far longer than any wait may be: who is not woken is seen.
		name: "wake-up", lease: 20000 * ms, skip: 6000 * ms, pace: 150 * ms, episode: 3000 * ms, idle: 2500 * ms,
		work:   workload{Idle: 2 * ms},
		faults: []string{"subscriptions killed", "subscribers overflow"},
	},
	{
		// Whose unlock was refused for a moment has it done soon after; a lock that was only
		// said to be unlocked would lie there for its lease.
		name: "refused releases", lease: 20000 * ms, skip: 6000 * ms, pace: 800 * ms, episode: 2000 * ms, idle: 2500 * ms,
		work:   workload{Idle: 2 * ms},
		faults: []string{"NOREPLICAS for a moment", "READONLY for a moment"},
	},
	{
		// Locks go round inside each process, with all that may happen to them meanwhile.
		name: "passing", lease: 1000 * ms, skip: 500 * ms, workers: 2, loops: 12, pace: 300 * ms, episode: 2000 * ms,
		turns: 200, work: workload{Kinds: []string{kindPlain}, Watched: true, Pause: 200},
		faults: []string{"scripts flushed"},
	},
	{
		// Nothing but full lines in two processes, each of which could keep the lock to itself.
		name: "taking turns", lease: 1000 * ms, skip: 500 * ms, workers: 2, loops: 24, pace: 300 * ms, episode: 2000 * ms,
		turns: 200, work: workload{Kinds: []string{kindPlain}, Watched: true, Single: true, Unfenced: true},
		faults: []string{"scripts flushed"},
	},
	{
		// A process for each who waits: a release calls one of them, whoever is dead or leaves. Within the time that the
		// lock may lie free nobody looks by himself, and often nobody else comes.
		name: "crowd", lease: 5000 * ms, workers: 8, loops: 1, pace: 300 * ms, episode: 6000 * ms, idle: 600 * ms,
		work:   workload{Kinds: []string{kindPlain}, Names: 1, Single: true, Patient: true, Stay: 400 * ms, Idle: 3000 * ms},
		faults: []string{"dead clients on the list", "one leaves when it is called", "scripts flushed"},
	},
	{
		// The same, and what only a look can mend.
		name: "crowd, not called", lease: 5000 * ms, workers: 8, loops: 1, pace: 1500 * ms, episode: 8000 * ms,
		idle:   1700 * ms,
		work:   workload{Kinds: []string{kindPlain}, Names: 1, Single: true, Patient: true, Stay: 1000 * ms, Idle: 6000 * ms},
		faults: []string{"a deaf client on the list", "list deleted"},
	},
	{
		name: "crowd in trouble", lease: 1000 * ms, skip: 500 * ms, workers: 8, loops: 1, pace: 800 * ms,
		episode: 3000 * ms, idle: 2000 * ms,
		work: workload{Kinds: []string{kindPlain, kindPlain, kindWrite}, Idle: 2 * ms, Pause: 400},
		faults: []string{
			"worker stopped", "worker stopped for long", "worker killed", "subscriptions killed", "Close", "Shutdown",
			"cut", "list deleted",
		},
	},
	{
		// An operator takes locks away: their holders are told, and whoever waits goes on.
		name: "forced", lease: 5000 * ms, skip: 2000 * ms, loops: 12, pace: 200 * ms, episode: 2000 * ms, idle: 1500 * ms,
		work:   workload{Pause: 100, Stay: 20 * ms},
		faults: []string{"lock taken away"},
	},
	{
		name: "half-open", lease: 1500 * ms, loops: 6, pace: 400 * ms, episode: 3000 * ms, work: workload{Pause: 100},
		faults: []string{"requests held", "replies held", "refused", "server frozen"},
	},
	{
		name: "processes", lease: 1000 * ms, skip: 500 * ms, workers: 4, pace: 400 * ms, episode: 3000 * ms,
		work:   workload{Pause: 100},
		faults: []string{"worker stopped", "worker stopped for long", "worker killed"},
	},
	{
		name: "refusals", lease: 4000 * ms, skip: 2000 * ms, loops: 6, pace: 800 * ms, episode: 4000 * ms, idle: 3000 * ms,
		work:   workload{Pause: 60},
		faults: []string{"NOREPLICAS", "READONLY", "LOADING", "CLUSTERDOWN"},
	},
	{
		name: "busy and full disk", lease: 4000 * ms, skip: 2000 * ms, pace: 200 * ms, episode: 2000 * ms, idle: 3000 * ms,
		work:   workload{Pause: 60},
		faults: []string{"MISCONF", "BUSY", "scripts flushed"},
	},
	{
		name: "memory", lease: 1200 * ms, pace: 300 * ms, episode: 2000 * ms, work: workload{Pause: 12},
		faults: []string{"OOM"},
	},
	{
		name: "permissions", user: true, lease: 1500 * ms, pace: 150 * ms, episode: 2000 * ms, work: workload{Pause: 100},
		faults: []string{"ACL: no scripts", "ACL: no PUBLISH", "ACL: no SUBSCRIBE", "ACL: no keys"},
	},
	{
		name: "closing", lease: 1000 * ms, skip: 500 * ms, loops: 6, pace: 200 * ms, episode: 2000 * ms,
		work:   workload{Pause: 100},
		faults: []string{"Close", "Shutdown", "cut", "herd"},
	},
	{
		name: "restarts", lease: 1500 * ms, pace: 500 * ms, episode: 2000 * ms, work: workload{Pause: 100},
		servers: []string{"--appendonly", "yes", "--appendfsync", "always"},
		faults:  []string{"server restarted, nothing lost", "server frozen", "cut"},
	},
	{
		name: "forgetting", lease: 1500 * ms, pace: 500 * ms, episode: 3000 * ms, work: workload{Pause: 60},
		faults: []string{"server restarted empty", "server restarted behind", "FLUSHALL", "keys deleted", "keys dropped for memory"},
	},
	{
		name: "clock", clock: true, lease: 1500 * ms, pace: 600 * ms, episode: 2000 * ms, work: workload{Pause: 100},
		faults: []string{"server's clock set forward", "server's clock set back"},
	},
	{
		name: "sentinel", topology: "sentinel", lease: 3000 * ms, loops: 3, pace: 1500 * ms, episode: 10000 * ms,
		work:   workload{Pause: 100},
		faults: []string{"failover", "master killed", "master frozen", "NOREPLICAS", "subscriptions killed"},
	},
	{
		// What is held is kept and can be unlocked, wherever its keys are just now.
		name: "migration", topology: "cluster", lease: 2000 * ms, loops: 8, pace: 300 * ms, episode: 6000 * ms,
		work: workload{Names: 16, Stay: 400 * ms}, servers: unhurried,
		faults: []string{"slot half way", "slot half way", "slot moved"},
	},
	{
		// Slots move on and back under load, and stay half-way: nothing is lost, no free lock is waited for.
		name: "half-way", topology: "cluster", lease: 2000 * ms, pace: 200 * ms, episode: 6000 * ms, idle: 2000 * ms,
		work: workload{Idle: 5 * ms}, servers: unhurried,
		faults: []string{"slot left half way", "slot left half way", "slot moved"},
	},
	{
		// A long lease: who is not woken is seen.
		name: "half-way for minutes", topology: "cluster", lease: 10000 * ms, skip: 2000 * ms, pace: 200 * ms,
		episode: longestEpisode, idle: 2000 * ms, work: workload{Idle: 5 * ms}, servers: unhurried,
		faults: []string{"slot forgotten half way"},
	},
	{
		name: "cluster", topology: "cluster", lease: 2000 * ms, pace: 500 * ms, episode: 5000 * ms,
		work: workload{Pause: 100}, servers: []string{"--cluster-node-timeout", "2500"}, // no master is replaced twice in two of these
		faults: []string{"slot moved", "cluster failover", "subscriptions killed", "scripts flushed everywhere"},
	},
	{
		name: "one node of many", topology: "cluster", lease: 8000 * ms, workers: 2, loops: 12, pace: 400 * ms,
		episode: 6000 * ms, idle: 2000 * ms, work: workload{Idle: 5 * ms, Lonely: true},
		servers: []string{"--cluster-node-timeout", "15000"},
		faults:  []string{"node frozen"},
	},
	{
		name: "quorum", topology: "masters", lease: 1500 * ms, loops: 3, pace: 400 * ms, episode: 5000 * ms,
		work: workload{Kinds: []string{kindQuorum, kindQuorum, kindSpread}, Stay: 400 * ms},
		faults: []string{
			"minority frozen", "minority restarted empty", "one frozen, another restarted", "one frozen, another restarted",
			"cut", "reply lost", "worker stopped",
		},
	},
	{
		// What a server says of its age follows its clock. (Locks of one server are not among the kinds: their tokens
		// fall back when a server loses its data and its clock is behind.)
		name: "quorum's clocks", topology: "masters", clock: true, lease: 1500 * ms, loops: 3, pace: 300 * ms,
		episode: 5000 * ms, work: workload{Kinds: []string{kindQuorum}, Stay: 400 * ms},
		faults: []string{
			"one frozen, another restarted, its clock set forward", "one frozen, another restarted, its clock set forward",
			"one frozen, another restarted, its clock set back", "minority's clock set forward",
			"minority's clock set back",
		},
	},
	{
		name: "quorum, long leases", topology: "masters", lease: 1500 * ms, loops: 3, pace: 300 * ms, episode: 5000 * ms,
		work: workload{Kinds: []string{kindQuorum, kindQuorum, kindSpread}, Stay: 600 * ms, Long: true},
		faults: []string{
			"one frozen, another restarted, a worker stopped", "one frozen, another restarted, a worker stopped",
			"minority frozen", "cut", "worker stopped",
		},
	},
	{
		// A member or the majority is lost, and nobody calls Unlock.
		name: "lost members", topology: "masters", lease: 1500 * ms, pace: 300 * ms, episode: 12000 * ms,
		work: workload{Kinds: []string{kindQuorum, kindSpread, kindSpread}, Stay: 1200 * ms, Forget: true},
		faults: []string{
			"minority restarted empty", "minority restarted empty", "one frozen, another restarted",
			"worker stopped for long",
		},
	},
	{
		name: "quorum without INFO", topology: "masters", user: true, lease: 1500 * ms, workers: 2, loops: 8,
		pace: 400 * ms, episode: 5000 * ms, work: workload{Kinds: []string{kindQuorum}},
		faults: []string{"ACL: no INFO"},
	},
	{
		name: "everything", lease: 1500 * ms, workers: 4, loops: 5, pace: 150 * ms, episode: 6000 * ms,
		work: workload{Pause: 100},
		faults: []string{
			"reply lost", "request lost", "latency", "cut", "scripts flushed", "subscriptions killed",
			"subscribers overflow", "requests late", "requests repeated", "requests held", "replies held", "refused",
			"server frozen", "worker stopped", "worker stopped for long", "worker killed", "NOREPLICAS", "READONLY",
			"LOADING", "CLUSTERDOWN", "OOM", "FLUSHALL", "keys deleted", "server restarted behind", "Close", "Shutdown",
			"herd",
		},
	},
})
