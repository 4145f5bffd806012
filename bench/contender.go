package main

import (
	"context"
	"fmt"
	"regexp"
	"time"
)

// A contender is one way to lock, opened once in each process of a measurement. Locker and Close are called from one
// goroutine; the lockers it hands out are used by one goroutine each, many at a time.
type contender interface {
	// Locker returns what one goroutine uses to lock key, in the way that the library's users would: a shared lock
	// object where the library allows it, one object per goroutine where it does not.
	Locker(key string) locker
	Close()
}

// A readWriter has a shared mode besides the exclusive one that Locker gives.
type readWriter interface {
	ReadLocker(key string) locker
}

// A locker waits in Lock until it holds its key or ctx ends.
type locker interface {
	Lock(ctx context.Context) (hold, error)
}

type hold interface {
	Unlock(ctx context.Context) error
}

// role says what a contender is in the comparison.
type role int

const (
	own  role = iota // redlatch, in one of its kinds or arrangements
	peer             // another library: the best of them is what "× peer" refers to
	mark             // no lock for use, a bound: "limit" and "floor"
)

// An entry is a contender by name, with what is needed to run it and to count its commands.
type entry struct {
	name string
	what string
	role role
	open func(env) (contender, error)
	// prepare brings the empty server into the state that the contender starts from, once for all processes.
	prepare func(ctx context.Context, admin *admin, key string) error
	// commands lists what its clients send besides scripts, subscriptions and WAIT, which are always counted. Commands
	// that run inside a script appear in the server's statistics as well and must not be counted as sent.
	commands []string
}

// env is what a contender is opened with.
type env struct {
	addrs []string
	lease time.Duration
	// waiters is how many goroutines of all processes compete for one key.
	waiters int
}

func (e env) addr() string { return e.addrs[0] }

// registry holds every contender; rows choose from it by name.
var registry = func() map[string]entry {
	all := map[string]entry{}
	for _, list := range [][]entry{ours, otherKinds, peers, marks} {
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

// chosen returns the entries of a row that the pattern lets through, in the row's order.
func chosen(r row, pattern *regexp.Regexp) ([]entry, error) {
	var out []entry
	for _, name := range r.contenders {
		e, err := lookup(name)
		if err != nil {
			return nil, fmt.Errorf("row %s: %w", r.name, err)
		}
		if pattern == nil || pattern.MatchString(name) {
			out = append(out, e)
		}
	}
	return out, nil
}
