package main

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The test program is its own worker, as the demo is.
func TestMain(m *testing.M) {
	testbed.Main()
	os.Exit(m.Run())
}

// small is a load that takes a second or so, with enough at once to go wrong
// without a lock.
func small() load {
	return load{
		Stock: 300, Processes: 3, Goroutines: 8, Seed: 3,
		Think: 200 * time.Microsecond, SlowThink: 60 * time.Millisecond, SlowEvery: 40,
		Limit: time.Minute, Browsers: 4,
	}
}

func startServer(t *testing.T, choice string) *demoserver.Server {
	t.Helper()
	server, err := demoserver.Start(t.Context(), "flashsale", choice)
	testbed.Must(t, err)
	t.Cleanup(func() {
		testbed.Must(t, server.Stop())
	})
	return server
}

// runSale runs one strategy with real processes and checks that it leaves the
// server as it was.
func runSale(t *testing.T, server *demoserver.Server, l load, strategy string, kill bool) row {
	t.Helper()
	chosen, err := find(strategy, false)
	testbed.Must(t, err)
	row, err := sale{load: l, strategy: chosen[0], server: server, kill: kill}.run(t.Context())
	testbed.Must(t, err)
	var table strings.Builder
	printHead(&table)
	printRow(&table, row)
	t.Logf("\n%s", table.String())
	nothingLeft(t, server)
	return row
}

func nothingLeft(t *testing.T, server *demoserver.Server) {
	t.Helper()
	client, err := server.Client()
	testbed.Must(t, err)
	defer client.Close()
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*").Build()).AsStrSlice()
	testbed.Must(t, err)
	if len(keys) > 0 {
		t.Errorf("%d keys are left behind: %q", len(keys), keys[:min(len(keys), 10)])
	}
}

// TestBroken: without a lock more is sold than there is; with SET NX and DEL slow sales outlive the lease, and the lock of
// another is removed.
func TestBroken(t *testing.T) {
	for _, strategy := range []string{"none", "setnx"} {
		row := runSale(t, startServer(t, demoserver.Private), small(), strategy, false)
		if row.good() || strategy == "none" && row.oversold() == 0 || strategy == "setnx" && row.seen.Stolen == 0 {
			t.Errorf("%s, and yet: %s; locks of others removed: %d", strategy, row.verdict(), row.seen.Stolen)
		}
	}
}

// exact are the strategies that promise to be exact.
func exact() []strategy {
	return slices.DeleteFunc(slices.Clone(strategies), func(s strategy) bool { return !s.exact })
}

// TestExact: what promises to be exact is, and a process that is killed in the middle of a sale loses nothing: the
// others go on, not before and not long after the lease.
func TestExact(t *testing.T) {
	server := startServer(t, demoserver.Private)
	for _, spec := range exact() {
		for name, kill := range map[string]bool{spec.name: false, spec.name + ", killed": true} {
			t.Run(name, func(t *testing.T) {
				row := runSale(t, server, small(), spec.name, kill)
				if !row.good() || row.sold != 300 || row.left != 0 {
					t.Errorf("sold %d of 300, %d left: %s; %s", row.sold, row.left, row.verdict(), row.seen.Failure)
				}
				// Every click enters at least once and ends with an order, a
				// refusal or the sight of an empty shelf.
				if n, clicks := len(row.seen.Waits), len(small().clicks()); n < clicks && !kill {
					t.Errorf("%d admissions for %d clicks", n, clicks)
				}
				if kill && spec.name != "optimistic" { // nothing is held, nothing was written: nobody waits
					goesOn(t, spec, row)
				}
			})
		}
	}
}

// goesOn fails unless the others went on when the dead process's lease had ended.
func goesOn(t *testing.T, spec strategy, row row) {
	t.Helper()
	stall, resumed := row.stall()
	if row.crash == nil || !resumed {
		t.Fatal("no process was killed, or nobody came after it")
	}
	// On other shelves the dead process may have been in the middle of
	// other sales.
	if got := len(row.seen.Repairs); got < 1 || got > 1 && spec.shelves == 1 {
		t.Errorf("%d half-done sales were put right, want 1", got)
	}
	// The holder's last renewal is at most a third of the lease old, unless it came late, and
	// a machine under load may see the end of the lease a bit late: not as late as a second lease.
	if low, high := killLease/4, killLease*2; stall < low || stall > high {
		t.Errorf("the next buyer entered after %v, want %v to %v", stall, low, high)
	}
}

// TestALookThatFails: of who can't read the orders nobody says that he saw a half-done sale.
func TestALookThatFails(t *testing.T) {
	server := startServer(t, demoserver.Private)
	w := &worker{job: job{load: small(), URL: server.URL}}
	redis, err := rueidis.NewClient(w.option())
	testbed.Must(t, err)
	defer redis.Close()
	w.shop = &shop{load: small(), redis: redis, tag: "look", shelves: 1}
	_, err = readWriteLock(w)
	testbed.Must(t, err)
	defer w.client.Close()
	testbed.Must(t, redis.Do(t.Context(), redis.B().Set().Key(w.ordersKey(0)).Value("no hash").Build()).Error())
	var notes result
	if err := w.look(t.Context(), &notes); err == nil || notes.Views+notes.Torn > 0 {
		t.Errorf("%v; %d looks, %d saw a half-done sale", err, notes.Views, notes.Torn)
	}
}

// TestEmbedded: the server of machines that have none, with its clock running.
func TestEmbedded(t *testing.T) {
	server := startServer(t, demoserver.Embedded)
	if row := runSale(t, server, small(), "none", false); row.good() {
		t.Error("no lock, and yet the books are exact")
	}
	for _, spec := range exact() {
		l := small()
		l.Browsers = 2 // as the demo has it for this server
		l.Stock = 100  // it is ten times slower
		if row := runSale(t, server, l, spec.name, false); !row.good() {
			t.Errorf("%s: %s; %s", spec.name, row.verdict(), row.seen.Failure)
		}
	}
}

// TestStatus: what run says to the shell, and what it prints into a pipe.
func TestStatus(t *testing.T) {
	server := startServer(t, demoserver.Private)
	for _, test := range []struct {
		name string
		args string
		good bool
	}{
		{"a broken strategy is meant to break", "-strategy none,optimistic", true},
		{"a demo in which nothing fails shows nothing", "-strategy none -processes 1 -goroutines 1", false},
		{"closed early, and exact", "-strategy optimistic -limit 1ms", true},
	} {
		t.Run(test.name, func(t *testing.T) {
			var out strings.Builder
			args := append([]string{"-redis", server.URL, "-stock", "100", "-goroutines", "8"}, strings.Fields(test.args)...)
			good, err := run(t.Context(), args, &out)
			if err != nil || good != test.good {
				t.Errorf("got %v, %v; want %v", good, err, test.good)
			}
			if strings.ContainsAny(out.String(), "\r\x1b") {
				t.Errorf("it writes what only a terminal understands:\n%s", out.String())
			}
		})
	}
	if _, err := run(t.Context(), []string{"-strategy", "hope"}, os.Stdout); err == nil || !strings.Contains(err.Error(), "optimistic") {
		t.Errorf("an unknown strategy: %v; want the known ones", err)
	}
	nothingLeft(t, server)
}

// TestLoad: the same seed gives the same load, and a buyer's clicks go to
// different processes.
func TestLoad(t *testing.T) {
	l := load{Stock: 1000, Processes: 3, Seed: 7, SlowEvery: 50}
	all := l.clicks()
	byUser := map[int]int{}
	for i, c := range all {
		byUser[c.user]++
		if c.nr != i || c != l.clicks()[i] {
			t.Fatalf("click %d is not repeatable: %+v", i, c)
		}
		if i > 0 && all[i-1].user == c.user && (i-1)%l.Processes == i%l.Processes {
			t.Fatalf("clicks %d and %d of one buyer go to one process", i-1, i)
		}
	}
	if len(byUser) != l.buyers() || len(all) < l.buyers()*5/4 {
		t.Errorf("%d buyers with %d clicks; want %d buyers, a quarter of whom click again", len(byUser), len(all), l.buyers())
	}
}

// TestCount compares what the connections counted with what the server did.
func TestCount(t *testing.T) {
	server := testbed.Standalone(t)
	option := rueidis.MustParseURL("redis://" + server.Addr())
	option.PipelineMultiplex = -1         // one connection: the greetings of another would count
	option.Dialer.KeepAlive = time.Minute // a PING would, too
	var c counter
	c.watch(&option)
	client, err := rueidis.NewClient(option)
	testbed.Must(t, err)
	defer client.Close()
	calls := func() (sum int64) {
		for _, n := range server.CommandStats(t).Calls {
			sum += n
		}
		return sum
	}
	sent, done := c.Load(), calls()
	value := strings.Repeat("*1\r\n$4\r\nPING\r\n", 10_000) // must not be taken for commands, over any number of writes
	var commands rueidis.Commands
	for range 100 {
		commands = append(commands,
			client.B().Set().Key("k").Value(value).Build(),
			client.B().Set().Key("empty").Value("").Build(),
			client.B().Eval().Script("return redis.call('GET', KEYS[1])").Numkeys(1).Key("k").Build())
	}
	for _, r := range client.DoMulti(context.Background(), commands...) {
		testbed.Must(t, r.Error())
	}
	// The GETs inside the scripts are what commandstats counts on top.
	if got, ran := c.Load()-sent, calls()-done; got != 300 || ran != 400 {
		t.Errorf("counted %d commands, the server %d; want 300 and 400", got, ran)
	}
}
