//go:build unix

package redisson

import (
	"errors"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// soakVariable says how long the soak lasts; make interop INTEROP_SOAK=60s sets it.
const soakVariable = "REDLATCH_INTEROP_SOAK"

const (
	soakLease    = 4 * time.Second
	soakFairWait = time.Second
)

// soaker is one process of the soak.
type soaker struct {
	tag     string
	version Version // "" for Go
	driver  *Driver
	loops   []*Call
	client  string // uuid of its client: how its fields begin
	killed  bool
}

// No section meets another that it excludes, nobody who lives loses a lease or waits for ever, and
// nothing is left, while four Java processes (two of each version) and four Go ones, 16 owners in
// each, take locks of all kinds under a few names at random, and some are killed and replaced: in
// the middle of sections of every kind and while they stand in fair queues.
//
// Redisson's fair wait is short here, and few Java owners take fair locks: each place
// that a dead one leaves blocks the queue for that long and some seconds more
// (TestDeadJavaWaitersAreSkippedByRedissonsRule). So living Java waiters go stale as
// well, which they must survive.
func TestSoak(t *testing.T) {
	needJava(t)
	long := 15 * time.Second
	if s := os.Getenv(soakVariable); s != "" {
		var err error
		if long, err = time.ParseDuration(s); err != nil {
			t.Fatalf("%s: %v", soakVariable, err)
		}
	}
	server := testbed.Standalone(t)
	b := &bed{server: server}
	b.integersOnly(t)
	const record = "record"
	options := Options{Addresses: []string{server.Addr()}, Watchdog: soakLease, FairWait: soakFairWait}
	names := 0
	start := func(v Version) *soaker {
		names++
		s := &soaker{tag: "go" + strconv.Itoa(names), version: v}
		if v == "" {
			s.driver = startGo(t, options)
		} else {
			s.tag = "java" + strconv.Itoa(names)
			s.driver = Start(t, v, options)
		}
		s.client, _, _ = strings.Cut(s.driver.Owner("id").Field(t), ":")
		for i := range 16 {
			l := Loop{
				Specs: []string{
					Spec("rlock", "soak-r1"), Spec("rlock", "soak-r2"), Spec("fenced", "soak-n1"),
					Spec("read", "soak-w1"), Spec("read", "soak-w1"), Spec("write", "soak-w1"), Spec("read", "soak-w2"), Spec("write", "soak-w2"),
					MultiSpec(Spec("rlock", "soak-r1"), Spec("rlock", "soak-r2")),
				},
				Record: record, Tag: s.tag, Hold: time.Millisecond, Wait: -1, Twice: i%2 == 0,
			}
			fair := []string{Spec("fair", "soak-f1"), Spec("fair", "soak-f2")}
			switch {
			case v == "":
				l.Specs = append(l.Specs, fair...)
			case i%8 == 3:
				l.Specs = slices.Concat(fair, []string{Spec("read", "soak-w2"), Spec("rlock", "soak-r2")})
			}
			switch i % 4 {
			case 1: // gives up often
				l.Wait = 50 * time.Millisecond
			case 2: // takes fixed leases, longer than any section lasts
				l.Wait, l.Lease = time.Second, 2*soakLease
			}
			s.loops = append(s.loops, s.driver.Owner("o"+strconv.Itoa(i)).GoLoop(l))
		}
		return s
	}
	var alive, all []*soaker
	for _, v := range []Version{V4, V4, V3, V3, "", "", "", ""} {
		s := start(v)
		alive, all = append(alive, s), append(all, s)
	}
	check := newRecordCheck()
	// The record is read and cut off as it grows.
	read := func() {
		for {
			lines := server.List(t, "LRANGE", record, "0", "999")
			for _, line := range lines {
				check.line(line)
			}
			server.Do(t, "LTRIM", record, strconv.Itoa(len(lines)), "-1")
			if len(lines) < 1000 {
				return
			}
		}
	}
	end := time.Now().Add(long)
	kills := newSoakKills(server)
	for next := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		read()
		if time.Now().Before(next) || time.Until(end) < 2*time.Second {
			continue
		}
		i := kills.next(t, alive)
		victim := alive[i]
		victim.killed = true
		server.Do(t, "RPUSH", record, "K "+victim.tag)
		alive[i] = start(victim.version)
		all = append(all, alive[i])
		next = time.Now().Add(time.Second + rand.N(2*time.Second))
	}
	for _, s := range alive {
		s.driver.Halt(t)
	}
	awaitLoops(t, server, all)
	// Places of dead Java waiters stay until somebody comes: that is Redisson's rule.
	last := startGo(t, options)
	for _, n := range []string{"soak-f1", "soak-f2"} {
		l := last.Owner("last").Fair(n)
		l.Lock(t, 0)
		l.Unlock(t)
	}
	last.Quit(t)
	counts := map[bool]LoopResult{}
	for _, s := range all {
		for _, c := range s.loops {
			_, err := c.Result()
			if s.killed {
				if err != nil && !errors.Is(err, ErrGone) {
					t.Errorf("%s: %v", s.tag, err)
				}
				continue
			}
			if err != nil {
				t.Errorf("%s: %v", s.tag, err)
				continue
			}
			r := c.LoopResult(t)
			sum := counts[s.version == ""]
			counts[s.version == ""] = LoopResult{
				sum.Acquired + r.Acquired, sum.Tried + r.Tried, sum.Lost + r.Lost, sum.Failed + r.Failed, max(sum.Longest, r.Longest),
			}
		}
	}
	read()
	t.Logf("%v, %d kills: %d sections, %d beside other readers", long, kills.n, check.sections, check.together)
	kills.report(t)
	t.Logf("Java: %+v", counts[false])
	t.Logf("Go: %+v", counts[true])
	check.report(t)
	for who, r := range map[string]LoopResult{"Java": counts[false], "Go": counts[true]} {
		if r.Lost != 0 || r.Failed != 0 || r.Acquired == 0 {
			t.Errorf("%s: %+v", who, r)
		}
	}
	if check.together == 0 {
		t.Error("readers never shared")
	}
	// What the dead left ends with its leases, by itself; the processes that live are
	// closed first.
	for _, s := range alive {
		s.driver.Quit(t)
	}
	var left []string
	for until := time.Now().Add(10 * soakLease); ; time.Sleep(100 * time.Millisecond) {
		left = slices.DeleteFunc(server.List(t, "KEYS", "*"), func(key string) bool { return soakMayLeave(t, b, key) })
		if len(left) == 0 {
			break
		}
		if time.Now().After(until) {
			for _, key := range left {
				t.Errorf("left behind: %s %s, TTL %v", server.Text(t, "TYPE", key), key, b.pttl(t, key))
			}
			break
		}
	}
	if channels := server.List(t, "PUBSUB", "CHANNELS", "*"); len(channels) > 0 {
		t.Errorf("channels with subscribers: %v", channels)
	}
}

// soakMayLeave says what may stay for a while, or for ever, after the soak.
func soakMayLeave(t *testing.T, b *bed, key string) bool {
	t.Helper()
	if strings.HasPrefix(key, "redisson_lock_token:") {
		return true
	}
	for _, prefix := range []string{"redisson_unlock_latch:", "redlatch_void:", "redlatch_fair:"} {
		if strings.HasPrefix(key, prefix) {
			return b.pttl(t, key) != -time.Millisecond
		}
	}
	return false
}

// awaitLoops waits until every loop has ended, and shows what the server has when
// one does not: no lease that was ever asked for lasts that long, nor do the places of
// the dead.
func awaitLoops(t *testing.T, server *testbed.Server, all []*soaker) {
	t.Helper()
	var stuck []string
	for end := time.Now().Add(20 * soakLease); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		stuck = stuck[:0]
		for _, s := range all {
			for i, c := range s.loops {
				if c.Pending() {
					stuck = append(stuck, s.tag+"/o"+strconv.Itoa(i))
				}
			}
		}
		if len(stuck) == 0 {
			return
		}
	}
	t.Errorf("loops that do not end: %v", stuck)
	for _, s := range all {
		if s.version == "" || !slices.ContainsFunc(s.loops, (*Call).Pending) || s.killed {
			continue
		}
		// Where its owners stand, if the JDK has the tool.
		if dump, err := exec.CommandContext(t.Context(), "jstack", strconv.Itoa(s.driver.cmd.Process.Pid)).CombinedOutput(); err == nil {
			for stack := range strings.SplitSeq(string(dump), "\n\n") {
				if strings.Contains(stack, "Commands.loop") {
					t.Logf("%s: %s", s.tag, stack)
				}
			}
		}
	}
	for _, key := range server.List(t, "KEYS", "*") {
		var value any
		switch server.Text(t, "TYPE", key) {
		case "hash":
			value = server.Hash(t, "HGETALL", key)
		case "list":
			value = server.List(t, "LRANGE", key, "0", "20")
		case "zset":
			scores := server.Do(t, "ZRANGE", key, "0", "20", "WITHSCORES")
			value = scores.String()
		case "string":
			value = server.Text(t, "GET", key)
		}
		t.Logf("%s (TTL %d ms): %v", key, server.Int(t, "PTTL", key), value)
	}
	t.FailNow()
}
