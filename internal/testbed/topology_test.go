package testbed

import (
	"strconv"
	"strings"
	"testing"
)

// set writes a key, on that many replicas too.
func set(t *testing.T, s *Server, key, value string, replicas int64) {
	t.Helper()
	s.Do(t, "SET", key, value)
	if got := s.Int(t, "WAIT", strconv.FormatInt(replicas, 10), "5000"); got < replicas {
		t.Fatalf("%d replicas have the write, want %d", got, replicas)
	}
}

func has(t *testing.T, s *Server, key, want string) {
	t.Helper()
	Equal(t, s.Text(t, "GET", key), want, "what it has,", s.Addr())
}

// refuses expects an error that begins so.
func refuses(t *testing.T, s *Server, want string, command ...string) {
	t.Helper()
	if _, err := s.Try(command...); err == nil || !strings.HasPrefix(err.Error(), want) {
		t.Errorf("%q: %v, want %s", command, err, want)
	}
}

func TestReplicasFollowAndTakeOver(t *testing.T) {
	r := Replicas(t, 2)
	old := r.Master()
	if len(r.Replicas()) != 2 {
		t.Fatalf("%d replicas", len(r.Replicas()))
	}
	set(t, old, "k", "v", 2)
	next := r.Handover(t)
	if next == old || r.Master() != next {
		t.Fatal("the master is the same")
	}
	has(t, next, "k", "v")
	refuses(t, old, "READONLY", "SET", "k", "w")
	set(t, next, "k", "w", 2)
}

func TestSentinelFailover(t *testing.T) {
	s := Sentinel(t)
	old := s.Master()
	set(t, old, "k", "v", 2)
	next := s.Failover(t)
	if next == old {
		t.Fatal("the master is the same")
	}
	has(t, next, "k", "v")
	// And again, by death.
	Equal(t, s.KillMaster(t), next, "which one was killed")
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
	owner, other := c.NodeOfKey(t, key), masters[0]
	if other == owner {
		other = masters[1]
	}
	set(t, owner, key, "v", 0)
	m := c.BeginMigration(t, slot, other)
	refuses(t, owner, "ASK "+strconv.Itoa(slot), "GET", "{orders}:43") // which is not there
	has(t, owner, key, "v")
	Equal(t, m.MoveKeys(t), 1, "keys that moved")
	m.Finish(t)
	refuses(t, owner, "MOVED "+strconv.Itoa(slot), "GET", key)
	has(t, other, key, "v")
	if c.NodeOfKey(t, key) != other {
		t.Error("the key has not moved")
	}

	next := c.Failover(t, other)
	has(t, next, key, "v")
	if c.NodeOfSlot(t, slot) != next {
		t.Error("the slot has another owner")
	}
	next.Kill(t)
	Equal(t, c.AwaitTakeover(t, slot, next), other, "who took over, of the former masters")
	has(t, other, key, "v")
}
