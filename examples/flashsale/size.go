package main

import (
	"context"
	"fmt"
	"io"
	"time"
)

// The demo is to end within a minute on any server, and the locks are to sell
// out: a sale that is closed early shows nothing. Servers differ by a factor of a
// hundred or more (a real one here, a real one behind a slow line, the embedded
// one), so each strategy is tried for a moment first, and the sale gets the size
// that the slowest of them leave room for.
const (
	trialStock = 100
	trialLimit = time.Second // for each strategy; an ordinary server needs less

	// salesTime is what all sales together may take by the figures of the trial, and
	// spareTime what the trial and its errors may take on top.
	salesTime = 40 * time.Second
	spareTime = 17 * time.Second
)

// sizes are the stocks that a sized sale may have. Of the smallest a server
// sells out at two orders a second.
var sizes = []int{10, 20, 30, 50, 100, 150, 200, 300, 500, 750, 1000, 1500, 2000, 2500, 3000, 4000, 5000}

// buyersFor is how many come for so many things: six for five.
func buyersFor(stock int) int { return stock + stock/5 }

// trial is what a strategy took on this server.
type trial struct {
	start time.Duration // until the processes were ready, and to tidy up
	click time.Duration // for each click, all processes together
}

// takes estimates a whole sale.
func (t trial) takes(clicks int) time.Duration { return t.start + time.Duration(clicks)*t.click }

// try runs a small sale.
func (s *sale) try(ctx context.Context) (trial, error) {
	began := time.Now()
	row, err := s.run(ctx)
	if err != nil {
		return trial{}, err
	}
	served := max(1, len(s.clicks())-row.total().Turned)
	return trial{start: time.Since(began) - row.lasted, click: row.lasted / time.Duration(served)}, nil
}

// schedule is the order of the day: how long the sale of each strategy takes.
type schedule struct {
	over  time.Time
	takes []time.Duration
}

// limit is for how long the strategy with this number may let buyers in: until
// the others need the time that is left.
func (s *schedule) limit(nr int) time.Duration {
	left := time.Until(s.over)
	for _, d := range s.takes[nr+1:] {
		left -= d
	}
	return max(left, time.Second)
}

// size fills in stock and buyers of l for this server.
func size(ctx context.Context, l *load, specs []spec, m *demo) (*schedule, error) {
	s := &schedule{over: m.began.Add(m.sales + spareTime)}
	trials := make([]trial, len(specs))
	for i, spec := range specs {
		m.progress.say("measuring how fast this server is: %s", spec.name)
		small := *l
		small.Stock, small.Buyers, small.Limit = trialStock, buyersFor(trialStock), trialLimit
		var err error
		if trials[i], err = (&sale{load: small, spec: spec, server: m.server}).try(ctx); err != nil {
			return nil, fmt.Errorf("%s: %w", spec.name, err)
		}
		if m.kill {
			trials[i].start += killLease + time.Second
		}
	}
	for _, stock := range sizes {
		bigger := *l
		bigger.Stock, bigger.Buyers = stock, buyersFor(stock)
		clicks := len(bigger.clicks())
		var takes []time.Duration
		var sum time.Duration
		for _, t := range trials {
			takes = append(takes, t.takes(clicks))
			sum += t.takes(clicks)
		}
		if s.takes != nil && sum > m.sales {
			break
		}
		l.Stock, l.Buyers, s.takes = bigger.Stock, bigger.Buyers, takes
	}
	return s, nil
}

// printLegend says how the table is to be read.
func printLegend(w io.Writer, kill bool) {
	fmt.Fprint(w, `
How to read it:
  sold, left  what the books say afterwards; together they must be what there was to sell
  oversold    orders for things that did not exist; twice: users who got more than one
  orders/s    in brackets if the sale went wrong: such a sale is fast because several sales run at
              once where only one may. Compare the rows without brackets with each other only
  wait        from the click until the sale could begin: median, and 99 % wait no longer
  cmds/ord    commands sent to Redis per order; the shop itself sends about four
`)
	if kill {
		fmt.Fprintln(w, "The order is the truth and is written last: who comes after a dead process corrects a stock that does not fit the orders.")
	}
}
