package main

import (
	"context"
	"fmt"
	"regexp"
	"runtime"
	"slices"
	"time"

	"github.com/redlatch/redlatch/bench/internal/work"
)

// The words of package work that stand all over this one.
type (
	contender = work.Contender
	locker    = work.Locker
	hold      = work.Hold
	env       = work.Env
	spec      = work.Spec
	result    = work.Result
)

// role says what a contender is in the comparison.
type role int

const (
	own    role = iota // redlatch, in one of its kinds or arrangements
	peer               // another library for Go on the same server
	system             // something else that people lock with, in another language or on another server
	mark               // no lock for use, a bound: "limit" and "floor"
)

// An entry is a contender by name, with what is needed to run it and to count its commands.
type entry struct {
	name, what string
	role       role
	open       func(env) (contender, error)
	// prepare brings the empty server into the state that the contender starts from, once for all processes.
	prepare func(ctx context.Context, admin *admin, key string) error
	// commands lists what its clients send besides scripts, subscriptions and WAIT, which are always counted. Commands
	// that run inside a script appear in the server's statistics as well and must not be counted as sent.
	commands []string

	program []string // runs the contender's processes, with its first arguments; nil: this program
	server  *foreign // what the contender needs instead of Redis; nil: Redis
	warmUp  time.Duration
	build   string // with -against: which of the two
}

// warm is how long each of the contender's processes runs before it counts, where they share the machine's processors.
func (e entry) warm(processes int) time.Duration {
	processors := runtime.NumCPU()
	return e.warmUp * time.Duration(max(1, (processes+processors-1)/processors))
}

// String is the contender in the name of a benchmark.
func (e entry) String() string {
	if e.build == "" {
		return "lock=" + e.name
	}
	return "lock=" + e.name + "/build=" + e.build
}

func contenders() []entry { return slices.Concat(ours, peers, marks, systems) }

func lookup(name string) (entry, error) {
	for _, e := range contenders() {
		if e.name == name {
			return e, nil
		}
	}
	return entry{}, fmt.Errorf("bench: no contender is called %q", name)
}

// openContender is what this program's processes open their contenders with.
func openContender(name string, e env) (contender, error) {
	found, err := lookup(name)
	if err != nil {
		return nil, err
	}
	if found.open == nil {
		return nil, fmt.Errorf("bench: %s runs in a program of its own", name)
	}
	return found.open(e)
}

// A selection is which contenders of a row take part.
type selection struct {
	pattern *regexp.Regexp      // by name; nil: all
	alone   bool                // no other libraries
	systems map[string][]string // those that can be run here, and what runs their processes
	against string              // another build of this program: redlatch's contenders run twice; "": none
}

// chosen returns the entries of a row that take part, in the row's order.
func (s selection) chosen(r row) ([]entry, error) {
	names := r.contenders
	if r.systems {
		for _, e := range systems {
			if s.systems[e.name] != nil {
				names = append(names[:len(names):len(names)], e.name)
			}
		}
	}
	var out []entry
	for _, name := range names {
		e, err := lookup(name)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", r.name, err)
		}
		if s.pattern != nil && !s.pattern.MatchString(name) || s.alone && e.role == peer {
			continue
		}
		if e.role == system {
			e.program = s.systems[name]
		}
		if s.against == "" || e.role != own {
			out = append(out, e)
			continue
		}
		before := e
		before.build, before.program = "before", []string{s.against}
		e.build = "now"
		out = append(out, before, e)
	}
	return out, nil
}
