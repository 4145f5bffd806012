package main

import (
	"math/rand/v2"
	"time"
)

// load is one sale's work, the same for every strategy: it follows from these
// numbers alone. Parent and workers share it.
type load struct {
	Stock      int
	Buyers     int
	Processes  int
	Goroutines int // in each process
	Seed       uint64

	Think     time.Duration // how long a sale thinks between reading and writing
	SlowThink time.Duration // how long a slow one thinks
	SlowEvery int           // one click in so many is slow; 0: none
	Limit     time.Duration // no buyer is let in after this time
	Browsers  int           // people in each process who only look; see rw
}

// click is one press of the "buy" button.
type click struct {
	nr   int // its place in the order of arrival
	user int
	slow bool // the sale's think time is SlowThink: a slow bank, a long pause
}

// clicks returns all clicks in the order of their arrival. A quarter of the
// buyers click twice, one in twenty three times; a buyer's clicks follow each
// other directly, so that different processes serve them at the same time.
func (l load) clicks() []click {
	rng := rand.New(rand.NewPCG(l.Seed, 0))
	var all []click
	for _, user := range rng.Perm(l.Buyers) {
		times := 1
		switch p := rng.IntN(20); {
		case p == 0:
			times = 3
		case p < 6:
			times = 2
		}
		for range times {
			all = append(all, click{
				nr:   len(all),
				user: user,
				slow: l.SlowEvery > 0 && rng.IntN(l.SlowEvery) == 0,
			})
		}
	}
	return all
}

// clicksOf returns the clicks that one process serves: every n-th of n.
func (l load) clicksOf(process int) []click {
	var mine []click
	for i, c := range l.clicks() {
		if i%l.Processes == process {
			mine = append(mine, c)
		}
	}
	return mine
}

// think pauses as long as the sale of a click takes to decide.
func (l load) think(c click) {
	if c.slow {
		time.Sleep(l.SlowThink)
		return
	}
	if l.Think > 0 {
		time.Sleep(l.Think/2 + rand.N(l.Think))
	}
}
