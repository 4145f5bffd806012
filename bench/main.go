package main

import (
	"bufio"
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"runtime/debug"
	"strings"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

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

// Whom the flag -peers names.
const (
	peersNone = "none"
	peersGo   = "go"
	peersAll  = "all"
)

func run(ctx context.Context, args []string, out, progress io.Writer) (err error) {
	flags := flag.NewFlagSet("bench", flag.ContinueOnError)
	flags.SetOutput(progress)
	var (
		rounds   = flags.Int("rounds", 6, "measure each contender this `often`; benchstat wants 6 for a range")
		duration = flags.Duration("duration", time.Second, "how long to count in each round; some rows count several times as long")
		only     = flags.String("only", "", "rows whose name matches this `regexp`")
		which    = flags.String("contenders", "", "contenders whose name matches this `regexp`")
		peerSet  = flags.String("peers", peersGo, "`whom` to measure beside: go (libraries for Go on Redis), all (Redisson, etcd, ZooKeeper and MariaDB as well) or none")
		against  = flags.String("against", "", "measure redlatch's contenders also with the redlatch of the checkout in this `folder`, as neighbours in each round")
		profiles = flags.String("cpuprofile", "", "write a CPU profile of each process into this `folder`")
		list     = flags.Bool("list", false, "print the rows and the contenders, measure nothing")
	)
	if err := flags.Parse(args); err != nil {
		return err
	}
	rowPattern, err := regexp.Compile(*only)
	if err != nil {
		return err
	}
	b, err := newBench()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, b.stop()) }()
	b.rounds, b.duration, b.profiles = *rounds, *duration, *profiles
	if b.take.pattern, err = regexp.Compile(*which); err != nil {
		return err
	}
	switch {
	case flags.NArg() > 0:
		return fmt.Errorf("unexpected argument %q", flags.Arg(0))
	case *rounds < 1 || *duration <= 0:
		return errors.New("-rounds and -duration must be positive")
	case *peerSet == peersNone:
		b.take.alone = true
	case *peerSet == peersAll:
		if b.take.systems, err = findSystems(ctx, progress); err != nil {
			return err
		}
	case *peerSet != peersGo:
		return fmt.Errorf("-peers is %s, %s or %s", peersNone, peersGo, peersAll)
	}
	if *list {
		printList(out)
		return nil
	}
	if *against != "" {
		fmt.Fprintln(progress, "building with the redlatch of", *against)
		if b.take.against, err = buildAgainst(ctx, *against, b.dir); err != nil {
			return err
		}
	}
	if err := b.header(ctx, out); err != nil {
		return err
	}
	return b.all(ctx, rowPattern, out, progress)
}

// all measures the rows of that name.
func (b *bench) all(ctx context.Context, names *regexp.Regexp, out, progress io.Writer) error {
	var failures []error
	measured := 0
	for _, r := range rows(fullScale) {
		if !names.MatchString(r.name) {
			continue
		}
		entries, err := b.take.chosen(r)
		if err != nil {
			return err
		}
		measured += len(entries)
		failed := b.row(ctx, r, entries,
			func(e entry, f figures) { fmt.Fprintln(out, f.line(r, e)) },
			func(line string) { fmt.Fprintln(progress, line) })
		if ctx.Err() != nil {
			return ctx.Err()
		}
		for name, err := range failed {
			failures = append(failures, fmt.Errorf("%s: %s failed: %w", r.name, name, err))
		}
	}
	if measured == 0 {
		return errors.New("no row has that name and those contenders; see -list")
	}
	return errors.Join(failures...)
}

func printList(out io.Writer) {
	fmt.Fprintln(out, "Rows:")
	for _, r := range rows(fullScale) {
		fmt.Fprintf(out, "  %-20s %s\n", r.name, r.title)
	}
	fmt.Fprintln(out, "Contenders:")
	for _, e := range contenders() {
		fmt.Fprintf(out, "  %-20s %s\n", e.name, e.what)
	}
}

// header says where the figures come from: they compare within one run, not between machines.
func (b *bench) header(ctx context.Context, out io.Writer) error {
	at, err := b.place(ctx, row{}, entry{})
	if err != nil {
		return err
	}
	defer at.close()
	info, err := at.admin.client().Do(ctx, at.admin.client().B().Info().Section("server").Build()).ToString()
	if err != nil {
		return err
	}
	server := "redis " + field(info, "redis_version")
	if v := field(info, "valkey_version"); v != "" {
		server = "valkey " + v
	}
	cpuinfo, _ := os.ReadFile("/proc/cpuinfo") // only Linux has it; elsewhere the model stays unknown
	fmt.Fprintf(out, "goos: %s\ngoarch: %s\ncpu: %s\ncores: %d\ngo: %s\nserver: %s\n", runtime.GOOS, runtime.GOARCH,
		cmp.Or(field(string(cpuinfo), "model name"), "unknown"), runtime.NumCPU(), runtime.Version(), server)
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, name := range []string{"rueidis", "redsync", "redislock", "go-redis"} {
			for _, dep := range build.Deps {
				if strings.Contains(dep.Path, "/"+name) {
					fmt.Fprintf(out, "%s: %s\n", name, dep.Version)
					break
				}
			}
		}
	}
	return nil
}

// field is the value of the first line "name: value".
func field(text, name string) string {
	for lines := bufio.NewScanner(strings.NewReader(text)); lines.Scan(); {
		if key, value, _ := strings.Cut(lines.Text(), ":"); strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
