package main

import (
	"math"
	"testing"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

func waitsOf(d ...time.Duration) work.Sparse {
	h := newHistogram()
	for _, one := range d {
		h.Add(one)
	}
	return h.Sparse()
}

// TestFiguresOfTheLoneOne: its waits are its own, its share is against half, and utilisation adds up the processes.
func TestFiguresOfTheLoneOne(t *testing.T) {
	r := row{goroutines: []int{2, 1}, spec: spec{Section: time.Millisecond}}
	f, err := pairFigures(r, []result{
		{Elapsed: 2 * time.Second, Counts: []uint64{50, 40}, Waits: waitsOf(time.Second), Inside: 1200 * time.Millisecond, Messages: 5},
		{Elapsed: 2 * time.Second, Counts: []uint64{10}, Waits: waitsOf(2*time.Millisecond, 3*time.Millisecond), Inside: 200 * time.Millisecond, Messages: 5},
	}, usage{calls: map[string]int64{"evalsha": 300}, micros: map[string]int64{"evalsha": 700}}, entry{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for m, want := range map[metric]float64{
		throughput: 50, utilisation: 0.7, loneMax: 3000, loneShare: 0.2, waitMax: 1e6, commands: 3, attempts: 2, serverExec: 7, messages: 0.1,
	} {
		if got := f[m]; got < want*0.999 || got > want*1.001 {
			t.Errorf("%s is %v, not %v", m, got, want)
		}
	}
}

// TestUnknownFiguresAreLeftOut: zeros would look like the best of all.
func TestUnknownFiguresAreLeftOut(t *testing.T) {
	f, err := pairFigures(row{}, []result{{Elapsed: time.Second, Counts: []uint64{3, 0}, Started: -1, Messages: -1}}, usage{cpu: 1}, entry{}, 0)
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range []metric{commands, serverExec, attempts, allocs, allocBytes, started, messages, utilisation, loneMax, pairP50, maxToMean} {
		if v, ok := f[m]; ok {
			t.Errorf("%s, which nobody has told, is %v", m, v)
		}
	}
	if _, err := pairFigures(row{}, []result{{Elapsed: time.Second, Counts: []uint64{0}}}, usage{}, entry{}, 0); err == nil {
		t.Error("nobody acquired the lock, and nobody said so")
	}
}

// TestServersAreWatchedForAnotherTime: figures of the server are for the acquisitions of the time that it was watched.
func TestServersAreWatchedForAnotherTime(t *testing.T) {
	results := []result{{Elapsed: 2 * time.Second, Counts: []uint64{100}}, {Elapsed: 2 * time.Second, Counts: []uint64{100}}}
	used := usage{cpu: 0.001, calls: map[string]int64{"evalsha": 300}}
	f, err := pairFigures(row{}, results, used, entry{}, 1500*time.Millisecond)
	if err != nil {
		t.Fatal(err)
	}
	if math.Abs(f[commands]-2) > 1e-9 {
		t.Errorf("300 commands in 1.5 s, 200 acquisitions in 2 s: %v commands each", f[commands])
	}
}
