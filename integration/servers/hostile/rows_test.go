package hostile

import (
	"context"
	"encoding/json"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// rows are what Locks returns, by name, as programs read it.
func rows(t *testing.T, c *redlatch.Client) map[string]map[string]any {
	t.Helper()
	out := map[string]map[string]any{}
	for in, err := range c.Locks(bed.Within(t, 20*time.Second), "") {
		if err != nil {
			t.Fatalf("%.400v", err)
		}
		text, err := json.Marshal(in)
		testbed.Must(t, err)
		var row map[string]any
		testbed.Must(t, json.Unmarshal(text, &row))
		out[in.Name] = row
	}
	return out
}

// One bad lock never fails a list: what can't be read is an odd row.
func TestOneBadLockNeverFailsAList(t *testing.T) {
	s := testbed.Standalone(t)
	c := bed.Client(t, s.Addr())
	hold(t, c.RLock("good"))
	odd := map[string]string{ // by name: a key that it names
		"queue": luascript.FairQueueKey("queue"), "marks": luascript.RWMarksKey("marks"), "wants": luascript.FairWantsKey("wants"),
	}
	for name, key := range odd {
		s.Do(t, "HSET", name, java+"1", "1")
		if name == "marks" {
			s.Do(t, "HSET", name, "mode", "read")
		}
		if name == "wants" {
			s.Do(t, "RPUSH", luascript.FairQueueKey(name), java+"g1-x.1")
		}
		s.Do(t, "SET", key, "x")
	}
	for i, want := range []string{"", "x", "1", strings.Repeat("9", 400), strings.Repeat("x", 5<<20)} {
		name := "want" + strconv.Itoa(i)
		s.Do(t, "HSET", name, java+"1", "1")
		s.Do(t, "RPUSH", luascript.FairQueueKey(name), java+"g1-x.1")
		s.Do(t, "HSET", luascript.FairWantsKey(name), java+"g1-x.1", want)
	}
	got := rows(t, c)
	testbed.Equal(t, got["good"]["kind"], "reentrant", "the kind of good")
	testbed.Equal(t, got["want1"]["kind"], "fair", "the kind of want1")
	for name, key := range odd {
		problem, _ := got[name]["problem"].(string)
		if got[name]["kind"] != "unknown" || !strings.Contains(problem, key) {
			t.Errorf("%s: %v", name, got[name])
		}
	}
}

// Names that are too long are counted, and never sent to the server.
func TestNamesThatAreTooLongAreCounted(t *testing.T) {
	s := testbed.Standalone(t)
	c := bed.Client(t, s.Addr())
	hold(t, c.RLock("good"))
	s.Do(t, "HSET", strings.Repeat("n", 20<<20), java+"1", "1")
	s.Do(t, "HSET", strings.Repeat("m", luascript.MaxKey+1), java+"1", "1")
	rows(t, c) // loads scripts
	s.Do(t, "CONFIG", "RESETSTAT")
	got := rows(t, c)
	in, _ := strconv.Atoi(s.Info(t, "stats")["total_net_input_bytes"])
	testbed.AtMost(t, in, 100_000, "bytes that were sent to the server")
	if len(got) != 2 || got["good"]["kind"] != "reentrant" {
		t.Errorf("%d rows: %.200v", len(got), got["good"])
	}
	for name, row := range got {
		problem, _ := row["problem"].(string)
		if name != "good" && (len(name) > 300 || row["kind"] != "unknown" || !strings.Contains(problem, "1 more")) {
			t.Errorf("%.400q: %.400v", name, row)
		}
	}
}

// Times that are far away empty no JSON: a place of the year 10000, a score without end.
func TestFarAwayTimesEmptyNoJSON(t *testing.T) {
	s := testbed.Standalone(t)
	c := bed.Client(t, s.Addr())
	w := java + "g1-zzzzzzzzzzzz.1"
	s.Do(t, "HSET", "fair", java+"1", "1")
	s.Do(t, "RPUSH", luascript.FairQueueKey("fair"), w)
	s.Do(t, "HSET", luascript.FairWantsKey("fair"), w, "9999999999999 300000000000000000 5000 30000 - nonce ")
	s.Do(t, "HSET", "rw", "mode", "write", w+":write", "1")
	s.Do(t, "ZADD", luascript.RWLeasesKey("rw"), "inf", w+":write")
	s.Do(t, "ZADD", luascript.RWWritersKey("rw"), "300000000000000000", w, "inf", w+"2", "1e300", w+"3", "-inf", w+"4")
	s.Do(t, "ZADD", luascript.RWMarksKey("rw"), "inf", w, "1e300", w+"2", "9999999999999", w+"3", "inf", w+"4")
	got := rows(t, c)
	if got["fair"]["queue_length"] != 1.0 || got["rw"]["queue_length"] != 4.0 || got["rw"]["holder_count"] != 1.0 {
		t.Errorf("%v", got)
	}
	for _, name := range []string{"fair", "rw"} {
		in, err := c.Inspect(bed.Within(t, time.Minute), name)
		bed.Want(t, err, nil)
		_, err = json.Marshal(in)
		bed.Want(t, err, nil)
		for _, w := range in.Queue {
			testbed.AtMost(t, w.AskedSince.Year(), 2200, name, "since the year")
		}
	}
}

// A name in the server's list of clients is not believed: with two names for one id both are shown.
func TestANameInTheClientListIsNotBelieved(t *testing.T) {
	s := testbed.Standalone(t)
	c := bed.Client(t, s.Addr(), func(cfg *redlatch.Config) { cfg.Name = "billing" })
	hold(t, c.RLock("l"))
	one := func() map[string]any {
		return rows(t, c)["l"]["holders"].([]any)[0].(map[string]any)
	}
	before := one()
	id, _ := before["client_id"].(string)
	if before["client"] != "billing" || before["disputed"] != nil {
		t.Fatalf("%v", before)
	}
	names := []string{"reports", "a", "b", "c", "d"}
	for _, name := range names {
		other, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
		testbed.Must(t, err)
		t.Cleanup(other.Close)
		testbed.Must(t, other.Do(t.Context(), other.B().ClientSetname().ConnectionName("redlatch:"+name+":"+id).Build()).Error())
	}
	fresh := bed.Client(t, s.Addr())
	after := rows(t, fresh)["l"]["holders"].([]any)[0].(map[string]any)
	client, _ := after["client"].(string)
	if after["disputed"] != true || !strings.Contains(client, "billing") || !strings.Contains(client, "reports") || len(client) > 100 {
		t.Errorf("%v", after)
	}
}

// TestSpoiledKeysAreNamed: whoever is refused for good, since a key of the lock holds something else, hears which one it is
// and what to do, and once that is done the lock works, without a restart.
func TestSpoiledKeysAreNamed(t *testing.T) {
	s := testbed.Standalone(t)
	fair := func(c *redlatch.Client) redlatch.Locker { return c.FairLock("l", redlatch.WithSkipAfter(time.Second)) }
	for name, tc := range map[string]struct {
		lock        func(c *redlatch.Client) redlatch.Locker
		key         string
		waits, free bool // who waits behind a holder is refused, and who comes for the free lock
	}{
		"counter":   {func(c *redlatch.Client) redlatch.Locker { return c.RLock("l", redlatch.Fenced()) }, luascript.TokenKey("l"), false, true},
		"void":      {func(c *redlatch.Client) redlatch.Locker { return c.RLock("l") }, luascript.VoidKey("l"), false, true},
		"leases":    {func(c *redlatch.Client) redlatch.Locker { return c.ReadWriteLock("l").ReadLock() }, luascript.RWLeasesKey("l"), false, false},
		"marks":     {func(c *redlatch.Client) redlatch.Locker { return c.ReadWriteLock("l").WriteLock() }, luascript.RWMarksKey("l"), false, false},
		"queue":     {fair, luascript.FairQueueKey("l"), true, true},
		"scores":    {fair, luascript.FairTimeoutKey("l"), true, false}, // a free lock without a queue does without
		"wants":     {fair, luascript.FairWantsKey("l"), true, false},
		"fair void": {fair, luascript.VoidKey("l"), true, true},
	} {
		t.Run(name, func(t *testing.T) {
			s.Do(t, "FLUSHALL")
			l := tc.lock(bed.Client(t, s.Addr()))
			release := func(context.Context) error { return nil }
			if tc.waits {
				release = hold(t, l)
			}
			s.Do(t, "SET", tc.key, "x")
			told := func(op string, err error) {
				t.Helper()
				_ = bed.As[*redlatch.ServerError](t, err)
				if !strings.Contains(err.Error(), tc.key) || !strings.Contains(err.Error(), "delete") {
					t.Errorf("%s: %v", op, err)
				}
			}
			if tc.waits {
				told("waiting", attempt(bed.Within(t, 20*time.Second), l, 10*time.Second))
			}
			bed.Want(t, release(t.Context()), nil)
			if err := attempt(bed.Within(t, 20*time.Second), l, 0); tc.free || err != nil {
				told("the free lock", err)
			}
			s.Do(t, "DEL", tc.key)
			bed.Want(t, attempt(bed.Within(t, 20*time.Second), l, 10*time.Second), nil)
		})
	}
}

// TestARecordThatCantBeRead: a job runs again a period after its record was spoiled, and not before:
// a run may have begun just then. A record that has no TTL gets one.
func TestARecordThatCantBeRead(t *testing.T) {
	s := testbed.Standalone(t)
	c := bed.Client(t, s.Addr())
	key := luascript.OnceKey("job")
	run := func(period time.Duration) bool {
		t.Helper()
		ran, err := c.Once("job").Do(bed.Within(t, 20*time.Second), period, func(context.Context) error { return nil })
		if err != nil {
			t.Errorf("%.200v", err)
		}
		return ran
	}
	for _, record := range []string{
		"", "x", "1", "1 2", "-1 x 0", "1e9 x 0", " ", "\n", strings.Repeat("9", 400) + " x 0", strings.Repeat("x", 1<<20),
		"1 " + strings.Repeat("x", 1<<20) + " 0", strings.Repeat("9", 1<<20) + " x 0",
	} {
		s.Do(t, "SET", key, record)
		if run(time.Hour) {
			t.Errorf("%.40q: a run that may be the second one", record)
		}
		testbed.Between(t, s.Int(t, "PTTL", key), 1, time.Hour.Milliseconds(), "ms of the record")
		s.Do(t, "PEXPIRE", key, "1")
		bed.Eventually(t, "its end", func() bool { return s.Int(t, "EXISTS", key) == 0 })
		if !run(time.Hour) {
			t.Errorf("%.40q: no run", record)
		}
		s.Do(t, "SET", key, record)
		if was, err := c.Once("job").Reset(t.Context()); !was || err != nil || s.Int(t, "EXISTS", key) != 0 {
			t.Errorf("%.40q: Reset: %t %v", record, was, err)
		}
	}
	testbed.Equal(t, run(time.Hour), true, "the job runs")
	testbed.Equal(t, run(time.Hour), false, "it runs again")
	s.Do(t, "PERSIST", key)
	testbed.Equal(t, run(time.Hour), false, "it runs again")
	testbed.AtLeast(t, s.Int(t, "PTTL", key), 1, "ms of the record")
	s.Do(t, "DEL", key)
	s.Do(t, "RPUSH", key, "x")
	if _, err := c.Once("job").Do(t.Context(), time.Hour, func(context.Context) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), key) || !strings.Contains(err.Error(), "delete") {
		t.Errorf("of another type: %v", err)
	}
}
