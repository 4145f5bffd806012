package testbed

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
)

// A replica must not wait five seconds for others before its first sync.
var replicationArgs = []string{"--repl-diskless-sync-delay", "0", "--repl-timeout", "10"}

// ReplicaSet is a master with its replicas. Roles change: ask Master.
// It is safe for concurrent use.
type ReplicaSet struct {
	nodes []*Server

	mu     sync.Mutex
	master *Server // guarded by mu; as the test bed last saw it
}

// Replicas starts a master and n replicas and returns once all are in sync.
func Replicas(tb TB, n int, args ...string) *ReplicaSet {
	tb.Helper()
	all := append(append([]string(nil), replicationArgs...), args...)
	master := Standalone(tb, all...)
	r := &ReplicaSet{nodes: []*Server{master}, master: master}
	follow := append([]string{"--replicaof", "127.0.0.1", strconv.Itoa(master.peerPort())}, all...)
	for range n {
		r.nodes = append(r.nodes, Standalone(tb, follow...))
	}
	r.AwaitSync(tb)
	return r
}

// Nodes returns all servers, whatever their role.
func (r *ReplicaSet) Nodes() []*Server { return append([]*Server(nil), r.nodes...) }

// Master returns the master.
func (r *ReplicaSet) Master() *Server {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.master
}

// Replicas returns the servers that are not the master, running or not.
func (r *ReplicaSet) Replicas() []*Server {
	master := r.Master()
	var replicas []*Server
	for _, s := range r.nodes {
		if s != master {
			replicas = append(replicas, s)
		}
	}
	return replicas
}

// AwaitSync returns once every running replica follows the master, its link
// is up and it has all that the master has written.
func (r *ReplicaSet) AwaitSync(tb TB) {
	tb.Helper()
	master := r.Master()
	eventually(tb, "replicas in sync", func() error {
		return synced(master, r.Replicas())
	})
}

// synced returns nil when all running replicas follow the master's last byte.
func synced(master *Server, replicas []*Server) error {
	info, err := master.tryInfo("replication")
	if err != nil {
		return err
	}
	if info["role"] != "master" {
		return fmt.Errorf("%s is a %s", master.Addr(), info["role"])
	}
	for _, s := range replicas {
		if !s.Running() {
			continue
		}
		mine, err := s.tryInfo("replication")
		if err != nil {
			return err
		}
		if mine["master_port"] != strconv.Itoa(master.peerPort()) || mine["master_link_status"] != "up" ||
			number(mine["slave_repl_offset"]) < number(info["master_repl_offset"]) {
			return fmt.Errorf("%s follows port %s, link %s, offset %s; the master %s is at %s", s.Addr(), mine["master_port"],
				mine["master_link_status"], mine["slave_repl_offset"], master.Addr(), info["master_repl_offset"])
		}
		// WAIT and the sentinels count what the master itself sees.
		if !online(info, s.peerPort()) {
			return fmt.Errorf("%s is not online at its master", s.Addr())
		}
	}
	return nil
}

// online says whether a master's INFO lists the replica as online.
func online(info map[string]string, port int) bool {
	for name, value := range info {
		if strings.HasPrefix(name, "slave") && strings.Contains(value, ",port="+strconv.Itoa(port)+",state=online") {
			return true
		}
	}
	return false
}

// number reads a figure of INFO; what is none is below all.
func number(text string) int64 {
	n, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		return -1
	}
	return n
}

// Handover makes a replica the master without losing a write (FAILOVER): the
// master stops writes until the replica has them all, then follows it. It
// returns the new master once all replicas follow it.
func (r *ReplicaSet) Handover(tb TB) *Server {
	tb.Helper()
	Needs(tb, 6, 2, "FAILOVER")
	old, next := r.Master(), r.running(tb)
	old.Do(tb, "FAILOVER", "TO", "127.0.0.1", strconv.Itoa(next.peerPort()), "TIMEOUT", "10000")
	eventually(tb, "handover to "+next.Addr(), func() error { return hasRole(next, "master") })
	r.setMaster(next)
	// The others of the set still follow the old master, as its replicas.
	for _, s := range r.Replicas() {
		if s != old && s.Running() {
			s.Do(tb, "REPLICAOF", "127.0.0.1", strconv.Itoa(next.peerPort()))
		}
	}
	r.AwaitSync(tb)
	return next
}

// Promote makes a replica a master by force, as a failover does that does not
// wait: what it has not received yet is lost. The old master is not told; it
// goes on as it is, alive, frozen or dead. It returns the new master.
func (r *ReplicaSet) Promote(tb TB, next *Server) *Server {
	tb.Helper()
	next.Do(tb, "REPLICAOF", "NO", "ONE")
	r.setMaster(next)
	return next
}

func (r *ReplicaSet) setMaster(s *Server) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.master = s
}

// running returns a replica that runs.
func (r *ReplicaSet) running(tb TB) *Server {
	tb.Helper()
	for _, s := range r.Replicas() {
		if s.Running() {
			return s
		}
	}
	tb.Fatalf("testbed: no replica runs")
	return nil
}

func hasRole(s *Server, role string) error {
	info, err := s.tryInfo("replication")
	if err != nil {
		return err
	}
	if info["role"] != role || info["master_failover_state"] != "" && info["master_failover_state"] != "no-failover" {
		return errors.New(s.Addr() + " is " + info["role"] + ", failover " + info["master_failover_state"])
	}
	return nil
}
