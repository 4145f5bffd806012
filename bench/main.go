package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"slices"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
	"github.com/redlatch/redlatch/internal/testbed"
)

// bench is one run: what was asked for, and the servers that it has started.
type bench struct {
	rounds   int
	holdRuns int // rounds of the workload holding, each of which takes most of a lease
	duration time.Duration
	lease    time.Duration
	warmUp   time.Duration
	profiles profiles
	progress io.Writer
	take     selection
	started  []*testbed.Server
	foreign  map[*foreign]*running
}

func main() {
	if os.Getenv(work.Variable) != "" {
		os.Exit(work.Main(openContender, os.Stdin, os.Stdout))
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
		holdRounds = flags.Int("hold-rounds", 0, "the same for the row of held locks, which takes most of a lease each time; 0: as -rounds")
		duration   = flags.Duration("duration", time.Second, "how long to count in each round; some rows count several times as long")
		lease      = flags.Duration("lease", 30*time.Second, "lease of every lock; watchdogs renew at a third of it")
		holds      = flags.Int("holds", 100_000, "`number` of locks in the row of held locks")
		only       = flags.String("only", "", "rows whose name matches this `regexp`")
		which      = flags.String("contenders", "", "contenders whose name matches this `regexp`")
		peerSet    = flags.String("peers", "go", "`whom` to measure beside: go (libraries for Go on Redis), all (Redisson, etcd, ZooKeeper and MariaDB as well) or none")
		against    = flags.String("against", "", "measure redlatch's contenders also with the redlatch of the checkout in this `folder`, as neighbours in each round")
		list       = flags.Bool("list", false, "print the rows and the contenders, measure nothing")
		markdown   = flags.Bool("markdown", false, "print Markdown tables")
		jsonFile   = flags.String("json", "", "write every round's figures and the goals to this `file` as well; - for the standard output, the tables then go to the error output")
		turns      = flags.Bool("turns", false, "note each turn where processes compete for one lock, and show in the tables what lies between them")
		prof       profiles
	)
	prof.flags(flags)
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	}
	if *rounds < 1 || *holdRounds < 0 || *duration <= 0 || *lease < time.Second || *holds < 1 {
		return errors.New("-rounds, -duration and -holds must be positive, -hold-rounds at least 0, -lease at least a second")
	}
	rowPattern, err := pattern(*only)
	if err != nil {
		return err
	}
	take := selection{}
	if take.pattern, err = pattern(*which); err != nil {
		return err
	}
	if !slices.Contains([]string{peersNone, peersGo, peersAll}, *peerSet) {
		return fmt.Errorf("-peers is %s, %s or %s", peersNone, peersGo, peersAll)
	}
	all := rows(fullScale(*holds))
	if *list {
		return printList(out, all)
	}
	tables := out
	if *jsonFile == "-" {
		tables = progress
	}
	switch *peerSet {
	case peersNone:
		take.alone = true
	case peersAll:
		if take.systems, err = findSystems(ctx, progress); err != nil {
			return err
		}
	default:
		notAsked(tables)
	}
	if *against != "" {
		dir, err := os.MkdirTemp("", "redlatch-bench-")
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
		fmt.Fprintln(progress, "building with the redlatch of", *against)
		if take.against, err = buildAgainst(ctx, *against, dir); err != nil {
			return err
		}
	}

	b := &bench{
		rounds: *rounds, holdRuns: cmp.Or(*holdRounds, *rounds), duration: *duration, lease: *lease, warmUp: 250 * time.Millisecond,
		profiles: prof, progress: progress, take: take,
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	m, err := b.machine(ctx)
	if err != nil {
		return err
	}
	fmt.Fprintln(tables, m)
	var outcomes []outcome
	byName := map[string]outcome{}
	failures := 0
	for _, r := range all {
		if rowPattern != nil && !rowPattern.MatchString(r.name) {
			continue
		}
		if *turns {
			r = withTurns(r)
		}
		o, err := b.row(ctx, r)
		if err != nil {
			return err
		}
		if len(o.entries) == 0 {
			continue
		}
		o.earlier = byName
		o.write(tables, *markdown)
		byName[r.name] = o
		outcomes = append(outcomes, o)
		failures += len(o.failed)
	}
	if len(outcomes) == 0 {
		return errors.New("no row has that name and those contenders; see -list")
	}
	writeSummary(tables, outcomes, *markdown)
	switch *jsonFile {
	case "":
	case "-":
		err = writeJSON(out, m, outcomes)
	default:
		err = saveJSON(*jsonFile, m, outcomes)
	}
	if failures > 0 {
		err = errors.Join(err, fmt.Errorf("%d measurements failed", failures))
	}
	return err
}

// Whom the flag -peers names.
const (
	peersNone = "none"
	peersGo   = "go"
	peersAll  = "all"
)

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
	everyone := selection{systems: map[string]bool{}}
	for _, e := range systems {
		everyone.systems[e.name] = true
	}
	var entries []entry
	for _, r := range all {
		fmt.Fprintf(out, "  %-20s %s\n", r.name, r.title)
		list, err := everyone.chosen(r)
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
		fmt.Fprintf(out, "  %-20s %s\n", e.name, e.what)
	}
	return nil
}

// row measures all contenders of a row, in turns. A contender that fails is left out from then on and reported.
func (b *bench) row(ctx context.Context, r row) (outcome, error) {
	entries, err := b.take.chosen(r)
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
			e := entries[turn(i, round, len(entries))]
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

// turn is whose turn is the i-th of a round among n. Another one begins each time, and every other round goes
// backwards, so that none always comes after the same neighbour.
func turn(i, round, n int) int {
	if round%2 == 1 {
		i = n - 1 - i
	}
	return (i + round) % n
}

// window is how long a measurement counts.
func (b *bench) window(r row) time.Duration {
	if r.spec.Workload == holding {
		return 2 * b.lease / 3 // two renewals of each hold
	}
	return time.Duration(max(r.windows, 1)) * b.duration
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
	for _, r := range b.foreign {
		errs = append(errs, r.stop())
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
