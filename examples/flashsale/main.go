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
// these steps are calls to other services. shop.go has the sale, strategies.go and
// locks.go the ways to protect it:
//
//	none            nothing
//	setnx           SET NX PX and a blind DEL
//	optimistic      WATCH, MULTI, EXEC and retries
//	rlock           a redlatch RLock for the goods
//	rlock-segmented the goods on ten shelves, an RLock for each
//	fair            a FairLock: first come, first served
//	rw              a ReadWriteLock, with people who only look
//	multilock       shelf and user locked together
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
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("worker", work) }

func main() {
	testbed.Main() // does not return in a worker
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	good, err := run(ctx, os.Args[1:], os.Stdout)
	switch stop(); {
	case errors.Is(err, flag.ErrHelp):
	case err != nil:
		fmt.Fprintln(os.Stderr, "flashsale:", err)
		os.Exit(2)
	case !good:
		os.Exit(1)
	}
}

// run runs the demo and reports whether all strategies did as they must.
func run(ctx context.Context, args []string, out io.Writer) (good bool, err error) {
	s := sale{load: load{Think: 200 * time.Microsecond, SlowThink: 40 * time.Millisecond, SlowEvery: 250, Browsers: 8}}
	over := time.Now().Add(spareTime)
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	names := flags.String("strategy", "all", "strategies to run, separated by commas, or all")
	flags.IntVar(&s.Processes, "processes", 4, "operating system processes that sell")
	flags.IntVar(&s.Goroutines, "goroutines", 16, "goroutines in each process")
	flags.IntVar(&s.Stock, "stock", 0, "what there is to sell; 0: up to 5,000, as much as this server sells within a minute in all")
	flags.Uint64Var(&s.Seed, "seed", 1, "for the order in which the buyers come")
	flags.DurationVar(&s.Limit, "limit", 30*time.Second, "with -stock: let no buyer in after this time, for each strategy")
	sales := flags.Duration("for", 40*time.Second, "without -stock: what the sales may take together, as far as can be told before")
	kill := flags.Bool("kill", false, "kill a process in the middle of a sale")
	redis := flags.String("redis", demoserver.Auto, "URL of a server, private or embedded (default: REDIS_URL, else private, else embedded)")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	chosen, err := find(*names, *kill)
	if err != nil {
		return false, err
	}
	if s.Processes < 1 || s.Goroutines < 1 || s.Stock < 0 {
		return false, errors.New("processes and goroutines must be positive, stock not negative")
	}

	if s.server, err = demoserver.Start(ctx, "flashsale", *redis); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, s.server.Stop()) }()
	fmt.Fprintf(out, "Redis: %s.\n", s.server.About)
	if s.server.Embedded {
		s.Browsers = 2
	}
	most := s.Limit
	limit := func(int) time.Duration { return most }
	if s.Stock == 0 {
		fmt.Fprintln(out, "Measuring how fast it is ...")
		day := schedule{over: over.Add(*sales)}
		if *kill {
			day.extra = killLease + time.Second
		}
		if s.Stock, err = day.plan(ctx, s, chosen, *sales); err != nil {
			return false, err
		}
		limit = day.limit
	}
	text.Fprintf(out, "%d to sell, %d buyers with %d clicks, %d processes with %d goroutines each, seed %d.\n\n",
		s.Stock, s.buyers(), len(s.clicks()), s.Processes, s.Goroutines, s.Seed)

	printHead(out)
	s.kill, good = *kill, true
	for i, strategy := range chosen {
		s.strategy, s.Limit = strategy, limit(i)
		r, err := s.run(ctx)
		if err != nil {
			return false, fmt.Errorf("%s: %w", strategy.name, err)
		}
		printRow(out, r)
		lucky := r.name == "none" && r.good()
		if lucky {
			fmt.Fprintln(out, "Without any lock nothing went wrong: this load is too small to show anything. Take more goroutines or processes.")
		}
		good = good && !lucky && (r.good() || !r.exact)
	}
	fmt.Fprint(out, legend)
	return good, nil
}
