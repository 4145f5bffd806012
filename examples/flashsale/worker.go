package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// A worker is a process of its own: this program, started again by itself with
// its job in the environment. It says "ready", waits for a line on its standard
// input, serves its clicks, and prints what it has seen. Every message is one
// line of JSON on its standard output.

// jobVariable holds a worker's job; its presence makes a process a worker.
const jobVariable = "REDLATCH_FLASHSALE_JOB"

// job is what the parent tells a worker.
type job struct {
	load
	URL      string
	Tag      string
	Strategy string
	Process  int

	Lease    time.Duration // of the watchdog; 0: the default
	Repair   bool          // see shop.repair
	DieAt    int           // stop in the middle of this sale, to be killed; 0: don't
	Progress bool          // tell how many were served, now and then
}

// message is what a worker tells the parent. One of the fields is set.
type message struct {
	Ready  bool    `json:",omitempty"`
	Served int     `json:",omitempty"` // so far
	Inside *inside `json:",omitempty"` // ready to be killed
	Result *result `json:",omitempty"` // the last message
}

// inside says that the worker stands in the middle of a sale.
type inside struct {
	Shelf    int
	Commands int64 // what it has sent so far, since it can't tell later
}

// result is what a worker has done.
type result struct {
	Entries  []entry
	LastSale time.Time
	Turned   int // buyers that were not let in any more, because of load.Limit
	Failed   int // clicks that ended with an error
	Failure  string
	Commands int64

	Stolen, Conflicts, Views, Torn int // as in notebook
	Repaired                       int // half-done sales put right
}

// worker is the state of a worker process.
type worker struct {
	job      job
	shop     *shop
	counter  counter
	sales    atomic.Int64
	lastSale atomic.Int64 // UnixNano

	out sync.Mutex // one message at a time on standard output
}

// workerMain runs a worker and returns its exit status.
func workerMain(encoded string) int {
	w := &worker{}
	err := json.Unmarshal([]byte(encoded), &w.job)
	if err == nil {
		err = w.run()
	}
	if err != nil {
		fmt.Fprintf(os.Stderr, "flashsale: worker %d: %v\n", w.job.Process, err)
		return 2
	}
	return 0
}

func (w *worker) run() error {
	ctx := context.Background()
	spec, err := findOne(w.job.Strategy)
	if err != nil {
		return err
	}
	option, err := rueidis.ParseURL(w.job.URL)
	if err != nil {
		return err
	}
	option.DisableCache = true
	w.counter.watch(&option)
	redis, err := rueidis.NewClient(option)
	if err != nil {
		return fmt.Errorf("connect: %w", err)
	}
	defer redis.Close()
	w.shop = &shop{load: w.job.load, redis: redis, tag: w.job.Tag, shelves: spec.shelves, repair: w.job.Repair}
	if w.job.DieAt > 0 {
		w.shop.halfway = w.dieAt(int64(w.job.DieAt))
	}
	strategy, err := spec.make(w)
	if err != nil {
		return err
	}
	if closer, ok := strategy.(interface{ close() }); ok {
		defer closer.close()
	}

	w.tell(message{Ready: true})
	input := bufio.NewReader(os.Stdin)
	if _, err := input.ReadString('\n'); err != nil {
		return fmt.Errorf("wait for the start: %w", err)
	}
	go func() { // ends with the process: so does the process, when its parent dies
		_, _ = input.ReadString('\n')
		os.Exit(2)
	}()
	before := w.counter.sent.Load()
	r := w.serve(ctx, strategy)
	r.Commands = w.counter.sent.Load() - before
	r.Repaired = int(w.shop.repaired.Load())
	w.tell(message{Result: &r})
	return nil
}

// serve lets the goroutines serve all clicks of this process.
func (w *worker) serve(ctx context.Context, s strategy) result {
	clicks := w.job.clicksOf(w.job.Process)
	w.shop.closing = time.Now().Add(w.job.Limit)
	var next, served atomic.Int64
	var mu sync.Mutex
	var r result

	done := make(chan struct{})
	var others sync.WaitGroup // browsers and the progress, until done is closed
	if w.job.Progress {
		others.Go(func() { w.report(done, &served) })
	}
	if b, ok := s.(browser); ok {
		for range w.job.Browsers {
			others.Go(func() {
				book := &notebook{}
				err := b.browse(ctx, done, book)
				mu.Lock()
				defer mu.Unlock()
				r.add(book, err)
			})
		}
	}

	var buyers sync.WaitGroup
	for g := range w.job.Goroutines {
		buyers.Go(func() {
			book := &notebook{worker: w.job.Process*w.job.Goroutines + g}
			var failure error
			for {
				i := int(next.Add(1)) - 1
				if i >= len(clicks) || w.shop.patience() == 0 {
					break
				}
				outcome, err := s.serve(ctx, clicks[i], book)
				switch {
				case err != nil:
					failure = errors.Join(failure, err)
				case outcome == turnedAway:
					continue // and find the door closed
				case outcome == bought:
					w.lastSale.Store(time.Now().UnixNano())
				}
				served.Add(1)
			}
			mu.Lock()
			defer mu.Unlock()
			r.add(book, failure)
		})
	}
	buyers.Wait()
	close(done)
	others.Wait()

	r.LastSale = time.Unix(0, w.lastSale.Load())
	r.Turned = len(clicks) - int(served.Load())
	return r
}

// add takes over what a goroutine has written down.
func (r *result) add(book *notebook, err error) {
	r.Entries = append(r.Entries, book.entries...)
	r.Stolen += book.stolen
	r.Conflicts += book.conflicts
	r.Views += book.views
	r.Torn += book.torn
	if err != nil {
		r.Failed++
		r.Failure = err.Error()
	}
}

// dieAt returns the hook that stops in the middle of the nth sale and waits
// for the end of the process. Its lock is held and renewed until then.
func (w *worker) dieAt(n int64) func(shelf int) {
	return func(shelf int) {
		if w.sales.Add(1) == n {
			w.tell(message{Inside: &inside{Shelf: shelf, Commands: w.counter.sent.Load()}})
			select {}
		}
	}
}

// report tells from time to time how far this process is.
func (w *worker) report(done <-chan struct{}, served *atomic.Int64) {
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-done:
			return
		case <-tick.C:
			w.tell(message{Served: int(served.Load())})
		}
	}
}

func (w *worker) tell(m message) {
	line, err := json.Marshal(m)
	if err != nil {
		panic(err) // plain structs always encode
	}
	w.out.Lock()
	defer w.out.Unlock()
	// A parent that is gone can't be told anything, and standard input ends too.
	_, _ = os.Stdout.Write(append(line, '\n'))
}
