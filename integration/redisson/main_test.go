//go:build unix

package redisson

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"
	"go.uber.org/goleak"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestMain says loudly when the tests can't run, ends the processes that they
// share, and fails when a goroutine is left.
func TestMain(m *testing.M) {
	beGoDriver()
	if err := Available(); err != nil {
		testbed.Untested(shared, "Redisson beside us: %v", err)
		if os.Getenv("REDLATCH_INTEROP") == "require" {
			os.Exit(1)
		}
	}
	code := m.Run()
	shared.Close()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}
	os.Exit(code)
}

// bed is a server with a Java and a Go process on it. The shared one serves every test that
// neither kills nor configures anything; names are unique, so the tests don't meet.
type bed struct {
	version Version
	server  *testbed.Server
	java    *Driver
	golang  *Driver
}

var (
	shared     = &testbed.Program{} // owns the shared beds
	sharedMu   sync.Mutex
	sharedBeds = map[string]*bed{} // guarded by sharedMu; by version and lease
	names      atomic.Int64
)

// needJava skips the test where the driver can't be built.
func needJava(t *testing.T) {
	t.Helper()
	if err := Available(); err != nil {
		t.Skip(err)
	}
}

// eachVersion runs a test for all versions of Redisson at once: most of its time is waiting.
func eachVersion(t *testing.T, f func(t *testing.T, v Version)) {
	t.Helper()
	needJava(t)
	for _, v := range Versions {
		t.Run(string(v), func(t *testing.T) {
			t.Parallel()
			f(t, v)
		})
	}
}

// sharedBed returns the shared bed of a version; it starts with the first test that asks.
func sharedBed(t *testing.T, v Version) *bed {
	t.Helper()
	return sharedBedWith(t, v, Options{})
}

// sharedBedWith returns the shared bed of a version whose processes have a lease.
func sharedBedWith(t *testing.T, v Version, o Options) *bed {
	t.Helper()
	if _, err := Build(v); err != nil {
		t.Fatal(err)
	}
	sharedMu.Lock()
	defer sharedMu.Unlock()
	key := fmt.Sprint(v, " ", o.Watchdog)
	if sharedBeds[key] == nil {
		server := testbed.Standalone(shared)
		o.Addresses = []string{server.Addr()}
		sharedBeds[key] = &bed{v, server, Start(shared, v, o), startGo(shared, o)}
	}
	return sharedBeds[key]
}

// ownBed starts a server, a Java and a Go process for one test.
func ownBed(t *testing.T, v Version, o Options) *bed {
	t.Helper()
	server := testbed.Standalone(t)
	o.Addresses = []string{server.Addr()}
	return &bed{v, server, Start(t, v, o), startGo(t, o)}
}

// name returns a lock name that no other test uses.
func name(t *testing.T) string {
	t.Helper()
	base, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("%s-%d", base, names.Add(1))
}

// pttl is the remaining time of a key.
func (b *bed) pttl(t *testing.T, key string) time.Duration {
	t.Helper()
	return time.Duration(b.server.Int(t, "PTTL", key)) * time.Millisecond
}

// messages records what is published on a channel from now on.
func (b *bed) messages(t *testing.T, channel string) <-chan string {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{b.server.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan string, 100)
	conn, release := client.Dedicate()
	conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { got <- m.Message }})
	if err := conn.Do(context.Background(), client.B().Subscribe().Channel(channel).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { release(); client.Close() })
	return got
}

// next returns the next message, or "" when none comes soon.
func next(messages <-chan string) string { return within(messages, soon) }

// within returns the next message, or "" when none comes in a time.
func within(messages <-chan string, limit time.Duration) string {
	select {
	case m := <-messages:
		return m
	case <-time.After(limit):
		return ""
	}
}

// eventually waits for a state that nobody announces.
func eventually(t *testing.T, what string, cond func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !cond(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("never came about: %s", what)
		}
	}
}

// nothingLeft waits until the keys of a lock are gone, but for those that leftovers
// lets pass.
func (b *bed) nothingLeft(t *testing.T, n string) {
	t.Helper()
	var left []string
	for end := time.Now().Add(patience); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if left = b.leftovers(t, n); len(left) == 0 {
			return
		}
	}
	for _, key := range left {
		t.Errorf("left behind: %s, TTL %v", key, b.pttl(t, key))
	}
}

// between ends the test unless got is in [low, high].
func between(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Fatalf("%s: got %v, want %v to %v", what, got, low, high)
	}
}

// waitingOn waits until the server has a subscriber of the channel.
func (b *bed) waitingOn(t *testing.T, channel string) {
	t.Helper()
	eventually(t, "a subscriber of "+channel, func() bool {
		return b.subscribers(t, channel) > 0
	})
}

func (b *bed) subscribers(t *testing.T, channel string) int64 {
	t.Helper()
	msg := b.server.Do(t, "PUBSUB", "NUMSUB", channel)
	list, err := msg.ToArray()
	if err != nil || len(list) != 2 {
		t.Fatalf("PUBSUB NUMSUB: %v %v", list, err)
	}
	n, err := list[1].AsInt64()
	if err != nil {
		t.Fatal(err)
	}
	return n
}
