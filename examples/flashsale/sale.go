package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
)

// killLease is the lease of -kill: nobody wants to wait for half a minute.
const killLease = 2 * time.Second

// sale is one run of one strategy, as the parent sees it.
type sale struct {
	load
	strategy strategy
	server   *demoserver.Server
	kill     bool
}

// row is what came out of a sale.
type row struct {
	strategy
	stock  int // what there was to sell
	sold   int // orders, all users together
	left   int // what the shop believes to have in stock
	twice  int // users with more than one order
	seen   result
	took   time.Duration // from the start to the last order
	lasted time.Duration // from the start until all were served
	crash  *crash        // with kill
}

// crash is a worker's death in the middle of a sale.
type crash struct {
	pid   int
	at    time.Time
	shelf int
}

// run opens the shop, lets the workers sell, and looks through the books.
func (s sale) run(ctx context.Context) (_ row, err error) {
	client, err := s.server.Client()
	if err != nil {
		return row{}, err
	}
	defer client.Close()
	// A tag for each strategy, so that none finds what another has left.
	tag := s.server.Tag + ":" + s.strategy.name
	books := &shop{load: s.load, redis: client, tag: tag, shelves: s.strategy.shelves}
	defer func() { // also when ctx has ended: the server may be somebody else's
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		err = errors.Join(err, books.close(ctx))
	}()
	if err := books.open(ctx); err != nil {
		return row{}, err
	}
	r, err := s.sell(ctx, tag)
	if err == nil {
		err = books.audit(ctx, &r)
	}
	return r, err
}

// sell starts the workers, all at the same moment, and waits for them.
func (s sale) sell(ctx context.Context, tag string) (row, error) {
	program := &testbed.Program{}
	defer program.Close() // ends what is left of the workers
	spawn := func(nr int, dies bool) *testbed.Process {
		return testbed.Spawn(program, "worker", job{
			load: s.load, URL: s.server.URL, Tag: tag, Strategy: s.strategy.name, Process: nr, Kill: s.kill, Dies: dies,
		})
	}
	workers := make([]*testbed.Process, s.Processes)
	for nr := range workers {
		workers[nr] = spawn(nr, s.kill && nr == 0)
	}
	for _, p := range workers {
		if line, err := next(ctx, p); err != nil || line != "ready" {
			return row{}, fmt.Errorf("a worker is not ready: %q, %w", line, err)
		}
	}

	started := time.Now()
	r := row{strategy: s.strategy, stock: s.Stock}
	var mu sync.Mutex // guards r
	team, ctx := errgroup.WithContext(ctx)
	for nr, p := range workers {
		p.Send(program, "start")
		team.Go(func() error {
			var shelf int
			var sent int64
			line, err := next(ctx, p)
			// One that stands in the middle of a sale is killed, and replaced as a
			// supervisor would do: the new process serves the same buyers again, also
			// those who have an order.
			if n, _ := fmt.Sscanf(line, "inside %d %d", &shelf, &sent); n == 2 {
				p.Kill(program)
				mu.Lock()
				r.crash = &crash{pid: p.Pid(), at: time.Now(), shelf: shelf}
				r.seen.Commands += sent
				mu.Unlock()
				p = spawn(nr, false)
				p.Send(program, "start")
				if _, err = next(ctx, p); err == nil { // "ready"
					line, err = next(ctx, p)
				}
			}
			if err != nil {
				return err
			}
			var seen result
			err = json.Unmarshal([]byte(strings.TrimPrefix(line, "result ")), &seen)
			mu.Lock()
			defer mu.Unlock()
			r.seen.add(seen)
			return err
		})
	}
	err := team.Wait()
	r.took, r.lasted = r.seen.LastSale.Sub(started), time.Since(started)
	return r, err
}

// next waits for what a worker says next.
func next(ctx context.Context, p *testbed.Process) (string, error) {
	select {
	case line, ok := <-p.Lines():
		if ok {
			return line, nil
		}
		<-p.Done()
		return "", cmp.Or(context.Cause(ctx), fmt.Errorf("a worker ended too early: %s", p.Stderr()))
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// stall says how long it took until somebody else entered the shelf of a dead worker,
// and put its sale right.
func (r row) stall() (d time.Duration, resumed bool) {
	for _, p := range r.seen.Repairs {
		if after := p.At.Sub(r.crash.at); p.Shelf == r.crash.shelf && (!resumed || after < d) {
			d, resumed = after, true
		}
	}
	return d, resumed
}
