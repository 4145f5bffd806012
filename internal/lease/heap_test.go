package lease

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

type spotted struct {
	at    time.Time
	index int32
}

func (s *spotted) Spot() *int32 { return &s.index }

// What is due first comes first, whatever was set, moved and removed in between.
func TestHeap(t *testing.T) {
	const n, steps = 300, 20_000
	rnd := rand.New(rand.NewPCG(1, 2)) // #nosec G404 -- a test's
	base := time.Now()
	var h Heap[*spotted]
	items := make([]*spotted, n)
	for i := range items {
		items[i] = &spotted{index: -1}
	}
	in := map[*spotted]bool{}
	check := func(step int) {
		t.Helper()
		if h.Len() != len(in) {
			t.Fatalf("step %d: %d items, want %d", step, h.Len(), len(in))
		}
		first, at, ok := h.First()
		if ok != (len(in) > 0) {
			t.Fatalf("step %d: a first one: %v, of %d", step, ok, len(in))
		}
		for s := range in {
			switch {
			case s.at.Before(at):
				t.Fatalf("step %d: the first is due at %v, another one at %v", step, at.Sub(base), s.at.Sub(base))
			case s.index < 0:
				t.Fatalf("step %d: an item in the heap says that it is not there", step)
			}
		}
		if ok && (!first.at.Equal(at) || !in[first]) {
			t.Fatalf("step %d: the first is due at %v, set was %v (in: %v)", step, at.Sub(base), first.at.Sub(base), in[first])
		}
	}
	for step := range steps {
		s := items[rnd.IntN(n)]
		switch op := rnd.IntN(10); {
		case op < 6:
			s.at = base.Add(time.Duration(rnd.IntN(1000)-500) * time.Millisecond)
			h.Set(s, s.at)
			in[s] = true
		case op < 8:
			if first, at, ok := h.First(); ok { // what the watchdog does most
				first.at = at.Add(time.Second)
				h.Set(first, first.at)
			}
		default:
			h.Remove(s)
			delete(in, s)
			if s.index != -1 {
				t.Fatal("a removed item says that it is in the heap")
			}
		}
		if step%50 == 0 {
			check(step)
		}
	}
	all := slices.Collect(h.All())
	if len(all) != len(in) {
		t.Fatalf("All yields %d of %d", len(all), len(in))
	}
	var last time.Time
	for h.Len() > 0 {
		check(steps)
		s, at, _ := h.First()
		if at.Before(last) {
			t.Fatal("out of order")
		}
		last = at
		h.Remove(s)
		delete(in, s)
	}
	h.Remove(items[0]) // is not there: nothing happens
}
