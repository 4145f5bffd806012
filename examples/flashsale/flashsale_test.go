package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

// The test program is its own worker, as the demo is.
func TestMain(m *testing.M) {
	if encoded, ok := os.LookupEnv(jobVariable); ok {
		os.Exit(workerMain(encoded))
	}
	os.Exit(m.Run())
}

// small is a load that takes a second or so, with enough at once to go wrong
// without a lock.
func small() load {
	return load{
		Stock: 300, Buyers: 400, Processes: 3, Goroutines: 8, Seed: 3,
		Think: 200 * time.Microsecond, SlowThink: 60 * time.Millisecond, SlowEvery: 40,
		Limit: time.Minute, Browsers: 4,
	}
}

func startServer(t *testing.T, choice string) *demoserver.Server {
	t.Helper()
	server, err := demoserver.Start(t.Context(), "flashsale", choice)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	return server
}

// runSale runs one strategy with real processes and checks that it leaves the
// server as it was.
func runSale(t *testing.T, server *demoserver.Server, l load, strategy string, kill bool) outline {
	t.Helper()
	spec, err := findOne(strategy)
	if err != nil {
		t.Fatal(err)
	}
	row, err := (&sale{load: l, spec: spec, server: server, kill: kill}).run(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	printHead(&table)
	printRow(&table, l, row)
	t.Logf("\n%s", table.String())
	nothingLeft(t, server)
	return row
}

func nothingLeft(t *testing.T, server *demoserver.Server) {
	t.Helper()
	client, err := server.Client()
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	keys, err := client.Do(t.Context(), client.B().Keys().Pattern("*").Build()).AsStrSlice()
	if err != nil {
		t.Fatal(err)
	}
	if len(keys) > 0 {
		t.Errorf("%d keys are left behind: %q", len(keys), keys[:min(len(keys), 10)])
	}
}

func TestNoneOversells(t *testing.T) {
	row := runSale(t, startServer(t, demoserver.Private), small(), "none", false)
	if row.audit.Exact() || row.audit.Oversold(300) == 0 {
		t.Errorf("no lock, and yet: %s", row.verdict())
	}
}

func TestSetNXDeletesLocksOfOthers(t *testing.T) {
	row := runSale(t, startServer(t, demoserver.Private), small(), "setnx", false)
	if row.audit.Exact() {
		t.Error("slow sales outlive the lease, and yet the books are exact")
	}
	if row.total().Stolen == 0 {
		t.Error("DEL never removed the lock of another")
	}
}

// TestExact runs every strategy that promises to be exact.
func TestExact(t *testing.T) {
	server := startServer(t, demoserver.Private)
	for _, spec := range strategies {
		if !spec.exact {
			continue
		}
		t.Run(spec.name, func(t *testing.T) {
			row := runSale(t, server, small(), spec.name, false)
			if !row.good() || row.audit.Sold != 300 || row.audit.Left != 0 {
				t.Errorf("sold %d of 300, %d left: %s; %s", row.audit.Sold, row.audit.Left, row.verdict(), row.total().Failure)
			}
			// Every click enters at least once and ends with an order, a
			// refusal or the sight of an empty shelf.
			if n, clicks := len(row.waits()), len(small().clicks()); n < clicks {
				t.Errorf("%d admissions for %d clicks", n, clicks)
			}
		})
	}
}

// TestKill kills a process in the middle of a sale: the others go on, not
// before and not long after the lease, and nothing is lost.
func TestKill(t *testing.T) {
	server := startServer(t, demoserver.Private)
	for _, spec := range strategies {
		if !spec.exact {
			continue
		}
		t.Run(spec.name, func(t *testing.T) {
			row := runSale(t, server, small(), spec.name, true)
			if !row.good() || row.audit.Sold != 300 || row.audit.Left != 0 {
				t.Errorf("sold %d of 300, %d left: %s; %s", row.audit.Sold, row.audit.Left, row.verdict(), row.total().Failure)
			}
			if row.crash == nil || !row.crash.resumed {
				t.Fatalf("no process was killed, or nobody came after it: %+v", row.crash)
			}
			if spec.name == "optimistic" {
				return // nothing is held, nothing was written: nobody waits
			}
			// On other shelves the dead process may have been in the middle of
			// other sales.
			if got := row.total().Repaired; got < 1 || got > 1 && spec.shelves == 1 {
				t.Errorf("%d half-done sales were put right, want 1", got)
			}
			// The holder's last renewal is at most a third of the lease old, unless it came late, and
			// a machine under load may see the end of the lease a bit late: not as late as a second lease.
			if low, high := killLease/4, killLease*2; row.crash.stall < low || row.crash.stall > high {
				t.Errorf("the next buyer entered after %v, want %v to %v", row.crash.stall, low, high)
			}
		})
	}
}

// TestEmbedded: the server of machines that have none, with its clock running.
func TestEmbedded(t *testing.T) {
	server := startServer(t, demoserver.Embedded)
	if row := runSale(t, server, small(), "none", false); row.audit.Exact() {
		t.Error("no lock, and yet the books are exact")
	}
	for _, spec := range strategies {
		if !spec.exact {
			continue
		}
		l := small()
		l.Browsers = 2               // as the demo has it for this server
		l.Stock, l.Buyers = 100, 140 // it is ten times slower
		if row := runSale(t, server, l, spec.name, false); !row.good() {
			t.Errorf("%s: %s; %s", spec.name, row.verdict(), row.total().Failure)
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
			out, err := os.Create(filepath.Join(t.TempDir(), "out"))
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = out.Close() }()
			args := append([]string{"-redis", server.URL, "-stock", "100", "-buyers", "200", "-goroutines", "8"}, strings.Fields(test.args)...)
			good, err := run(t.Context(), args, out)
			if err != nil || good != test.good {
				t.Errorf("got %v, %v; want %v", good, err, test.good)
			}
			text, err := os.ReadFile(out.Name())
			if err != nil {
				t.Fatal(err)
			}
			if strings.ContainsAny(string(text), "\r\x1b") {
				t.Errorf("progress was written into a file:\n%s", text)
			}
		})
	}
	if _, err := run(t.Context(), []string{"-strategy", "hope"}, os.Stdout); err == nil || !strings.Contains(err.Error(), "optimistic") {
		t.Errorf("an unknown strategy: %v; want the known ones", err)
	}
	nothingLeft(t, server)
}

// TestCount compares what the connections counted with what the server did.
func TestCount(t *testing.T) {
	server := startServer(t, demoserver.Private)
	option, err := rueidis.ParseURL(server.URL)
	if err != nil {
		t.Fatal(err)
	}
	option.PipelineMultiplex = -1         // one connection: the greetings of another would count
	option.Dialer.KeepAlive = time.Minute // a PING would, too
	var c counter
	c.watch(&option)
	client, err := rueidis.NewClient(option)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	calls := func() int64 {
		info, err := client.Do(t.Context(), client.B().Info().Section("commandstats").Build()).ToString()
		if err != nil {
			t.Fatal(err)
		}
		var sum int64
		for line := range strings.Lines(info) {
			var n int64
			if _, rest, ok := strings.Cut(line, ":calls="); ok {
				if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
					t.Fatal(err)
				}
				sum += n
			}
		}
		return sum
	}
	sent, done := c.sent.Load(), calls()
	value := strings.Repeat("*1\r\n$4\r\nPING\r\n", 10_000) // must not be taken for commands, over any number of writes
	var commands rueidis.Commands
	for range 100 {
		commands = append(commands,
			client.B().Set().Key("k").Value(value).Build(),
			client.B().Set().Key("empty").Value("").Build(),
			client.B().Eval().Script("return redis.call('GET', KEYS[1])").Numkeys(1).Key("k").Build())
	}
	for _, r := range client.DoMulti(context.Background(), commands...) {
		if err := r.Error(); err != nil {
			t.Fatal(err)
		}
	}
	// The first INFO counts itself only afterwards, and the GETs inside the
	// scripts are what commandstats counts on top.
	got, ran := c.sent.Load()-sent, calls()-done
	if got != 301 || ran != got+100 {
		t.Errorf("counted %d commands, the server %d; want 301 and 401", got, ran)
	}
}
