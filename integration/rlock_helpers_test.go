package integration

import (
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

func TestMain(m *testing.M) { bed.Main(m) }

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

// rlSubscribed waits until n connections listen to the lock's messages, or are called when it is free.
func rlSubscribed(t *testing.T, s *testbed.Server, name string, n int64) {
	t.Helper()
	bed.Eventually(t, fmt.Sprintf("%d subscriptions of %s", n, name), func() bool { return rlSubscriptions(t, s, name) == n })
}

func rlSubscriptions(t *testing.T, s *testbed.Server, name string) (n int64) {
	t.Helper()
	for _, channel := range s.List(t, "PUBSUB", "CHANNELS") {
		if channel == luascript.LockChannel(name) || strings.HasPrefix(channel, luascript.CallChannel(name)) {
			msg := s.Do(t, "PUBSUB", "NUMSUB", channel)
			counts, err := msg.AsIntMap()
			testbed.Must(t, err)
			n += counts[channel]
		}
	}
	return n
}

// waited reports whether err is that of a wait that ended, busy or beside a server that was silent.
func waited(err error) bool {
	_, is := errors.AsType[*redlatch.NotAcquiredError](err)
	return is
}
