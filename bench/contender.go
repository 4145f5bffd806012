package main

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// role says what a contender is in the comparison.
type role int

const (
	own    role = iota // redlatch, in one of its kinds or arrangements
	peer               // another library for Go on the same server: the best of them is what "× peer" refers to
	system             // something else that people lock with, in another language or on another server
	mark               // no lock for use, a bound: "limit" and "floor"
)

// An entry is a contender by name, with what is needed to run it and to count its commands.
type entry struct {
	name string
	what string
	role role
	// promise is what remains of its locks when something fails: what its speed must be seen with.
	promise string
	open    func(env) (contender, error)
	// prepare brings the empty server into the state that the contender starts from, once for all processes.
	prepare func(ctx context.Context, admin *admin, key string) error
	// commands lists what its clients send besides scripts, subscriptions and WAIT, which are always counted. Commands
	// that run inside a script appear in the server's statistics as well and must not be counted as sent.
	commands []string

	// program runs the contender's processes; nil: this program.
	program *program
	// server is what the contender needs instead of Redis; nil: Redis.
	server *foreign
	// warmUp is how long its processes run before they count, if that is longer than for others, with a processor each.
	warmUp time.Duration
	// twinOf is set for a contender of another build: the name that its program knows it by.
	twinOf string
}

// known is the name by which the contender's processes know it.
func (e entry) known() string {
	if e.twinOf != "" {
		return e.twinOf
	}
	return e.name
}

// warm is how long each of the contender's processes runs before it counts, where they share the machine's processors.
func (e entry) warm(processes, processors int) time.Duration {
	return e.warmUp * time.Duration(max(1, (processes+processors-1)/processors))
}

// registry holds every contender; rows choose from it by name.
var registry = func() map[string]entry {
	all := map[string]entry{}
	for _, list := range [][]entry{ours, otherKinds, peers, marks, systems} {
		for _, e := range list {
			if _, twice := all[e.name]; twice {
				panic("bench: two contenders are called " + e.name)
			}
			all[e.name] = e
		}
	}
	return all
}()

func lookup(name string) (entry, error) {
	e, ok := registry[name]
	if !ok {
		return entry{}, fmt.Errorf("bench: no contender is called %q", name)
	}
	return e, nil
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
	pattern *regexp.Regexp  // by name; nil: all
	alone   bool            // no other libraries
	systems map[string]bool // those that can be run here; nil: none
	against *program        // another build of this program: redlatch's contenders run twice; nil: none
}

// chosen returns the entries of a row that take part, in the row's order.
func (s selection) chosen(r row) ([]entry, error) {
	names := r.contenders
	if r.systems {
		for _, e := range systems {
			if s.systems[e.name] {
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
		out = append(out, e)
		if s.against != nil && e.role == own {
			twin := e
			twin.name, twin.twinOf, twin.program = e.name+twinMark, e.name, s.against
			out = append(out, twin)
		}
	}
	return out, nil
}

// twinMark ends the name of a contender of the other build.
const twinMark = "@against"
