// Flashsale sells a limited stock to too many buyers at once, with several locking
// strategies, and compares them:
//
//	go run ./examples/flashsale
//	go run ./examples/flashsale -strategy rlock,fair -processes 8
//	go run ./examples/flashsale -kill
//
// Without -stock it first measures for some seconds how fast the server is, and
// chooses a stock that sells out in less than a minute.
//
// Several processes with many goroutines each serve the buyers, some of whom
// click twice or more. A sale reads the stock, checks it, checks that the user
// has no order yet, thinks for a moment, writes the stock back and records the
// order: deliberately not atomic, as such code is in real shops, where some of
// these steps are calls to other services. See shop.go for the sale and
// strategies.go for the ways to protect it:
//
//	none            nothing
//	setnx           SET NX PX and a blind DEL
//	optimistic      WATCH, MULTI, EXEC and retries
//	rlock           a redlatch RLock for the goods
//	rlock-segmented the goods on ten shelves, an RLock for each
//	fair            a FairLock: first come, first served
//	rw              a ReadWriteLock, with people who only look
//	multilock       shelf, user and coupon locked together
//
// With -kill a process is killed in the middle of a sale, in each strategy that
// promises to stay exact.
//
// The exit status is 0 when all strategies that promise to keep stock and
// orders exact have kept them so, and 1 when one has not. It is also 1 when
// none, without any lock, stayed exact by chance: then the load was too small
// to show anything, and the rows below prove nothing. (The faults of setnx
// depend on timing more than those of none; they are shown, but not required.)
// It is 2 when the demo could not be run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"time"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

func main() {
	if encoded, ok := os.LookupEnv(jobVariable); ok {
		os.Exit(workerMain(encoded))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	good, err := run(ctx, os.Args[1:], os.Stdout)
	stop()
	switch {
	case errors.Is(err, flag.ErrHelp):
		os.Exit(0)
	case err != nil:
		fmt.Fprintln(os.Stderr, "flashsale:", err)
		os.Exit(2)
	case !good:
		os.Exit(1)
	}
}

// demo is one run of it, as the parent sees it.
type demo struct {
	server   *demoserver.Server
	kill     bool
	began    time.Time
	sales    time.Duration // for a sized sale
	progress *progress
	out      io.Writer
}

// run runs the demo and reports whether all strategies did as they must.
func run(ctx context.Context, args []string, out io.Writer) (good bool, err error) {
	l := load{Think: 200 * time.Microsecond}
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	names := flags.String("strategy", "all", "strategies to run, separated by commas, or all")
	flags.IntVar(&l.Processes, "processes", 4, "operating system processes that sell")
	flags.IntVar(&l.Goroutines, "goroutines", 16, "goroutines in each process")
	flags.IntVar(&l.Browsers, "browsers", 0, "people in each process who only look, in the sale of rw; 0: 8, or 2 on the embedded server")
	flags.IntVar(&l.Stock, "stock", 0, "what there is to sell; 0: up to 5,000, as much as this server sells within a minute in all")
	flags.IntVar(&l.Buyers, "buyers", 0, "buyers, some of whom click twice or more; 0: six for every five things")
	flags.Uint64Var(&l.Seed, "seed", 1, "for the order in which the buyers come")
	flags.DurationVar(&l.SlowThink, "slow", 40*time.Millisecond, "how long a slow sale takes")
	flags.IntVar(&l.SlowEvery, "slow-every", 250, "one sale in so many is slow; 0: none")
	flags.DurationVar(&l.Limit, "limit", 30*time.Second, "with -stock: let no buyer in after this time, for each strategy")
	sales := flags.Duration("for", salesTime, "without -stock: what the sales may take together, as far as can be told before")
	kill := flags.Bool("kill", false, "kill a process in the middle of a sale")
	redis := flags.String("redis", demoserver.Auto, "URL of a server, private or embedded (default: REDIS_URL, else private, else embedded)")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	specs, err := find(*names, *kill)
	if err != nil {
		return false, err
	}
	if l.Processes < 1 || l.Goroutines < 1 || l.Buyers < 0 || l.Stock < 0 || l.Browsers < 0 {
		return false, errors.New("processes and goroutines must be positive, buyers, stock and browsers not negative")
	}
	if l.Buyers > 0 && l.Stock == 0 {
		return false, errors.New("-buyers needs -stock")
	}

	d := &demo{kill: *kill, sales: *sales, began: time.Now(), progress: newProgress(os.Stderr), out: out}
	if d.server, err = demoserver.Start(ctx, "flashsale", *redis); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, d.server.Stop()) }()
	fmt.Fprintf(out, "Redis: %s.\n", d.server.About)
	if l.Browsers == 0 {
		l.Browsers = 8
		if d.server.Embedded {
			l.Browsers = 2
		}
	}
	good, err = d.compare(ctx, l, specs)
	if ctx.Err() != nil {
		d.progress.clear()
		return false, errors.New("interrupted")
	}
	return good, err
}

// compare runs the strategies one after the other.
func (d *demo) compare(ctx context.Context, l load, specs []spec) (bool, error) {
	var day *schedule
	switch {
	case l.Stock == 0:
		var err error
		if day, err = size(ctx, &l, specs, d); err != nil {
			return false, err
		}
		d.progress.clear()
	case l.Buyers == 0:
		l.Buyers = buyersFor(l.Stock)
	}
	clicks := len(l.clicks())
	fmt.Fprintf(d.out, "%s to sell, %s buyers with %s clicks, %d processes with %d goroutines each, seed %d.\n\n",
		thousands(l.Stock), thousands(l.Buyers), thousands(clicks), l.Processes, l.Goroutines, l.Seed)
	printHead(d.out)

	good := true
	var rows []outline
	for i, spec := range specs {
		if day != nil {
			l.Limit = day.limit(i)
		}
		s := &sale{load: l, spec: spec, server: d.server, kill: d.kill, progress: func(served int) {
			d.progress.say("%s: %s of %s clicks served", spec.name, thousands(served), thousands(clicks))
		}}
		d.progress.say("%s: opening", spec.name)
		row, err := s.run(ctx)
		d.progress.clear()
		if err != nil {
			return false, fmt.Errorf("%s: %w", spec.name, err)
		}
		rows = append(rows, row)
		printRow(d.out, l, row)
		good = good && (row.good() || !spec.exact)
	}
	printFairness(d.out, l, rows)
	printLegend(d.out, d.kill)
	return conclude(d.out, l, rows) && good, nil
}
