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
	soakRecord   = "record"
)

var soakSides = []string{"Java", "Go"}

// soaker is one process of the soak.
type soaker struct {
	tag     string
	version Version // "" for Go
	driver  *Driver
	loops   []*Call
	client  string // uuid of its client: how its fields begin
	killed  bool
}

func (s *soaker) side() string {
	if s.version == "" {
		return "Go"
	}
	return "Java"
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
		long, err = time.ParseDuration(s)
		testbed.Must(t, err)
	}
	server := testbed.Standalone(t)
	b := &bed{server: server, options: Options{Addresses: []string{server.Addr()}, Watchdog: soakLease, FairWait: soakFairWait}}
	b.integersOnly(t)
	var alive, all []*soaker
	for i, v := range []Version{V4, V4, V3, V3, "", "", "", ""} {
		s := b.soaker(t, v, i)
		alive, all = append(alive, s), append(all, s)
	}
	check := newRecordCheck()
	end := time.Now().Add(long)
	kills := &soakKills{server: server, hit: map[string]int{}, aims: map[string][]string{}}
	for next := time.Now().Add(2 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
		check.read(t, server, soakRecord)
		if time.Now().Before(next) || time.Until(end) < 2*time.Second {
			continue
		}
		i := kills.next(t, alive)
		alive[i].killed = true
		server.Do(t, "RPUSH", soakRecord, "K "+alive[i].tag)
		alive[i] = b.soaker(t, alive[i].version, len(all))
		all = append(all, alive[i])
		next = time.Now().Add(time.Second + rand.N(2*time.Second))
	}
	for _, s := range alive {
		s.driver.Halt(t)
	}
	awaitLoops(t, b, all)
	// Places of dead Java waiters stay until somebody comes: that is Redisson's rule.
	last := startGo(t, b.options)
	for _, n := range soakHashes["fair"] {
		last.Go("lock", "last", Spec("fair", n), "0").Wait(t)
		last.Go("unlock", "last", Spec("fair", n)).Wait(t)
	}
	last.Quit(t)
	check.read(t, server, soakRecord)
	t.Logf("%v, %d kills: %d sections, %d beside other readers", long, kills.n, check.sections, check.together)
	kills.report(t)
	check.report(t)
	testbed.AtLeast(t, check.together, 1, "sections of readers that shared")
	soakResults(t, all)
	// What the dead left ends with its leases, by itself; the processes that live are
	// closed first.
	for _, s := range alive {
		s.driver.Quit(t)
	}
	b.nothingLeft(t, "", "redlatch_fair:")
	testbed.Equal(t, strings.Join(server.List(t, "PUBSUB", "CHANNELS", "*"), " "), "", "channels with subscribers")
}

// soaker starts a process of the soak; version "" is Go's.
func (b *bed) soaker(t *testing.T, v Version, number int) *soaker {
	t.Helper()
	s := &soaker{version: v}
	s.tag = s.side() + strconv.Itoa(number)
	if v == "" {
		s.driver = startGo(t, b.options)
	} else {
		s.driver = Start(t, v, b.options)
	}
	s.client, _, _ = strings.Cut(s.driver.Field(t, "id"), ":")
	for i := range 16 {
		s.loops = append(s.loops, s.driver.GoLoop("o"+strconv.Itoa(i), s.loop(i)))
	}
	return s
}

// loop is what one of its owners does.
func (s *soaker) loop(i int) Loop {
	l := Loop{
		Specs: []string{
			Spec("rlock", "soak-r1"), Spec("rlock", "soak-r2"), Spec("fenced", "soak-n1"),
			Spec("read", "soak-w1"), Spec("read", "soak-w1"), Spec("write", "soak-w1"), Spec("read", "soak-w2"), Spec("write", "soak-w2"),
			MultiSpec(Spec("rlock", "soak-r1"), Spec("rlock", "soak-r2")),
		},
		Record: soakRecord, Tag: s.tag, Hold: time.Millisecond, Wait: -1, Twice: i%2 == 0,
	}
	fair := []string{Spec("fair", "soak-f1"), Spec("fair", "soak-f2")}
	switch {
	case s.version == "":
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
	return l
}

// soakResults looks at what the loops of those who live came to: nobody has lost a lease, or failed.
func soakResults(t *testing.T, all []*soaker) {
	t.Helper()
	counts := map[string]LoopResult{}
	for _, s := range all {
		for _, c := range s.loops {
			if s.killed {
				if _, err := c.Result(); err != nil && !errors.Is(err, ErrGone) {
					t.Errorf("%s: %v", s.tag, err)
				}
				continue
			}
			r, sum := c.LoopResult(t), counts[s.side()]
			counts[s.side()] = LoopResult{
				sum.Acquired + r.Acquired, sum.Tried + r.Tried, sum.Lost + r.Lost, sum.Failed + r.Failed, max(sum.Longest, r.Longest),
			}
		}
	}
	for _, side := range soakSides {
		r := counts[side]
		t.Logf("%s: %+v", side, r)
		if r.Lost != 0 || r.Failed != 0 || r.Acquired == 0 {
			t.Errorf("%s: %+v", side, r)
		}
	}
}

// awaitLoops waits until every loop has ended, and shows what the server has when
// one does not: no lease that was ever asked for lasts that long, nor do the places of
// the dead.
func awaitLoops(t *testing.T, b *bed, all []*soaker) {
	t.Helper()
	var stuck []*soaker
	for end := time.Now().Add(20 * soakLease); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		if stuck = slices.DeleteFunc(slices.Clone(all), func(s *soaker) bool { return !slices.ContainsFunc(s.loops, (*Call).Pending) }); len(stuck) == 0 {
			return
		}
	}
	for _, s := range stuck {
		t.Errorf("loops of %s do not end", s.tag)
		// Where its owners stand, if the JDK has the tool.
		if dump, err := exec.CommandContext(t.Context(), "jstack", strconv.Itoa(s.driver.Pid())).CombinedOutput(); err == nil {
			for stack := range strings.SplitSeq(string(dump), "\n\n") {
				if strings.Contains(stack, "Commands.loop") {
					t.Logf("%s: %s", s.tag, stack)
				}
			}
		}
	}
	look := map[string]string{"hash": "HGETALL KEY", "list": "LRANGE KEY 0 20", "zset": "ZRANGE KEY 0 20 WITHSCORES", "string": "GET KEY"}
	for _, key := range b.server.List(t, "KEYS", "*") {
		args := strings.Fields(look[b.server.Text(t, "TYPE", key)])
		args[1] = key
		value := b.server.Do(t, args...)
		t.Logf("%s (TTL %v): %s", key, b.pttl(t, key), value.String())
	}
	t.FailNow()
}
