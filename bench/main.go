package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// bench is one run: what was asked for, and the servers that it has started.
type bench struct {
	rounds   int
	holdRuns int // rounds of the workload holding, each of which takes most of a lease
	duration time.Duration
	lease    time.Duration
	warmUp   time.Duration
	profile  string
	progress io.Writer
	started  []*testbed.Server
}

func main() {
	if os.Getenv(childVariable) != "" {
		os.Exit(childMain(os.Stdin, os.Stdout))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if errors.Is(err, flag.ErrHelp) {
		os.Exit(2)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	var (
		rounds     = flags.Int("rounds", 5, "measure each contender this `often`; the tables show medians")
		holdRounds = flags.Int("hold-rounds", 1, "the same for the row of held locks, which takes most of a lease each time")
		duration   = flags.Duration("duration", time.Second, "how long to count in each round")
		lease      = flags.Duration("lease", 30*time.Second, "lease of every lock; watchdogs renew at a third of it")
		holds      = flags.Int("holds", 100_000, "`number` of locks in the row of held locks")
		only       = flags.String("only", "", "rows whose name matches this `regexp`")
		which      = flags.String("contenders", "", "contenders whose name matches this `regexp`")
		list       = flags.Bool("list", false, "print the rows and the contenders, measure nothing")
		markdown   = flags.Bool("markdown", false, "print Markdown tables")
		jsonFile   = flags.String("json", "", "write every round's figures to this `file` as well")
		profile    = flags.String("cpuprofile", "", "write a CPU profile of each process to files whose names begin with this `prefix`")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *rounds < 1 || *holdRounds < 1 || *duration <= 0 || *lease < time.Second || *holds < 1 {
		return errors.New("-rounds, -hold-rounds, -duration and -holds must be positive, -lease at least a second")
	}
	rowPattern, err := pattern(*only)
	if err != nil {
		return err
	}
	contenderPattern, err := pattern(*which)
	if err != nil {
		return err
	}
	all := rows(scale{holds: *holds, queues: []int{10, 1_000, 10_000}, readers: []int{1, 100, 1_000}})
	if *list {
		return printList(out, all)
	}

	b := &bench{
		rounds: *rounds, holdRuns: *holdRounds, duration: *duration, lease: *lease, warmUp: 250 * time.Millisecond,
		profile: *profile, progress: progress,
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	m, err := b.machine(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(out, m)
	var outcomes []outcome
	byName := map[string]outcome{}
	failures := 0
	for _, r := range all {
		if rowPattern != nil && !rowPattern.MatchString(r.name) {
			continue
		}
		o, err := b.row(ctx, r, contenderPattern)
		if err != nil {
			return err
		}
		if len(o.entries) == 0 {
			continue
		}
		o.earlier = byName
		o.write(out, *markdown)
		byName[r.name] = o
		outcomes = append(outcomes, o)
		failures += len(o.failed)
	}
	if len(outcomes) == 0 {
		return errors.New("no row has that name and those contenders; see -list")
	}
	if *jsonFile != "" {
		if err := saveJSON(*jsonFile, m, outcomes); err != nil {
			return err
		}
	}
	if failures > 0 {
		return fmt.Errorf("%d measurements failed", failures)
	}
	return nil
}

func pattern(s string) (*regexp.Regexp, error) {
	if s == "" {
		return nil, nil
	}
	return regexp.Compile(s)
}

func saveJSON(name string, m machine, outcomes []outcome) error {
	f, err := os.Create(name)
	if err != nil {
		return err
	}
	return errors.Join(writeJSON(f, m, outcomes), f.Close())
}

func printList(out io.Writer, all []row) error {
	fmt.Fprintln(out, "Rows:")
	seen := map[string]bool{}
	var entries []entry
	for _, r := range all {
		fmt.Fprintf(out, "  %-18s %s\n", r.name, r.title)
		list, err := chosen(r, nil)
		if err != nil {
			return err
		}
		for _, e := range list {
			if !seen[e.name] {
				seen[e.name] = true
				entries = append(entries, e)
			}
		}
	}
	fmt.Fprintln(out, "Contenders:")
	for _, e := range entries {
		fmt.Fprintf(out, "  %-18s %s\n", e.name, e.what)
	}
	return nil
}

// row measures all contenders of a row, in turns. A contender that fails is left out from then on and reported.
func (b *bench) row(ctx context.Context, r row, which *regexp.Regexp) (outcome, error) {
	entries, err := chosen(r, which)
	if err != nil {
		return outcome{}, err
	}
	o := outcome{row: r, entries: entries, rounds: map[string][]figures{}, failed: map[string]error{}}
	rounds := b.rounds
	if r.spec.Workload == holding {
		rounds = b.holdRuns
	}
	for round := range rounds {
		for i := range entries {
			// Another one begins each time, so that none always comes after the same neighbour.
			e := entries[(i+round)%len(entries)]
			if o.failed[e.name] != nil {
				continue
			}
			fmt.Fprintf(b.progress, "%s, round %d of %d: %s\n", r.name, round+1, rounds, e.name)
			f, err := b.measure(ctx, r, e, round)
			if ctx.Err() != nil {
				return o, ctx.Err()
			}
			if err != nil {
				o.failed[e.name] = err
				continue
			}
			o.rounds[e.name] = append(o.rounds[e.name], f)
		}
	}
	return o, nil
}

// window is how long a measurement counts.
func (b *bench) window(r row) time.Duration {
	switch r.spec.Workload {
	case handover:
		return 2 * b.duration // one hand-over at a time takes more of it for a tail that means something
	case holding:
		return 2 * b.lease / 3 // two renewals of each hold
	default:
		return b.duration
	}
}

// servers returns the addresses of n private servers, which live until stop.
func (b *bench) servers(ctx context.Context, n int) ([]string, error) {
	for len(b.started) < n {
		// So many connections as the rows need are not allowed everywhere by default.
		s, err := testbed.Start(ctx, "--maxclients", "10000")
		if err != nil {
			return nil, err
		}
		b.started = append(b.started, s)
	}
	addrs := make([]string, n)
	for i := range addrs {
		addrs[i] = b.started[i].Addr()
	}
	return addrs, nil
}

func (b *bench) stop() error {
	var errs []error
	for _, s := range b.started {
		errs = append(errs, s.Stop())
	}
	return errors.Join(errs...)
}

func (b *bench) machine(ctx context.Context) (machine, error) {
	addrs, err := b.servers(ctx, 1)
	if err != nil {
		return machine{}, err
	}
	a, err := newAdmin(addrs)
	if err != nil {
		return machine{}, err
	}
	defer a.close()
	version, err := a.version(ctx)
	if err != nil {
		return machine{}, err
	}
	return thisMachine(version), nil
}
