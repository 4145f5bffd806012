package main

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// strategy is a way to serve one click in the shop. It is called by many
// goroutines at once; the notebook belongs to the calling one.
type strategy interface {
	serve(ctx context.Context, c click, book *notebook) (outcome, error)
}

// browser is a strategy that knows people who only look, load.Browsers in each
// process beside those that sell.
type browser interface {
	// browse looks at the shelf again and again until done is closed.
	browse(ctx context.Context, done <-chan struct{}, book *notebook) error
}

// spec describes a strategy.
type spec struct {
	name    string
	exact   bool // it promises that stock and orders stay exact
	shelves int
	make    func(*worker) (strategy, error)
}

// strategies in the order in which the demo runs them.
var strategies = []spec{
	{name: "none", shelves: 1, make: newNone},
	{name: "setnx", shelves: 1, make: newSetNX},
	{name: "optimistic", exact: true, shelves: 1, make: newOptimistic},
	{name: "rlock", exact: true, shelves: 1, make: newRLock},
	{name: "rlock-segmented", exact: true, shelves: 10, make: newRLock},
	{name: "fair", exact: true, shelves: 1, make: newFair},
	{name: "rw", exact: true, shelves: 1, make: newRW},
	{name: "multilock", exact: true, shelves: 10, make: newMulti},
}

// find returns the named strategies; "all" means all of them, or with kill all
// that promise to stay exact.
func find(names string, kill bool) ([]spec, error) {
	var found []spec
	if names == "all" {
		for _, s := range strategies {
			if s.exact || !kill {
				found = append(found, s)
			}
		}
		return found, nil
	}
	for name := range strings.SplitSeq(names, ",") {
		s, err := findOne(strings.TrimSpace(name))
		if err != nil {
			return nil, err
		}
		found = append(found, s)
	}
	return found, nil
}

func findOne(name string) (spec, error) {
	var known []string
	for _, s := range strategies {
		if s.name == name {
			return s, nil
		}
		known = append(known, s.name)
	}
	return spec{}, fmt.Errorf("no strategy %q; there are all, %s", name, strings.Join(known, ", "))
}

// entry is one admission of a worker to a shelf.
type entry struct {
	Worker int // the goroutine's number over all processes
	Shelf  int
	At     time.Time
	Wait   time.Duration // from the click, or from the failed try at another shelf
}

// notebook is what one goroutine writes down.
type notebook struct {
	worker  int
	entries []entry

	stolen    int // locks of others that setnx has deleted
	conflicts int // attempts of optimistic that were in vain
	views     int // looks of rw's browsers
	torn      int // looks that saw a half-done sale
}

// entered notes that a sale begins that has been waited for since then.
func (b *notebook) entered(shelf int, since time.Time) {
	now := time.Now()
	b.entries = append(b.entries, entry{Worker: b.worker, Shelf: shelf, At: now, Wait: now.Sub(since)})
}

// none sells without any protection. It must go wrong: a demo in which nothing
// can fail would show nothing.
type none struct{ shop *shop }

func newNone(w *worker) (strategy, error) { return none{w.shop}, nil }

func (n none) serve(ctx context.Context, c click, book *notebook) (outcome, error) {
	book.entered(0, time.Now())
	return n.shop.sell(ctx, 0, c, n.shop.hasOrder)
}
