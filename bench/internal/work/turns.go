package work

import (
	"cmp"
	"slices"
	"time"
)

// A Turn is one acquisition of a goroutine, in nanoseconds on the machine's wall clock, which processes share: when
// Lock had returned and when Unlock was called. It travels as an array, since there are many.
type Turn [2]int64

// Got is when Lock had returned.
func (t Turn) Got() int64 { return t[0] }

// Left is when Unlock was called.
func (t Turn) Left() int64 { return t[1] }

// Stints say how one lock went through the processes. A stint is what a process has of it before another one has it.
type Stints struct {
	Number int
	// Within and Between are the time, as a part of all, that nobody was inside: between two turns of one process, and
	// between those of two.
	Within, Between float64
	Lengths         *Histogram // of stints
	Changes         *Histogram // from Unlock in one process to the return of Lock in another
	// Missed is the largest number of stints that others had between two of one process.
	Missed int
}

// StintsOf joins the turns of all processes.
func StintsOf(results []Result) Stints {
	type turn struct {
		Turn
		process int
	}
	var all []turn
	for i, r := range results {
		for _, t := range r.Turns {
			all = append(all, turn{t, i})
		}
	}
	slices.SortFunc(all, func(a, b turn) int { return cmp.Compare(a.Got(), b.Got()) })
	s := Stints{Lengths: NewHistogram(), Changes: NewHistogram()}
	if len(all) < 2 {
		return s
	}
	var within, between time.Duration
	last := make([]int, len(results)) // the number of each process's last stint
	began := all[0].Got()
	s.Number, last[all[0].process] = 1, 1
	for i, t := range all[1:] {
		before := all[i]
		gap := time.Duration(t.Got() - before.Left())
		if t.process == before.process {
			within += gap
			continue
		}
		between += gap
		s.Changes.Add(gap)
		s.Lengths.Add(time.Duration(before.Left() - began))
		began = t.Got()
		s.Number++
		if at := last[t.process]; at > 0 {
			s.Missed = max(s.Missed, s.Number-at-1)
		}
		last[t.process] = s.Number
	}
	whole := float64(all[len(all)-1].Left() - all[0].Got())
	s.Within, s.Between = float64(within)/whole, float64(between)/whole
	return s
}
