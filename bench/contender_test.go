package main

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestChosen: redlatch's contenders run in both builds, one beside the other, and nobody else's does. Systems take part
// when asked for, and in the rows that are about them only.
func TestChosen(t *testing.T) {
	there := map[string][]string{"etcd": {"systems"}}
	libraries := []string{"redlatch", "redsync"}
	for _, c := range []struct {
		take selection
		row  row
		want string
	}{
		{selection{against: "other"}, row{contenders: append(libraries, "limit")}, "redlatch/build=before redlatch/build=now redsync limit"},
		{selection{}, row{contenders: libraries, systems: true}, "redlatch redsync"},
		{selection{alone: true}, row{contenders: libraries, systems: true}, "redlatch"},
		{selection{systems: there}, row{contenders: libraries, systems: true}, "redlatch redsync etcd"},
		{selection{systems: there}, row{contenders: libraries}, "redlatch redsync"},
	} {
		list, err := c.take.chosen(c.row)
		var names []string
		for _, e := range list {
			names = append(names, strings.TrimPrefix(e.String(), "lock="))
		}
		if got := strings.Join(names, " "); err != nil || got != c.want {
			t.Errorf("%+v, row with systems %t: %s, %v", c.take, c.row.systems, got, err)
		}
	}
	var in []string
	for _, r := range rows(smallScale) {
		if r.systems {
			in = append(in, r.name)
		}
	}
	testbed.Equal(t, strings.Join(in, " "), "uncontended/1 contended/64 processes/8x4 handover", "systems take part in")
}

// TestEveryProcessIsTold what it is and how many compete.
func TestEveryProcessIsTold(t *testing.T) {
	specs := row{processes: 2}.specs(spec{Goroutines: 4})
	if len(specs) != 2 || specs[0].Process != 0 || specs[1].Process != 1 || specs[0].Waiters != 8 || specs[1].Waiters != 8 {
		t.Errorf("%+v", specs)
	}
	specs = row{}.specs(spec{Goroutines: 256, OwnKeys: true})
	if len(specs) != 1 || specs[0].Waiters != 0 {
		t.Errorf("goroutines with keys of their own compete: %+v", specs)
	}
}

// TestTurns: each contender has one turn a round, and not always after the same neighbour.
func TestTurns(t *testing.T) {
	const n = 4
	after := map[[2]int]int{}
	for round := range 2 * n {
		seen := map[int]bool{}
		for i := range n {
			seen[turn(i, round, n)] = true
			if i > 0 {
				after[[2]int{turn(i-1, round, n), turn(i, round, n)}]++
			}
		}
		testbed.Equal(t, len(seen), n, "turns of round", round)
	}
	for i := range n {
		next := (i + 1) % n
		if forth, back := after[[2]int{i, next}], after[[2]int{next, i}]; forth == 0 || back == 0 {
			t.Errorf("%d comes after %d %d times, before it %d times", next, i, forth, back)
		}
	}
}

// TestRunWritesBenchmarks goes through the program as a user does.
func TestRunWritesBenchmarks(t *testing.T) {
	dir := t.TempDir()
	var out bytes.Buffer
	args := "-rounds 2 -duration 50ms -only ^uncontended/16$ -contenders ^limit$|^redislock$ -cpuprofile "
	testbed.Must(t, run(t.Context(), append(strings.Fields(args), dir), &out, t.Output()))
	header, found := 0, 0
	for line := range strings.Lines(out.String()) {
		line = strings.TrimSuffix(line, "\n")
		switch name, value, ok := strings.Cut(line, ": "); {
		case benchmarkLine.MatchString(line):
			found++
		case ok && value != "" && name == strings.ToLower(name):
			header++
		default:
			t.Errorf("benchstat can't read %q", line)
		}
	}
	if found != 4 || header < 6 {
		t.Errorf("%d lines of figures, %d of the machine in\n%s", found, header, &out)
	}
	if files, err := filepath.Glob(filepath.Join(dir, "uncontended-16-lock-limit-*.pprof")); err != nil || len(files) != 2 {
		t.Errorf("profiles: %v, %v", files, err)
	}
}

func TestRunRefuses(t *testing.T) {
	for _, args := range [][]string{
		{"-rounds", "0"}, {"-duration", "-1s"}, {"-only", "("}, {"-contenders", "("}, {"-only", "nothing"}, {"surplus"},
		{"-peers", "some"}, {"-against", t.TempDir()},
	} {
		if err := run(context.Background(), args, t.Output(), t.Output()); err == nil {
			t.Errorf("%q was accepted", args)
		}
	}
	var out bytes.Buffer
	if err := run(t.Context(), []string{"-list"}, &out, t.Output()); err != nil || !strings.Contains(out.String(), "rueidislock") {
		t.Errorf("-list: %v, %s", err, &out)
	}
}
