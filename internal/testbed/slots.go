package testbed

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Slot returns the hash slot of a key.
func Slot(key string) int {
	if open := strings.IndexByte(key, '{'); open >= 0 {
		if end := strings.IndexByte(key[open+1:], '}'); end > 0 {
			key = key[open+1 : open+1+end]
		}
	}
	crc := uint16(0) // CRC-16/XMODEM
	for i := range len(key) {
		crc ^= uint16(key[i]) << 8
		for range 8 {
			if crc&0x8000 != 0 {
				crc = crc<<1 ^ 0x1021
			} else {
				crc <<= 1
			}
		}
	}
	return int(crc) % Slots
}

// NodeOfKey returns the master that owns the key's slot.
func (c *ClusterSet) NodeOfKey(tb TB, key string) *Server {
	tb.Helper()
	return c.NodeOfSlot(tb, Slot(key))
}

// NodeOfSlot returns the master that owns the slot, as the first running node
// sees it.
func (c *ClusterSet) NodeOfSlot(tb TB, slot int) *Server {
	tb.Helper()
	s, err := c.owner(c.anyRunning(tb), slot)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return s
}

func (c *ClusterSet) owner(asked *Server, slot int) (*Server, error) {
	view, err := c.view(asked)
	if err != nil {
		return nil, err
	}
	for _, s := range c.nodes {
		if slices.ContainsFunc(view[c.id(s)].slots, func(r [2]int) bool { return r[0] <= slot && slot <= r[1] }) {
			return s, nil
		}
	}
	return nil, fmt.Errorf("testbed: nobody owns slot %d in the eyes of %s", slot, asked.Addr())
}

// Migration is the move of one slot, step by step, so that a test can act in
// between: after BeginMigration clients are sent on with ASK for what is not
// on the old owner, after MoveKeys for everything, after Finish with MOVED.
type Migration struct {
	From, To *Server
	cluster  *ClusterSet
	slot     int
}

// BeginMigration marks a slot as importing and migrating.
func (c *ClusterSet) BeginMigration(tb TB, slot int, to *Server) *Migration {
	tb.Helper()
	m := &Migration{From: c.NodeOfSlot(tb, slot), To: to, cluster: c, slot: slot}
	if m.From == to {
		tb.Fatalf("testbed: slot %d is on %s already", slot, to.Addr())
	}
	to.Do(tb, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "IMPORTING", c.id(m.From))
	m.From.Do(tb, "CLUSTER", "SETSLOT", strconv.Itoa(slot), "MIGRATING", c.id(to))
	return m
}

// MoveKey moves one key, if it is there; it says whether it was.
func (m *Migration) MoveKey(tb TB, key string) bool {
	tb.Helper()
	// The cluster may take itself for down while it settles who is master.
	var moved string
	eventually(tb, "MIGRATE is taken", func() error {
		answer, err := m.From.Try("MIGRATE", "127.0.0.1", strconv.Itoa(m.To.Port()), key, "0", "5000")
		if err != nil && strings.Contains(err.Error(), "CLUSTERDOWN") {
			return err
		}
		if err != nil {
			tb.Fatalf("testbed: MIGRATE %s from %s: %v", key, m.From.Addr(), err)
		}
		moved, _ = answer.ToString()
		return nil
	})
	return moved == "OK" // NOKEY means that the key has expired meanwhile
}

// MoveKeys moves all keys that are in the slot now and returns how many.
func (m *Migration) MoveKeys(tb TB) int {
	tb.Helper()
	moved := 0
	for {
		keys := m.From.List(tb, "CLUSTER", "GETKEYSINSLOT", strconv.Itoa(m.slot), "100")
		if len(keys) == 0 {
			return moved
		}
		for _, key := range keys {
			if m.MoveKey(tb, key) {
				moved++
			}
		}
	}
}

// Finish moves what is left, makes the new owner the owner and returns once
// all nodes know.
func (m *Migration) Finish(tb TB) {
	tb.Helper()
	m.MoveKeys(tb)
	// The new owner first: were the old one told first, nobody would own the
	// slot should the test end in between.
	for _, s := range append([]*Server{m.To, m.From}, m.cluster.Masters(tb)...) {
		s.Do(tb, "CLUSTER", "SETSLOT", strconv.Itoa(m.slot), "NODE", m.cluster.id(m.To))
	}
	m.cluster.AwaitReady(tb)
}

// MigrateSlot moves a slot with all its keys.
func (c *ClusterSet) MigrateSlot(tb TB, slot int, to *Server) {
	tb.Helper()
	c.BeginMigration(tb, slot, to).Finish(tb)
}

// Failover hands a living master's slots over to a replica of it, without
// losing a write, and returns the new master once all nodes know.
func (c *ClusterSet) Failover(tb TB, master *Server) *Server {
	tb.Helper()
	replicas := c.ReplicasOf(tb, master)
	if len(replicas) == 0 {
		tb.Fatalf("testbed: %s has no running replica", master.Addr())
	}
	next := replicas[0]
	// The other masters vote for a replica of one master once in two node timeouts. A replica that gets no votes gives
	// up after five seconds, and is asked again.
	var asked time.Time
	eventually(tb, "cluster failover to "+next.Addr(), func() error {
		if err := hasRole(next, "master"); err == nil || time.Since(asked) < 6*time.Second {
			return err
		}
		_, err := next.Try("CLUSTER", "FAILOVER")
		if err == nil {
			asked = time.Now()
			err = hasRole(next, "master")
		}
		return err
	})
	c.AwaitReady(tb)
	return next
}

// AwaitTakeover returns the new owner of a slot once the others have replaced
// its old one, which was killed or frozen by the test, and serve again.
func (c *ClusterSet) AwaitTakeover(tb TB, slot int, old *Server) *Server {
	tb.Helper()
	var next *Server
	eventually(tb, fmt.Sprintf("takeover of slot %d", slot), func() error {
		for _, s := range c.nodes {
			if s == old || !s.Running() {
				continue
			}
			owner, err := c.owner(s, slot)
			if err != nil {
				return err
			}
			text, err := s.tryText("CLUSTER", "INFO")
			if err != nil {
				return err
			}
			if owner == old || fields(text)["cluster_state"] != "ok" {
				return errors.New(s.Addr() + " does not know of a new owner")
			}
			next = owner
		}
		return nil
	})
	return next
}

// LockChannels returns the channels on which clients listen where the messages for
// this key are: at the master of its slot and its replicas, or, before 7.0, anywhere.
func (c *ClusterSet) LockChannels(tb TB, key string, pattern ...string) []string {
	tb.Helper()
	nodes := c.nodes
	if ServerVersion(tb).AtLeast(7, 0) {
		master := c.NodeOfKey(tb, key)
		nodes = append(c.ReplicasOf(tb, master), master)
	}
	var channels []string
	for _, s := range nodes {
		if s.Running() {
			channels = append(channels, s.LockChannels(tb, pattern...)...)
		}
	}
	return channels
}
