package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// planned is one fault of a plan.
type planned struct {
	at, lasts time.Duration
	fault     *fault
	target    int
	seed      uint64
}

func (p planned) String() string {
	return fmt.Sprintf("%v %s(%d) for %v", p.at.Round(time.Millisecond), p.fault.name, p.target, p.lasts.Round(time.Millisecond))
}

// plan says what happens in an episode: a function of the seed and the profile alone.
// Faults overlap, except those that need the same thing.
func plan(seed uint64, p *profile, length time.Duration) []planned {
	r := seeded(seed, 0x6661756c7473)
	var all []planned
	busy := map[string]time.Duration{} // until when a thing is in use
	if len(p.faults) == 0 {
		return nil
	}
	for at := length / 20; at < length*9/10; {
		f := faultNamed(p.faults[r.IntN(len(p.faults))])
		one := planned{at: at, fault: f, target: r.IntN(p.targets(f)), seed: r.Uint64()}
		low, high := leases(p.lease, f.lowest), leases(p.lease, f.highest)
		one.lasts = low
		if high > low {
			one.lasts += time.Duration(r.Int64N(int64(high - low)))
		}
		thing := strings.TrimSpace(fmt.Sprintf("%s %d %s", f.needs, one.target, f.part))
		if f.alone { // nothing else of this kind anywhere
			thing = f.needs
		}
		free := at+one.lasts < length
		for used, until := range busy {
			if until > at && (used == thing || strings.HasPrefix(used, thing+" ") || strings.HasPrefix(thing, used+" ")) {
				free = false
			}
		}
		if free {
			all = append(all, one)
			busy[thing] = at + one.lasts + leases(p.lease, f.pauses)
		}
		at += 20*time.Millisecond + time.Duration(r.Int64N(int64(p.pace)))
	}
	return all
}

// fault is one kind of fault.
type fault struct {
	name    string
	needs   string // faults that need the same thing of one target don't overlap
	part    string // of the thing, if it does not need it whole
	alone   bool   // they don't overlap anywhere
	worker  bool   // the target is a worker; else a server
	effects effect
	says    string  // what whoever fails because of it is told
	lowest  float64 // how long it lasts, in leases
	highest float64
	pauses  float64 // before the next one of the same thing, in leases
	begin   func(x *ongoing)
}

// ongoing is a fault that is being made.
type ongoing struct {
	*world
	planned

	i    int    // of its window
	undo func() // what ends it; nil if it is over at once
}

func (x *ongoing) line() *testbed.Proxy    { return x.proxies[x.target] }
func (x *ongoing) server() *testbed.Server { return x.master(x.target) }
func (x *ongoing) worker() *worker         { return x.workers[x.target] }
func (x *ongoing) window() *window         { return &x.windows[len(x.windows)-1] }

// chance is one in two, for the i-th of many.
func (x *ongoing) chance(i int) bool { return x.seed>>(i%64)&1 == 1 }

// step sets a server's clock on by so much; back does by a few seconds.
func (x *ongoing) step(server int, by time.Duration) { x.clocks[server].Step(x.t, by) }

func (x *ongoing) back(server int) { x.step(server, -time.Duration(1+x.seed%5)*time.Second) }

func leases(lease time.Duration, n float64) time.Duration { return time.Duration(float64(lease) * n) }

func faultNamed(name string) *fault {
	return &faults[slices.IndexFunc(faults, func(f fault) bool { return f.name == name })]
}
