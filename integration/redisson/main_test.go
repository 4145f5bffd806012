//go:build unix

package redisson

import (
	"context"
	"fmt"
	"os"
	"slices"
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
	testbed.Main()
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

// soon is the time within which a waiter that was told must have the lock, on a machine that is
// busy with other tests and may stand still for seconds; it is far below a lease of 30 s.
const soon = 5 * time.Second

// shortLease leaves two seconds for a renewal: on a machine that is busy with other tests, the first
// one of a Java process that has just started comes half a second late, and a second was too little.
const shortLease = 3 * time.Second

// bed is a server, or a cluster, with a Java and a Go process on it. The shared one serves every test that
// neither kills nor configures anything; names are unique, so the tests don't meet.
type bed struct {
	version Version
	server  *testbed.Server
	cluster *testbed.ClusterSet
	java    *Driver
	golang  *Driver
	options Options // of its processes
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

// sharedBed returns the shared bed of a version; it starts with the first test that asks. Leases are the default 30 s,
// so that nothing which is told by a message could have come from a TTL.
func sharedBed(t *testing.T, v Version) *bed {
	t.Helper()
	return sharedBedWith(t, v, 0)
}

// shortBed is a shared bed with short leases, for what happens at their ends and between
// renewals. Those who are killed are processes of the test's own.
func shortBed(t *testing.T, v Version) *bed {
	t.Helper()
	return sharedBedWith(t, v, shortLease)
}

func sharedBedWith(t *testing.T, v Version, lease time.Duration) *bed {
	t.Helper()
	_, err := Build(v)
	testbed.Must(t, err)
	sharedMu.Lock()
	defer sharedMu.Unlock()
	key := fmt.Sprint(v, " ", lease)
	if sharedBeds[key] == nil {
		sharedBeds[key] = newBed(shared, v, Options{Watchdog: lease})
	}
	return sharedBeds[key]
}

// newBed starts a server, a Java and a Go process.
func newBed(tb testbed.TB, v Version, o Options) *bed {
	tb.Helper()
	server := testbed.Standalone(tb)
	o.Addresses = []string{server.Addr()}
	return &bed{version: v, server: server, java: Start(tb, v, o), golang: startGo(tb, o), options: o}
}

// another starts one more process on the bed.
func (b *bed) another(t *testing.T, java bool) *Driver {
	t.Helper()
	if java {
		return Start(t, b.version, b.options)
	}
	return startGo(t, b.options)
}

// name returns a lock name that no other test uses.
func name(t *testing.T) string {
	t.Helper()
	base, _, _ := strings.Cut(t.Name(), "/")
	return fmt.Sprintf("%s-%d", base, names.Add(1))
}

// at is the server that a lock is on.
func (b *bed) at(t *testing.T, n string) *testbed.Server {
	t.Helper()
	if b.cluster != nil {
		return b.cluster.NodeOfKey(t, n)
	}
	return b.server
}

// channels are those of a lock to which somebody listens.
func (b *bed) channels(t *testing.T, n string) []string {
	t.Helper()
	if b.cluster != nil {
		return b.cluster.LockChannels(t, n, "*{"+n+"}*")
	}
	return b.server.List(t, "PUBSUB", "CHANNELS", "*{"+n+"}*")
}

// pttl is the remaining time of a key.
func (b *bed) pttl(t *testing.T, key string) time.Duration {
	t.Helper()
	return time.Duration(b.at(t, key).Int(t, "PTTL", key)) * time.Millisecond
}

// listen calls f with what is published from now on.
func (b *bed) listen(t *testing.T, pattern string, f func(channel, message string)) {
	t.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{b.server.Addr()}, DisableCache: true})
	testbed.Must(t, err)
	conn, release := client.Dedicate()
	ended := conn.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) { f(m.Channel, m.Message) }})
	testbed.Must(t, conn.Do(context.Background(), client.B().Psubscribe().Pattern(pattern).Build()).Error())
	t.Cleanup(func() {
		release()
		client.Close()
		for range ended {
		}
	})
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

// settle waits until no script has run for a while where a lock is: whoever waits is asleep.
func (b *bed) settle(t *testing.T, n string) {
	t.Helper()
	last, since, server := int64(-1), time.Now(), b.at(t, n)
	eventually(t, "the waiters sleep", func() bool {
		if n := server.CommandStats(t).Calls["evalsha"]; n != last {
			last, since = n, time.Now()
		}
		return time.Since(since) > 50*time.Millisecond
	})
}

// nothingLeft waits until the keys of a lock are gone, but for those that go by themselves or stay on
// purpose: Redisson's unlock latches, what redlatch refuses late commands by, and fencing counters.
func (b *bed) nothingLeft(t *testing.T, n string, others ...string) {
	t.Helper()
	passing := append([]string{"redisson_unlock_latch:", "redlatch_void:"}, others...)
	left := func() []string {
		return slices.DeleteFunc(b.at(t, n).List(t, "KEYS", "*"+n+"*"), func(key string) bool {
			passes := slices.ContainsFunc(passing, func(prefix string) bool { return strings.HasPrefix(key, prefix) })
			return passes && b.pttl(t, key) != -time.Millisecond || strings.HasPrefix(key, "redisson_lock_token:")
		})
	}
	for end := time.Now().Add(patience); len(left()) > 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("left behind: %q", left())
		}
	}
}

// between ends the test unless got is in [low, high].
func between(t *testing.T, what string, got, low, high time.Duration) {
	t.Helper()
	if got < low || got > high {
		t.Fatalf("%s: got %v, want %v to %v", what, got, low, high)
	}
}
