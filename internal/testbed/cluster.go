package testbed

import (
	"fmt"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Slots is the number of hash slots of a Redis Cluster.
const Slots = 16384

// ClusterNodeTimeout is how long a node of [Cluster] must be silent before the
// others take it for dead.
const ClusterNodeTimeout = 1500 * time.Millisecond

// ClusterSet is a Redis Cluster of three masters and three replicas. It is
// safe for concurrent use.
type ClusterSet struct {
	nodes []*Server

	mu  sync.Mutex
	ids map[*Server]string // guarded by mu
}

// Cluster starts three masters, which share all slots, and a replica of each,
// and returns once every node sees the cluster as complete.
func Cluster(tb TB, args ...string) *ClusterSet {
	tb.Helper()
	const masters = 3
	c := &ClusterSet{ids: map[*Server]string{}}
	settings := append([]string{
		"--cluster-enabled", "yes",
		"--cluster-node-timeout", strconv.FormatInt(ClusterNodeTimeout.Milliseconds(), 10),
		"--cluster-replica-validity-factor", "0",
	}, append(append([]string(nil), replicationArgs...), args...)...)
	var buses []int
	for i := range 2 * masters {
		var bus int
		node := started(tb, func(port int) []string {
			var mine []string
			mine, bus = busArgs(tb, port)
			return append(mine, settings...)
		}, "")
		c.nodes = append(c.nodes, node)
		c.ids[node] = node.Text(tb, "CLUSTER", "MYID")
		node.Do(tb, "CLUSTER", "SET-CONFIG-EPOCH", strconv.Itoa(i+1))
		if i < masters {
			node.addSlots(tb, i*Slots/masters, (i+1)*Slots/masters)
		}
		buses = append(buses, bus)
	}
	// A node that is slow to answer a greeting is forgotten: it is greeted again.
	met := time.Time{}
	eventually(tb, "cluster nodes know each other", func() error {
		if time.Since(met) > 2*ClusterNodeTimeout {
			met = time.Now()
			for i, node := range c.nodes[1:] {
				c.nodes[0].Do(tb, "CLUSTER", "MEET", "127.0.0.1", strconv.Itoa(node.peerPort()), strconv.Itoa(buses[i+1]))
			}
		}
		return c.each(c.allKnown)
	})
	for i := range masters {
		c.nodes[masters+i].Do(tb, "CLUSTER", "REPLICATE", c.ids[c.nodes[i]])
	}
	c.AwaitReady(tb)
	return c
}

// busArgs returns the settings for the cluster bus of the node with this port, and
// the bus's own port.
func busArgs(tb TB, port int) ([]string, int) {
	tb.Helper()
	if !ServerVersion(tb).AtLeast(7, 0) {
		// It is 10,000 above, whatever is there: where it can't be had the server says
		// that it is in use, and begins again with another port.
		return nil, port + 10000
	}
	addr, keeps, err := reserve(forServer)
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	if keeps != nil {
		tb.Cleanup(func() { _ = keeps.Close() }) // Nothing was written.
	}
	_, bus, err := net.SplitHostPort(addr)
	if err != nil {
		tb.Fatalf("testbed: %v", err)
	}
	n, _ := strconv.Atoi(bus)
	return []string{"--cluster-port", bus}, n
}

// addSlots gives a node the slots from first to before end.
func (s *Server) addSlots(tb TB, first, end int) {
	tb.Helper()
	if ServerVersion(tb).AtLeast(7, 0) {
		s.Do(tb, "CLUSTER", "ADDSLOTSRANGE", strconv.Itoa(first), strconv.Itoa(end-1))
		return
	}
	command := []string{"CLUSTER", "ADDSLOTS"}
	for slot := first; slot < end; slot++ {
		command = append(command, strconv.Itoa(slot))
	}
	s.Do(tb, command...)
}

// Nodes returns all servers, whatever their role.
func (c *ClusterSet) Nodes() []*Server { return append([]*Server(nil), c.nodes...) }

// Addrs returns the addresses of all nodes, for a client's InitAddress.
func (c *ClusterSet) Addrs() []string {
	addrs := make([]string, len(c.nodes))
	for i, s := range c.nodes {
		addrs[i] = s.peerAddr()
	}
	return addrs
}

// Masters returns the running nodes that own slots.
func (c *ClusterSet) Masters(tb TB) []*Server {
	tb.Helper()
	view, err := c.view(c.anyRunning(tb))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	var masters []*Server
	for _, s := range c.nodes {
		if n := view[c.id(s)]; s.Running() && n.master && len(n.slots) > 0 {
			masters = append(masters, s)
		}
	}
	return masters
}

// ReplicasOf returns the running replicas of a master.
func (c *ClusterSet) ReplicasOf(tb TB, master *Server) []*Server {
	tb.Helper()
	view, err := c.view(c.anyRunning(tb))
	if err != nil {
		tb.Fatalf("%v", err)
	}
	var replicas []*Server
	for _, s := range c.nodes {
		if s.Running() && view[c.id(s)].of == c.id(master) {
			replicas = append(replicas, s)
		}
	}
	return replicas
}

// AwaitReady returns once all running nodes agree who owns which slot, take
// the cluster for ok, and every replica is linked to its master.
func (c *ClusterSet) AwaitReady(tb TB) {
	tb.Helper()
	eventually(tb, "cluster ready", func() error {
		var first *Server
		var owners string
		return c.each(func(s *Server) error {
			text, err := s.tryText("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			if state := fields(text)["cluster_state"]; state != "ok" {
				return fmt.Errorf("%s: state %s", s.Addr(), state)
			}
			view, err := c.view(s)
			if err != nil {
				return err
			}
			mine := c.summary(view)
			if first == nil {
				first, owners = s, mine
			}
			if mine != owners {
				return fmt.Errorf("%s sees %s, %s sees %s", first.Addr(), owners, s.Addr(), mine)
			}
			return c.linked(s, view)
		})
	})
}

// linked returns nil when s and its master, if it has one, replicate.
func (c *ClusterSet) linked(s *Server, view map[string]clusterNode) error {
	me := view[c.id(s)]
	info, err := s.tryInfo("replication")
	if err != nil {
		return err
	}
	if me.master {
		if info["role"] != "master" {
			return fmt.Errorf("%s is a %s", s.Addr(), info["role"])
		}
		return nil
	}
	if info["master_link_status"] != "up" {
		return fmt.Errorf("%s: link to its master is %s", s.Addr(), info["master_link_status"])
	}
	return nil
}

// each calls f for every running node until one fails.
func (c *ClusterSet) each(f func(*Server) error) error {
	for _, s := range c.nodes {
		if s.Running() {
			if err := f(s); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *ClusterSet) allKnown(s *Server) error {
	view, err := c.view(s)
	if err != nil {
		return err
	}
	for _, other := range c.nodes {
		if n, ok := view[c.id(other)]; !ok || !n.linked {
			return fmt.Errorf("%s does not know %s", s.Addr(), other.Addr())
		}
	}
	return nil
}

func (c *ClusterSet) id(s *Server) string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.ids[s]
}

func (c *ClusterSet) anyRunning(tb TB) *Server {
	tb.Helper()
	for _, s := range c.nodes {
		if s.Running() {
			return s
		}
	}
	tb.Fatalf("testbed: no node of the cluster runs")
	return nil
}

// clusterNode is one line of CLUSTER NODES.
type clusterNode struct {
	master, linked bool
	of             string   // the id of a replica's master
	slots          [][2]int // first and last
}

// view returns how a node sees the cluster, by node id.
func (c *ClusterSet) view(s *Server) (map[string]clusterNode, error) {
	text, err := s.tryText("CLUSTER", "NODES")
	if err != nil {
		return nil, err
	}
	view := map[string]clusterNode{}
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		if len(words) < 8 {
			continue
		}
		flags := "," + words[2] + ","
		if strings.Contains(flags, ",handshake,") {
			continue // its id is not yet its own
		}
		node := clusterNode{
			master: strings.Contains(flags, ",master,"),
			linked: words[7] == "connected" || strings.Contains(flags, ",myself,"),
		}
		if words[3] != "-" {
			node.of = words[3]
		}
		for _, word := range words[8:] {
			if strings.HasPrefix(word, "[") {
				continue // a slot under way, which its owner still owns
			}
			from, to, ranged := strings.Cut(word, "-")
			if !ranged {
				to = from
			}
			first, err := strconv.Atoi(from)
			if err != nil {
				return nil, fmt.Errorf("testbed: slots %q of %s: %w", word, s.Addr(), err)
			}
			last, err := strconv.Atoi(to)
			if err != nil {
				return nil, fmt.Errorf("testbed: slots %q of %s: %w", word, s.Addr(), err)
			}
			node.slots = append(node.slots, [2]int{first, last})
		}
		view[words[0]] = node
	}
	return view, nil
}

// summary puts what all nodes must agree on into a comparable form.
func (c *ClusterSet) summary(view map[string]clusterNode) string {
	var b strings.Builder
	for i, s := range c.nodes {
		n := view[c.id(s)]
		// A dead node's role may be remembered differently; its slots may not.
		if s.Running() || len(n.slots) > 0 {
			fmt.Fprintf(&b, "%d:%t:%s:%v ", i, n.master, n.of, n.slots)
		}
	}
	return b.String()
}
