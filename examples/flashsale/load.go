package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"time"
)

// load is one sale's work, the same for every strategy: it follows from these
// numbers alone. Parent and workers share it.
type load struct {
	Stock      int
	Processes  int
	Goroutines int // in each process
	Seed       uint64

	Think     time.Duration // how long a sale thinks between reading and writing
	SlowThink time.Duration // how long a slow one thinks
	SlowEvery int           // one click in so many is slow; 0: none
	Limit     time.Duration // no buyer is let in after this time
	Browsers  int           // people in each process who only look; see readWriteLock
}

// click is one press of the "buy" button.
type click struct {
	nr   int // its place in the order of arrival
	user int
	slow bool // the sale's think time is SlowThink: a slow bank, a long pause
}

// buyers is how many come: six for every five things.
func (l load) buyers() int { return l.Stock + l.Stock/5 }

// clicks returns all clicks in the order of their arrival. A quarter of the buyers click
// twice, one in twenty three times. A process serves every n-th of n, and a buyer's
// clicks follow each other directly: different processes serve them at the same time.
func (l load) clicks() []click {
	rng := rand.New(rand.NewPCG(l.Seed, 0))
	var all []click
	for _, user := range rng.Perm(l.buyers()) {
		times := 1
		switch p := rng.IntN(20); {
		case p == 0:
			times = 3
		case p < 6:
			times = 2
		}
		for range times {
			slow := l.SlowEvery > 0 && rng.IntN(l.SlowEvery) == 0
			all = append(all, click{nr: len(all), user: user, slow: slow})
		}
	}
	return all
}

// think pauses as long as the sale of a click takes to decide.
func (l load) think(c click) {
	pause := l.Think/2 + rand.N(l.Think)
	if c.slow {
		pause = l.SlowThink
	}
	time.Sleep(pause)
}

// The demo is to end within a minute on any server, and the locks are to sell
// out: a sale that is closed early shows nothing. Servers differ by a factor of a
// hundred or more (a real one here, a real one behind a slow line, the embedded
// one), so each strategy is tried for a moment first, and the sale gets the size
// that the slowest of them leave room for.
const (
	trialStock = 100
	trialLimit = time.Second // for each strategy; an ordinary server needs less

	// spareTime is what the trial and its errors may take on top of the sales.
	spareTime = 17 * time.Second
)

// sizes are the stocks that a sized sale may have. Of the smallest a server
// sells out at two orders a second.
var sizes = []int{10, 20, 30, 50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 2500, 3000, 4000, 5000}

// schedule is the order of the day.
type schedule struct {
	over   time.Time
	clicks int
	click  []time.Duration // how long one takes, for each strategy, all processes together
	extra  time.Duration   // of each sale
}

// limit is for how long the strategy with this number may let buyers in: until
// the others need the time that is left.
func (s *schedule) limit(nr int) time.Duration {
	left := time.Until(s.over)
	for _, d := range s.click[nr+1:] {
		left -= time.Duration(s.clicks)*d + s.extra
	}
	return max(left, time.Second)
}

// plan runs a small sale of each strategy and returns the stock with which all of them
// together take no longer than they may.
func (s *schedule) plan(ctx context.Context, trial sale, chosen []strategy, may time.Duration) (stock int, err error) {
	l := trial.load
	trial.Stock, trial.Limit = trialStock, trialLimit
	var all time.Duration
	for _, trial.strategy = range chosen {
		r, err := trial.run(ctx)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", trial.strategy.name, err)
		}
		click := r.lasted / time.Duration(max(1, len(trial.clicks())-r.seen.Turned))
		s.click = append(s.click, click)
		all += click
		may -= s.extra
	}
	for _, l.Stock = range sizes {
		clicks := len(l.clicks())
		if stock > 0 && all*time.Duration(clicks) > may {
			break
		}
		stock, s.clicks = l.Stock, clicks
	}
	return stock, nil
}
