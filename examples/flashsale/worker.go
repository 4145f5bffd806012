package main

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A worker is a process of its own: this program, started again by itself. It says
// "ready", waits for a line on its standard input, serves its clicks, and prints what it
// has seen: "result", and a line of JSON. One that is to be killed says "inside" when
// that may happen, its shelf, and what it has sent so far, since it can't tell later.

// job is what the parent tells a worker.
type job struct {
	load
	URL      string
	Tag      string
	Strategy string
	Process  int
	Kill     bool // one of the workers is killed: leases are short
	Dies     bool // it is this one
}

// result is what a goroutine has done, a process, or all of them.
type result struct {
	Waits    []int64 // µs, of each admission to a shelf: from the click, or from the failed try at another shelf
	LastSale time.Time
	Turned   int // buyers that were not let in any more, because of load.Limit
	Failed   int // goroutines that met an error
	Failure  string
	Commands int64
	Repairs  []repair

	Stolen    int // locks of others that setnx has deleted
	Conflicts int // attempts of optimistic that were in vain
	Views     int // looks of rw's browsers
	Torn      int // looks that saw a half-done sale
}

// waited notes that a sale begins.
func (r *result) waited(d time.Duration) { r.Waits = append(r.Waits, d.Microseconds()) }

// add takes over what another has written down.
func (r *result) add(o result) {
	r.Waits = append(r.Waits, o.Waits...)
	r.LastSale = slices.MaxFunc([]time.Time{r.LastSale, o.LastSale}, time.Time.Compare)
	r.Turned += o.Turned
	r.Failed += o.Failed
	r.Failure = cmp.Or(r.Failure, o.Failure)
	r.Commands += o.Commands
	r.Repairs = append(r.Repairs, o.Repairs...)
	r.Stolen += o.Stolen
	r.Conflicts += o.Conflicts
	r.Views += o.Views
	r.Torn += o.Torn
}

// worker is the state of a worker process.
type worker struct {
	*shop
	job     job
	counter counter
	client  *redlatch.Client                     // of strategies with locks
	look    func(context.Context, *result) error // of strategies that know people who only look
}

// option is how both clients of a worker connect.
func (w *worker) option() rueidis.ClientOption {
	option := rueidis.MustParseURL(w.job.URL) // the parent is connected to it
	option.DisableCache = true
	w.counter.watch(&option)
	return option
}

// work is a worker process.
func work(ctx context.Context, parent *testbed.Worker) error {
	w := &worker{}
	if err := parent.Args(&w.job); err != nil {
		return err
	}
	chosen, err := find(w.job.Strategy, false)
	if err != nil {
		return err
	}
	redis, err := rueidis.NewClient(w.option())
	if err != nil {
		return err
	}
	defer redis.Close()
	var sales atomic.Int64
	halfway := func(shelf int) {
		if w.job.Dies && int(sales.Add(1)) == 1+w.Stock/w.Processes/8 { // the lock is held and renewed until then
			parent.Say("inside %d %d", shelf, w.counter.Load())
			select {}
		}
	}
	w.shop = &shop{load: w.job.load, redis: redis, tag: w.job.Tag, shelves: chosen[0].shelves, halfway: halfway}
	// A strategy that does not keep others out can't repair anything: it would see its
	// neighbour's sale.
	w.repair = w.job.Kill && chosen[0].exact
	sell, err := chosen[0].make(w)
	if err != nil {
		return err
	}

	parent.Say("ready")
	<-parent.Lines()
	w.counter.Store(0)
	r := w.serve(ctx, sell)
	if w.client != nil {
		// Who reports is ended: a lock that came too late is given back first, or the next sale waits for a lease.
		w.client.Close()
	}
	r.Commands, r.Repairs = w.counter.Load(), w.repairs
	encoded, err := json.Marshal(r)
	parent.Say("result %s", encoded)
	return err
}

// serve lets the goroutines serve all clicks of this process.
func (w *worker) serve(ctx context.Context, sell seller) result {
	clicks := make(chan click, len(w.clicks()))
	for _, c := range w.clicks() {
		if c.nr%w.Processes == w.job.Process {
			clicks <- c
		}
	}
	close(clicks)
	w.closing = time.Now().Add(w.Limit)
	var closed atomic.Bool
	var mu sync.Mutex
	var all result // guarded by mu
	start := func(team *sync.WaitGroup, people int, do func(notes *result) error) {
		for range people {
			team.Go(func() {
				var notes result
				if err := do(&notes); err != nil {
					notes.Failed, notes.Failure = 1, err.Error()
				}
				mu.Lock()
				defer mu.Unlock()
				all.add(notes)
			})
		}
	}

	var buyers, browsers sync.WaitGroup
	start(&buyers, w.Goroutines, func(notes *result) (err error) { // ends with the last click
		for c := range clicks {
			got := turnedAway
			if w.patience() > 0 {
				if got, err = sell(ctx, c, notes); err != nil {
					return err
				}
			}
			switch got {
			case turnedAway:
				notes.Turned++
			case bought:
				notes.LastSale = time.Now()
			default: // the buyer has one, or nothing is left
			}
		}
		return nil
	})
	if w.look != nil {
		start(&browsers, w.Browsers, func(notes *result) (err error) { // ends after the buyers
			for err == nil && !closed.Load() {
				time.Sleep(20 * time.Millisecond)
				err = w.look(ctx, notes)
			}
			return err
		})
	}
	buyers.Wait()
	closed.Store(true)
	browsers.Wait()
	return all
}
