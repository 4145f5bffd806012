// Package readwrite holds the tests of what only read-write locks promise.
package readwrite

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

func TestMain(m *testing.M) { bed.Main(m) }

const (
	// soon is what a message takes to wake a waiter in another process on a busy machine, at most; who hears none
	// enters after a lease or a skip time far above it.
	soon = 3 * time.Second
	// atOnce is the same for one who is called inside a test that nothing else disturbs: less than until anybody looks.
	atOnce = 600 * time.Millisecond
	// looks is how long a free lock is left lying at most while somebody waits: a look, and what a busy machine adds.
	looks = 1250*time.Millisecond + atOnce

	leases  = "redlatch_rw_leases:{n}"
	writers = "redlatch_rw_writers:{n}"
	marks   = "redlatch_rw_marks:{n}"
	// foreign is a reader of another library, played by plain commands in the format that both share.
	foreign = "0a6c1d1e-6f5b-4c5e-9d61-1f2a3b4c5d6e:57"
	// stranger is the mark of a client that is nobody's.
	stranger = "00000000-0000-4000-8000-000000000001:g1-x.1"
)

// told is for waiters that a message must wake: others look after their places each second, and enter without a
// message then.
func told() redlatch.Option { return rwlock.WithSkipAfter(10 * time.Minute) }

func client(t *testing.T, s *testbed.Server, lease time.Duration) *redlatch.Client {
	t.Helper()
	return bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.LeaseTime = lease })
}

// proxied is a client behind a proxy, whose shared holds admit readers for tenure.
func proxied(t *testing.T, s *testbed.Server, lease, tenure time.Duration) (*redlatch.Client, *testbed.Proxy) {
	t.Helper()
	p := testbed.NewProxy(t, s.Addr())
	return bed.Client(t, p.Addr(), func(c *redlatch.Config) { c.LeaseTime, c.Tenure = lease, tenure }), p
}

// sharer is a client whose shared holds admit readers for tenure.
func sharer(t *testing.T, s *testbed.Server, tenure time.Duration) *redlatch.Client {
	t.Helper()
	return bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.LeaseTime, c.Tenure = 30*time.Second, tenure })
}

// failure is what a call fails for.
func failure[T any](_ T, err error) error { return err }

// busy fails if the lock can be had.
func busy(t *testing.T, ctx context.Context, l redlatch.Locker) { //nolint:revive // t first, as in testing
	t.Helper()
	if _, err := l.TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Fatalf("%v, want ErrNotAcquired", err)
	}
}

// blocked fails if the acquisition returns within a moment.
func blocked(t *testing.T, who string, from <-chan bed.Attempt) {
	t.Helper()
	select {
	case a := <-from:
		t.Fatalf("%s does not wait: %v", who, a.Err)
	case <-time.After(300 * time.Millisecond):
	}
}

// waiting waits until so many wait on the server: writers, readers, or readers in their turn.
func waiting(t *testing.T, s *testbed.Server, who string, n int64) {
	t.Helper()
	bed.Eventually(t, fmt.Sprintf("%d %s wait", n, who), func() bool { return s.Int(t, "ZCARD", "redlatch_rw_"+who+":{n}") == n })
}

// listening waits until n clients hear when their writer is called, and nothing is under way.
func listening(t *testing.T, s *testbed.Server, n int) {
	t.Helper()
	bed.Listeners(t, n, "n", s)
	s.AwaitQuiet(t)
}

// heard is how many connections listen to a channel.
func heard(t *testing.T, s *testbed.Server, channel string) int64 {
	t.Helper()
	msg := s.Do(t, "PUBSUB", "NUMSUB", channel)
	reply, err := msg.ToArray()
	if err != nil || len(reply) != 2 {
		t.Fatalf("PUBSUB NUMSUB: %v, %v", reply, err)
	}
	n, _ := reply[1].AsInt64()
	return n
}

// empty waits until nothing is left but counters and marks of late commands.
func empty(t *testing.T, s *testbed.Server) {
	t.Helper()
	bed.Eventually(t, "nothing is left", func() bool {
		for _, key := range s.List(t, "KEYS", "*") {
			if !strings.HasPrefix(key, "redisson_lock_token") && !strings.HasPrefix(key, "redlatch_void") {
				return false
			}
		}
		return true
	})
}

// scripts is how many scripts the server ran for f.
func scripts(t *testing.T, s *testbed.Server, f func()) int64 {
	t.Helper()
	before := s.CommandStats(t)
	f()
	return s.CommandStats(t).Sub(before).Calls["evalsha"]
}

// spawn starts a process whose holds have this lease.
func spawn(t *testing.T, s *testbed.Server, lease time.Duration) *bed.Worker {
	t.Helper()
	return bed.Spawn(t, bed.Setup{Addrs: []string{s.Addr()}, Lease: lease})
}

// ask asks for the lock in such a process.
func ask(mode string, skip time.Duration) bed.Command {
	return bed.Command{Do: "lock", Kind: mode, Name: "n", Skip: skip}
}

// mark marks a writer that came first, for ever.
func mark(t *testing.T, s *testbed.Server, field string) {
	t.Helper()
	s.Do(t, "ZADD", writers, "1000000", field)
	s.Do(t, "ZADD", marks, "99999999999999", field)
	t.Cleanup(func() { s.Do(t, "DEL", writers, marks) })
}

// hears listens where a writer of that client is called, and does nothing: a process that stands still.
func hears(t *testing.T, s *testbed.Server, field string) {
	t.Helper()
	id, _, _ := strings.Cut(field, ":")
	messages(t, s, luascript.CallChannel("n")+id+":write")
}

// messages are those of a channel, the first ten.
func messages(t *testing.T, s *testbed.Server, channel string) <-chan string {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	testbed.Must(t, err)
	dc, release := c.Dedicate()
	out := make(chan string, 10)
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(m rueidis.PubSubMessage) {
		select {
		case out <- m.Message:
		default:
		}
	}})
	testbed.Must(t, dc.Do(t.Context(), dc.B().Subscribe().Channel(channel).Build()).Error())
	t.Cleanup(func() { dc.Close(); release(); c.Close() })
	return out
}

// foreignReads takes count read holds of another library; the last-ending one is the given one.
func foreignReads(t *testing.T, s *testbed.Server, count, longest int, lease time.Duration) {
	t.Helper()
	s.Do(t, "HSETNX", "n", "mode", "read")
	s.Do(t, "HSET", "n", foreign, strconv.Itoa(count))
	for i := 1; i <= count; i++ {
		ms := lease.Milliseconds()
		if i != longest {
			ms /= 4
		}
		s.Do(t, "SET", "{n}:"+foreign+":rwlock_timeout:"+strconv.Itoa(i), "1", "PX", strconv.FormatInt(ms, 10))
	}
	if s.Int(t, "PTTL", "n") < lease.Milliseconds() {
		s.Do(t, "PEXPIRE", "n", strconv.FormatInt(lease.Milliseconds(), 10))
	}
}

// remaining is what is left of a hold's lease, as redlatch has noted it.
func remaining(t *testing.T, s *testbed.Server, field string) time.Duration {
	t.Helper()
	return time.Millisecond * time.Duration(s.Int(t, "EVAL", `
local clock = redis.call('TIME')
return redis.call('ZSCORE', KEYS[1], ARGV[1]) - clock[1] * 1000 - math.floor(clock[2] / 1000)`, "1", leases, field))
}

// onlyReader is the field of the only reader.
func onlyReader(t *testing.T, s *testbed.Server) string {
	t.Helper()
	list := s.List(t, "ZRANGE", leases, "0", "-1")
	if len(list) != 1 {
		t.Fatalf("readers: %v, want one", list)
	}
	return list[0]
}

// follow starts n readers behind the first, which waits on the server.
func follow(t *testing.T, s *testbed.Server, l redlatch.Locker, n int) []<-chan bed.Attempt {
	t.Helper()
	began := time.Now()
	got := []<-chan bed.Attempt{bed.Async(t.Context(), l)}
	waiting(t, s, "readers", 1)
	late := time.Since(began)
	for range n {
		got = append(got, bed.Async(t.Context(), l))
	}
	inLine(t, n)
	// They count as come later by the time that the first one's command took to the server.
	time.Sleep(late + 50*time.Millisecond)
	return got
}

// inLine waits until n readers of this process follow another one. Of tests that run side by side none has any.
func inLine(t *testing.T, n int) {
	t.Helper()
	bed.Eventually(t, "the readers are in line", func() bool { return testbed.GoroutinesIn("(*acquisition).follow") == n })
}
