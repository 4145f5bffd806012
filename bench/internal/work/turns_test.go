package work

import (
	"encoding/json"
	"testing"
	"time"
)

// TestStints: process 0 has two turns, 1 and 2 one each, and 0 one more.
func TestStints(t *testing.T) {
	ms := func(n int64) int64 { return n * int64(time.Millisecond) }
	results := []Result{
		{Turns: []Turn{{ms(0), ms(10)}, {ms(90), ms(100)}, {ms(12), ms(20)}}}, // in the order of its goroutines
		{Turns: []Turn{{ms(23), ms(40)}}},
		{Turns: []Turn{{ms(45), ms(80)}}},
	}
	line, err := json.Marshal(results)
	if err != nil {
		t.Fatal(err)
	}
	results = nil
	if err := json.Unmarshal(line, &results); err != nil {
		t.Fatal(err)
	}
	s := StintsOf(results)
	if s.Number != 4 || s.Missed != 2 {
		t.Errorf("%d stints, %d missed, not 4 and 2", s.Number, s.Missed)
	}
	if s.Within != 0.02 || s.Between != 0.18 {
		t.Errorf("idle: %v within, %v between, not 2 of 100 ms and 18", s.Within, s.Between)
	}
	if n, most := s.Changes.Total(), s.Changes.Max(); n != 3 || most != 10*time.Millisecond {
		t.Errorf("%d changes of at most %v, not 3 and 10 ms", n, most)
	}
	if n, most := s.Lengths.Total(), s.Lengths.Max(); n != 3 || most != 35*time.Millisecond {
		t.Errorf("%d whole stints of at most %v, not 3 and 35 ms: the last may go on", n, most)
	}
	if s := StintsOf(nil); s.Number != 0 {
		t.Errorf("%d stints of nobody", s.Number)
	}
}
