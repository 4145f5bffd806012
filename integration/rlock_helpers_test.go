package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What the tests of the plain lock share.

// rlSlack is the room for a busy machine, which may stand still for almost two seconds.
const rlSlack = 2500 * time.Millisecond

// rlServer starts a server on which nothing may be left behind.
func rlServer(t *testing.T, args ...string) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t, args...)
	rlLeakCheck(t, s)
	return s
}

// rlLeakCheck allows what is meant to stay for a while: fencing counters and
// the marks that refuse late commands.
func rlLeakCheck(t *testing.T, s *testbed.Server) {
	t.Helper()
	testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:"))
}

// rlClient makes a client with the lease of users who ask for none.
func rlClient(t *testing.T, addr string, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	return bed.Client(t, addr, append([]func(*redlatch.Config){rlLease(0)}, change...)...)
}

func rlLease(d time.Duration) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.LeaseTime = d }
}

func rlUnlockTimeout(d time.Duration) func(*redlatch.Config) {
	return func(c *redlatch.Config) { c.UnlockTimeout = d }
}

// rlLoad puts the scripts on the server, so that traps for EVALSHA see each
// command once and not a NOSCRIPT answer first.
func rlLoad(t *testing.T, s *testbed.Server) {
	t.Helper()
	for _, script := range []*luascript.Script{
		luascript.Acquire, luascript.Reenter, luascript.Release, luascript.Renew, luascript.State,
	} {
		s.Do(t, "SCRIPT", "LOAD", script.Body)
	}
}

// rlMarked waits until the goroutine that the test has marked with its name is in a function.
func rlMarked(t *testing.T, function string) {
	t.Helper()
	bed.Eventually(t, "the goroutine in "+function, func() bool { return testbed.MarkedIn(t.Name(), function) == 1 })
}

func rlAlive(t *testing.T, h redlatch.Hold) {
	t.Helper()
	if h.Context().Err() != nil {
		t.Fatalf("the hold's context has ended: %v", context.Cause(h.Context()))
	}
}

func rlWant(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error %v, want %v", err, want)
	}
}

func rlChannel(name string) string { return luascript.LockChannel(name) }

// rlCalls begins the names of the channels on which clients that wait are called.
func rlCalls(name string) string { return luascript.CallChannel(name) }

// rlSubscribed waits until n connections listen to the lock's messages.
func rlSubscribed(t *testing.T, s *testbed.Server, name string, n int64) {
	t.Helper()
	bed.Eventually(t, fmt.Sprintf("%d subscriptions of %s", n, name), func() bool { return rlSubscriptions(t, s, name) == n })
}

func rlSubscriptions(t *testing.T, s *testbed.Server, name string) int64 {
	t.Helper()
	var called int64
	for _, channel := range s.List(t, "PUBSUB", "CHANNELS") {
		if strings.HasPrefix(channel, rlCalls(name)) {
			called++
		}
	}
	msg := s.Do(t, "PUBSUB", "NUMSUB", rlChannel(name))
	reply, err := msg.ToArray()
	if err != nil || len(reply) != 2 {
		t.Fatalf("PUBSUB NUMSUB: %v, %v", reply, err)
	}
	n, err := reply[1].AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n + called
}

// rlBlocked fails when the acquisition has returned.
func rlBlocked(t *testing.T, c <-chan bed.Attempt) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("Lock returned early: %v", r.Err)
	default:
	}
}

// rlConnections counts the lines of CLIENT LIST that are not the test's own, and
// those of them that listen.
func rlConnections(t *testing.T, s *testbed.Server) (all, listening int) {
	t.Helper()
	for _, line := range s.ForeignClients(t) {
		all++
		if !strings.Contains(line, " sub=0 psub=0 ") {
			listening++
		}
	}
	return all, listening
}

// rlOneOf fails unless err matches one of the sentinels.
func rlOneOf(t *testing.T, err error, sentinels ...error) {
	t.Helper()
	for _, e := range sentinels {
		if errors.Is(err, e) {
			return
		}
	}
	t.Errorf("error %v matches none of %v", err, sentinels)
}

// waited reports whether err is that of a wait that ended, busy or beside a server that was silent.
func waited(err error) bool {
	_, is := errors.AsType[*redlatch.NotAcquiredError](err)
	return is
}
