package testbed

import (
	"strconv"
	"strings"
	"testing"
)

func TestReplicasFollowAndTakeOver(t *testing.T) {
	r := Replicas(t, 2)
	old := r.Master()
	if len(r.Replicas()) != 2 {
		t.Fatalf("%d replicas", len(r.Replicas()))
	}
	old.Do(t, "SET", "k", "v")
	if got := old.Int(t, "WAIT", "2", "5000"); got != 2 {
		t.Errorf("%d replicas have the write, want 2", got)
	}
	next := r.Handover(t)
	if next == old || r.Master() != next {
		t.Fatal("the master is the same")
	}
	if got := next.Text(t, "GET", "k"); got != "v" {
		t.Errorf("the new master has %q", got)
	}
	if _, err := old.Try("SET", "k", "w"); err == nil || !strings.Contains(err.Error(), "READONLY") {
		t.Errorf("the old master takes writes: %v", err)
	}
	next.Do(t, "SET", "k", "w")
	if got := next.Int(t, "WAIT", "2", "5000"); got != 2 {
		t.Errorf("%d replicas follow the new master, want 2", got)
	}
}

func TestSentinelFailover(t *testing.T) {
	s := Sentinel(t)
	old := s.Master()
	old.Do(t, "SET", "k", "v")
	if got := old.Int(t, "WAIT", "2", "5000"); got != 2 {
		t.Fatalf("%d replicas have the write, want 2", got)
	}
	next := s.Failover(t)
	if next == old {
		t.Fatal("the master is the same")
	}
	if got := next.Text(t, "GET", "k"); got != "v" {
		t.Errorf("the new master has %q", got)
	}
	// And again, by death.
	if killed := s.KillMaster(t); killed != next {
		t.Errorf("killed %s, the master was %s", killed.Addr(), next.Addr())
	}
	last := s.AwaitNewMaster(t, next)
	if last == next {
		t.Error("the dead master is the master")
	}
	last.Do(t, "SET", "k", "w")
}

func TestClusterMovesSlotsAndFailsOver(t *testing.T) {
	c := Cluster(t)
	masters := c.Masters(t)
	if len(masters) != 3 {
		t.Fatalf("%d masters", len(masters))
	}
	const key = "{orders}:42"
	slot := Slot(key)
	if got := masters[0].Int(t, "CLUSTER", "KEYSLOT", key); int(got) != slot {
		t.Fatalf("Slot says %d, the server %d", slot, got)
	}
	owner := c.NodeOfKey(t, key)
	owner.Do(t, "SET", key, "v")
	other := masters[0]
	if other == owner {
		other = masters[1]
	}
	m := c.BeginMigration(t, slot, other)
	if _, err := owner.Try("GET", "{orders}:43"); err == nil || !strings.HasPrefix(err.Error(), "ASK "+strconv.Itoa(slot)) {
		t.Errorf("for an absent key: %v, want ASK", err)
	}
	if got := owner.Text(t, "GET", key); got != "v" {
		t.Errorf("before the key moves: %q", got)
	}
	if got := m.MoveKeys(t); got != 1 {
		t.Errorf("%d keys moved, want 1", got)
	}
	m.Finish(t)
	if _, err := owner.Try("GET", key); err == nil || !strings.HasPrefix(err.Error(), "MOVED "+strconv.Itoa(slot)) {
		t.Errorf("after the move: %v, want MOVED", err)
	}
	if got := other.Text(t, "GET", key); got != "v" || c.NodeOfKey(t, key) != other {
		t.Errorf("the new owner has %q", got)
	}

	next := c.Failover(t, other)
	if got := next.Text(t, "GET", key); got != "v" || c.NodeOfSlot(t, slot) != next {
		t.Errorf("after the failover: %q", got)
	}
	next.Kill(t)
	if last := c.AwaitTakeover(t, slot, next); last != other {
		t.Errorf("%s took over, want the former master", last.Addr())
	}
	if got := other.Text(t, "GET", key); got != "v" {
		t.Errorf("after the takeover: %q", got)
	}
}

func TestSlotOfKeysWithTags(t *testing.T) {
	s := started(t, func(port int) []string {
		bus, _ := busArgs(t, port)
		return append(bus, "--cluster-enabled", "yes")
	}, "")
	for _, key := range []string{"", "a", "{a}b", "x{a}y", "{}a", "{a", "a}b{c}d", "{{a}}", "\x00\xff", "123456789"} {
		if got := s.Int(t, "CLUSTER", "KEYSLOT", key); int(got) != Slot(key) {
			t.Errorf("%q: Slot says %d, the server %d", key, Slot(key), got)
		}
	}
}
