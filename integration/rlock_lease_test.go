package integration

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// Leases on a real server: how long a lock is held, and what ends it. That the
// deadlines are exact is shown with a fake clock in internal/engine; here the
// lower bounds are strict and the upper ones leave room for a busy machine.

// rlSlack is the room for a busy machine, which may stand still for almost two seconds.
const rlSlack = 2500 * time.Millisecond

// rlExpiry asks the server when the key ends: not before low, not after high.
func rlExpiry(t *testing.T, s *testbed.Server, name string) (low, high time.Time) {
	t.Helper()
	before := time.Now()
	ttl := time.Duration(s.Int(t, "PTTL", name)) * time.Millisecond
	if ttl <= 0 {
		t.Fatalf("PTTL %v", ttl)
	}
	return before.Add(ttl - 2*time.Millisecond), time.Now().Add(ttl + 2*time.Millisecond)
}

func rlAbsent(t *testing.T, s *testbed.Server) {
	t.Helper()
	if s.Int(t, "EXISTS", "l") != 0 {
		t.Error("the key was created again")
	}
}
