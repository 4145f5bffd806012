package testbed

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"
)

// MasterName is the name by which the sentinels of [Sentinel] know the master.
const MasterName = "redlatch-master"

// SentinelSet is a master with two replicas, watched by three sentinels. It is
// safe for concurrent use.
type SentinelSet struct {
	*ReplicaSet
	sentinels []*Server
}

// Sentinel starts a master, two replicas and three sentinels (quorum 2, a
// master counts as down after 2.5 s: one that only waits for a processor does
// not) and returns once every sentinel knows all replicas and all other sentinels.
func Sentinel(tb TB, args ...string) *SentinelSet {
	tb.Helper()
	s := &SentinelSet{ReplicaSet: Replicas(tb, 2, args...)}
	conf := fmt.Sprintf(`sentinel monitor %[1]s 127.0.0.1 %[2]d 2
sentinel down-after-milliseconds %[1]s 2500
sentinel failover-timeout %[1]s 5000
sentinel parallel-syncs %[1]s 2
`, MasterName, s.Master().peerPort())
	for range 3 {
		sentinel := started(tb, func(int) []string { return []string{"--sentinel"} }, conf)
		// Sentinels look at their world every 10 s and greet every 2 s. Where
		// they can be told to hurry (7.0 and later), a test need not wait so long.
		_, _ = sentinel.Try("SENTINEL", "DEBUG", "INFO-PERIOD", "500", "PUBLISH-PERIOD", "200", "ASK-PERIOD", "200")
		s.sentinels = append(s.sentinels, sentinel)
	}
	s.AwaitReady(tb)
	return s
}

// Sentinels returns the sentinels.
func (s *SentinelSet) Sentinels() []*Server { return append([]*Server(nil), s.sentinels...) }

// SentinelAddrs returns the addresses of the sentinels, for a client's
// InitAddress; the name of the master is [MasterName].
func (s *SentinelSet) SentinelAddrs() []string {
	addrs := make([]string, len(s.sentinels))
	for i, sentinel := range s.sentinels {
		addrs[i] = sentinel.peerAddr()
	}
	return addrs
}

// AwaitReady returns once all running sentinels agree with the test bed on the
// master, see every running replica with its link up, and know each other; a
// failover can then be asked for.
func (s *SentinelSet) AwaitReady(tb TB) {
	tb.Helper()
	s.AwaitSync(tb)
	eventually(tb, "sentinels know everyone", func() error {
		for _, sentinel := range s.sentinels {
			if !sentinel.Running() {
				continue
			}
			if err := s.knows(sentinel); err != nil {
				return fmt.Errorf("sentinel %s: %w", sentinel.Addr(), err)
			}
		}
		return nil
	})
}

// knows returns nil when the sentinel sees the set as it is.
func (s *SentinelSet) knows(sentinel *Server) error {
	master, err := sentinel.Try("SENTINEL", "MASTER", MasterName)
	if err != nil {
		return err
	}
	about, err := master.AsStrMap()
	if err != nil {
		return err
	}
	if want := strconv.Itoa(s.Master().peerPort()); about["port"] != want || about["flags"] != "master" {
		return fmt.Errorf("master at port %s (%s), want %s", about["port"], about["flags"], want)
	}
	if others := strconv.Itoa(len(s.sentinels) - 1); about["num-other-sentinels"] != others {
		return fmt.Errorf("%s other sentinels, want %s", about["num-other-sentinels"], others)
	}
	msg, err := sentinel.Try("SENTINEL", "REPLICAS", MasterName)
	if err != nil {
		return err
	}
	list, err := msg.ToArray()
	if err != nil {
		return err
	}
	fit := map[string]bool{}
	for _, item := range list {
		about, err := item.AsStrMap()
		if err != nil {
			return err
		}
		fit[about["port"]] = about["flags"] == "slave" && about["master-link-status"] == "ok" &&
			about["master-port"] == strconv.Itoa(s.Master().peerPort())
	}
	for _, replica := range s.Replicas() {
		if replica.Running() && !fit[strconv.Itoa(replica.peerPort())] {
			return fmt.Errorf("replica %s is not known as one that is fit", replica.Addr())
		}
	}
	return nil
}

// Failover has the sentinels make a replica the master while the old one is
// alive, and returns the new master once everybody knows it and the old one
// follows it.
func (s *SentinelSet) Failover(tb TB) *Server {
	tb.Helper()
	old := s.Master()
	lead := s.sentinels[0]
	asked := time.Time{}
	next := s.awaitNewMaster(tb, old, func() {
		// A sentinel gives a failover up when a replica looked unfit or was slow to
		// answer; on a loaded machine that happens. It says INPROG while one is under
		// way, so that asking again can't begin a second one.
		if named, err := s.named(lead); err == nil && named == old && time.Since(asked) > time.Second {
			asked = time.Now()
			_, _ = lead.Try("SENTINEL", "FAILOVER", MasterName)
		}
	})
	s.AwaitReady(tb)
	return next
}

// KillMaster kills the master and returns it. See AwaitNewMaster.
func (s *SentinelSet) KillMaster(tb TB) *Server {
	tb.Helper()
	old := s.Master()
	old.Kill(tb)
	return old
}

// AwaitNewMaster returns the new master once all running sentinels name the
// same one, other than old, and it has taken the role.
func (s *SentinelSet) AwaitNewMaster(tb TB, old *Server) *Server {
	tb.Helper()
	return s.awaitNewMaster(tb, old, func() {})
}

// awaitNewMaster is AwaitNewMaster; each is called before each look.
func (s *SentinelSet) awaitNewMaster(tb TB, old *Server, each func()) *Server {
	tb.Helper()
	var next *Server
	eventually(tb, "a new master", func() error {
		each()
		next = nil
		for _, sentinel := range s.sentinels {
			if !sentinel.Running() {
				continue
			}
			named, err := s.named(sentinel)
			if err != nil {
				return err
			}
			if named == old || next != nil && named != next {
				return fmt.Errorf("sentinel %s names %s", sentinel.Addr(), named.Addr())
			}
			next = named
		}
		if next == nil {
			return fmt.Errorf("no sentinel runs")
		}
		return hasRole(next, "master")
	})
	s.setMaster(next)
	return next
}

// named returns the server that the sentinel calls master.
func (s *SentinelSet) named(sentinel *Server) (*Server, error) {
	addr, err := sentinel.tryList("SENTINEL", "GET-MASTER-ADDR-BY-NAME", MasterName)
	if err != nil {
		return nil, err
	}
	for _, node := range s.nodes {
		if len(addr) == 2 && net.JoinHostPort(addr[0], addr[1]) == node.peerAddr() {
			return node, nil
		}
	}
	return nil, fmt.Errorf("sentinel %s names a stranger: %s", sentinel.Addr(), strings.Join(addr, ":"))
}

// SentinelDownAfter is how long a master must be silent before a sentinel of
// [Sentinel] takes it for dead.
const SentinelDownAfter = time.Second
