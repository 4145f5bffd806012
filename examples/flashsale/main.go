// Flashsale sells 5,000 things to too many buyers at once, in several ways, and
// shows what each way is worth:
//
//	go run ./examples/flashsale
//	go run ./examples/flashsale -strategy rlock,fair -processes 8
//	go run ./examples/flashsale -kill
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
// depend on the machine's mood more than those of none; they are shown, not
// asked for.) It is 2 when the demo could not be run.
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

// run runs the demo and reports whether all strategies did as they must.
func run(ctx context.Context, args []string, out *os.File) (good bool, err error) {
	l := load{Think: 200 * time.Microsecond}
	flags := flag.NewFlagSet("flashsale", flag.ContinueOnError)
	names := flags.String("strategy", "all", "strategies to run, separated by commas, or all")
	flags.IntVar(&l.Processes, "processes", 4, "operating system processes that sell")
	flags.IntVar(&l.Goroutines, "goroutines", 16, "goroutines in each process")
	flags.IntVar(&l.Buyers, "buyers", 6000, "buyers; some of them click twice or more")
	flags.IntVar(&l.Stock, "stock", 5000, "what there is to sell")
	flags.Uint64Var(&l.Seed, "seed", 1, "for the order in which the buyers come")
	flags.DurationVar(&l.SlowThink, "slow", 40*time.Millisecond, "how long a slow sale takes")
	flags.IntVar(&l.SlowEvery, "slow-every", 250, "one sale in so many is slow; 0: none")
	flags.DurationVar(&l.Limit, "limit", 30*time.Second, "let no buyer in after this time, for each strategy")
	kill := flags.Bool("kill", false, "kill a process in the middle of a sale")
	redis := flags.String("redis", demoserver.Auto, "URL of a server, private or embedded (default: REDIS_URL, else private, else embedded)")
	if err := flags.Parse(args); err != nil {
		return false, err
	}
	specs, err := find(*names, *kill)
	if err != nil {
		return false, err
	}
	if l.Processes < 1 || l.Goroutines < 1 || l.Buyers < 1 || l.Stock < 1 {
		return false, errors.New("processes, goroutines, buyers and stock must be positive")
	}

	server, err := demoserver.Start(ctx, "flashsale", *redis)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Fprintf(out, "Redis: %s.\n", server.About)
	fmt.Fprintf(out, "%s to sell, %s buyers with %s clicks, %d processes with %d goroutines each, seed %d.\n\n",
		thousands(l.Stock), thousands(l.Buyers), thousands(len(l.clicks())), l.Processes, l.Goroutines, l.Seed)
	printHead(out)

	good = true
	var rows []outline
	for _, spec := range specs {
		s := &sale{load: l, spec: spec, server: server, kill: *kill}
		if isTerminal(out) {
			s.progress = func(served int) { showProgress(out, spec.name, served, len(l.clicks())) }
		}
		row, err := s.run(ctx)
		if s.progress != nil {
			clearProgress(out)
		}
		if ctx.Err() != nil {
			return false, errors.New("interrupted")
		}
		if err != nil {
			return false, fmt.Errorf("%s: %w", spec.name, err)
		}
		rows = append(rows, row)
		printRow(out, l, row)
		if spec.exact && !row.good() {
			good = false
		}
	}
	printFairness(out, l, rows)
	return explain(out, rows, *kill) && good, nil
}

// explain says what the table means, and reports whether none failed, if it
// was run.
func explain(w io.Writer, rows []outline, kill bool) bool {
	fmt.Fprintln(w, "\nsold + left must be what there was; twice: users with more than one order; cmds/ord: commands sent to Redis per order.")
	if kill {
		fmt.Fprintln(w, "The order is the truth and is written last: who comes after a dead process corrects a stock that does not fit the orders.")
	}
	if none, ok := rowOf(rows, "none"); ok && none.audit.Exact() {
		fmt.Fprintln(w, "Without any lock nothing went wrong: this load is too small to show anything. Take more buyers, goroutines or processes.")
		return false
	}
	return true
}
