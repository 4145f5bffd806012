package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
	"github.com/redlatch/redlatch/internal/testbed"
)

// bench is one run: what was asked for, and the servers that it has started.
type bench struct {
	rounds   int
	duration time.Duration
	lease    time.Duration
	warmUp   time.Duration
	profiles string // a folder; "": none
	take     selection
	dir      string // of its files, until stop
	started  []*testbed.Server
	foreign  map[*foreign]*running
}

// defaultLease is every lock's; watchdogs renew at a third of it.
const defaultLease = 30 * time.Second

func newBench() (*bench, error) {
	dir, err := os.MkdirTemp("", "redlatch-bench-")
	return &bench{lease: defaultLease, warmUp: 250 * time.Millisecond, dir: dir, foreign: map[*foreign]*running{}}, err
}

func (b *bench) stop() error {
	var errs []error
	for _, s := range b.started {
		errs = append(errs, s.Stop())
	}
	for _, r := range b.foreign {
		errs = append(errs, r.stop())
	}
	return errors.Join(append(errs, os.RemoveAll(b.dir))...)
}

// row measures all contenders of a row, in turns, and shows each round. A contender that fails is left out from then
// on; the errors are by contender.
func (b *bench) row(ctx context.Context, r row, entries []entry, show func(entry, figures), progress func(string)) map[string]error {
	failed := map[string]error{}
	for round := range b.rounds {
		for i := range entries {
			e := entries[turn(i, round, len(entries))]
			if failed[e.String()] != nil || ctx.Err() != nil {
				continue
			}
			progress(fmt.Sprintf("%s, round %d of %d: %s", r.name, round+1, b.rounds, e))
			f, err := b.measure(ctx, r, e, round)
			if err != nil {
				failed[e.String()] = err
				continue
			}
			show(e, f)
		}
	}
	return failed
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
	if r.spec.Workload == work.Holding {
		return 2 * b.lease / 3 // two renewals of each hold
	}
	return time.Duration(max(r.windows, 1)) * b.duration
}

// measure runs one round of one contender.
func (b *bench) measure(ctx context.Context, r row, e entry, round int) (figures, error) {
	at, err := b.place(ctx, r, e)
	if err != nil {
		return figures{}, err
	}
	defer at.close()
	s := r.spec
	s.Contender, s.Addrs, s.Key, s.Lease, s.WarmUp = e.name, at.addrs, at.key, b.lease, max(b.warmUp, e.warm(r.processes))
	s.Board = filepath.Join(b.dir, "board")
	if err := os.WriteFile(s.Board, make([]byte, work.BoardSize), 0o600); err != nil {
		return figures{}, err
	}
	specs := r.specs(s)
	if b.profiles != "" {
		for i := range specs {
			name := fmt.Sprintf("%s-%s-%d.%d.pprof", r.name, e, round, i)
			specs[i].Profile = filepath.Join(b.profiles, strings.NewReplacer("/", "-", "=", "-").Replace(name))
		}
	}
	if e.prepare != nil {
		if err := e.prepare(ctx, at.admin, s.Key); err != nil {
			return figures{}, err
		}
	}
	// The processes have a time limit, so that a contender that hangs ends its round and not the run.
	limit := b.window(r) + 2*time.Minute
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	var f figures
	ps, err := startAll(ctx, e.program, specs)
	if err == nil {
		f, err = b.observe(ctx, at, r, e, ps)
		// A process that failed has said why already; that it also exits with a status adds nothing.
		if stopped := stopAll(ps); err == nil {
			err = stopped
		}
	}
	if err != nil && ctx.Err() != nil {
		err = errors.Join(err, fmt.Errorf("within %v: %w", limit, ctx.Err()))
	}
	return f, err
}

// A place is the servers of one measurement, ready for it.
type place struct {
	addrs []string
	key   string
	admin *admin // of Redis; nil elsewhere
	usage func(context.Context) (usage, error)
	close func()
}

// place prepares the servers that the contender needs.
func (b *bench) place(ctx context.Context, r row, e entry) (*place, error) {
	if e.server != nil {
		return b.foreignPlace(ctx, e.server)
	}
	var addrs []string
	for i := range max(r.servers, 1) {
		if i == len(b.started) {
			// So many connections as the rows need are not allowed everywhere by default.
			s, err := testbed.Start(ctx, "--maxclients", "10000")
			if err != nil {
				return nil, err
			}
			b.started = append(b.started, s)
		}
		addrs = append(addrs, b.started[i].Addr())
	}
	a, err := newAdmin(addrs)
	if err != nil {
		return nil, err
	}
	if err := a.empty(ctx); err != nil {
		a.close()
		return nil, err
	}
	return &place{addrs: addrs, key: "bench", admin: a, usage: a.usage, close: a.close}, nil
}

// observe lets the processes count for the row's window and works out the figures.
func (b *bench) observe(ctx context.Context, at *place, r row, e entry, ps []*process) (figures, error) {
	before, err := at.usage(ctx)
	if err != nil {
		return figures{}, err
	}
	start := time.Now()
	if err := tellAll(ps, "go"); err != nil {
		return figures{}, err
	}
	select {
	case <-ctx.Done():
		return figures{}, ctx.Err()
	case <-time.After(b.window(r)):
	}
	if err := tellAll(ps, "stop"); err != nil {
		return figures{}, err
	}
	watched := time.Since(start)
	var after usage
	if !r.spec.OwnKeys {
		if after, err = at.usage(ctx); err != nil {
			return figures{}, err
		}
	}
	results, err := resultsOf(ps)
	if err != nil {
		return figures{}, err
	}
	if r.spec.OwnKeys {
		// These have ended their pairs by now, and stood still before: the server's figures are theirs exactly.
		watched = 0
		if after, err = at.usage(ctx); err != nil {
			return figures{}, err
		}
	}
	return figuresOf(r, e, results, after.since(before), watched)
}
