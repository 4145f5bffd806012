package faults

import (
	"fmt"
	"math/rand/v2"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/rwlock"
)

// names is how many locks there are of each kind, as a rule. Every other one is fenced.
const names = 2

// own is the first number of the locks that nobody else wants: one of each kind for each worker.
const own = 1000

// thing is a lock, with what its holds are recorded as.
type thing struct {
	kind  string
	lock  redlatch.Locker
	names []string // what a hold excludes others from
	read  bool
	inner redlatch.Locker // what a nested acquisition takes; nil: nothing
	// innerRead: inner is the read lock of a lock that this one writes.
	innerRead bool
	probe     bool // the names are keys on the only server that has them
}

// The kinds of things.
const (
	kindPlain  = "plain"
	kindFair   = "fair"
	kindRead   = "read"
	kindWrite  = "write"
	kindGroup  = "group"  // plain locks of one slot: one command
	kindMixed  = "mixed"  // a plain and a fair lock
	kindQuorum = "quorum" // copies on independent masters
	kindSpread = "spread" // locks of independent masters, all of them
)

// single are the kinds that one server, or one cluster, has.
var single = []string{kindPlain, kindFair, kindRead, kindRead, kindWrite, kindGroup, kindMixed}

func fenced(i int) []redlatch.Option {
	if i%2 == 0 {
		return []redlatch.Option{redlatch.Fenced()}
	}
	return nil
}

// pick chooses a thing; its handles are new ones, as a program's would be.
func (p *party) pick(g *generation, r *rand.Rand) thing {
	kind := p.args.Work.Kinds[r.IntN(len(p.args.Work.Kinds))]
	n := p.args.Work.Names
	if n == 0 {
		n = names
	}
	return p.thing(g, kind, r.IntN(n))
}

func (p *party) thing(g *generation, kind string, i int) thing {
	c := g.clients[0]
	fenced := func(i int) []redlatch.Option {
		if p.args.Work.Unfenced {
			return nil
		}
		return fenced(i)
	}
	name := func(kind string, i int) string { return fmt.Sprintf("{%s}%d", kind, i) }
	plain := func(i int) redlatch.Member { return c.RLock(name(kindPlain, i), fenced(i)...) }
	fair := func(i int) redlatch.Member {
		return c.FairLock(name(kindFair, i), append(fenced(i), fairlock.WithSkipAfter(p.args.Skip))...)
	}
	rw := func(i int) *rwlock.ReadWriteLock {
		opts := append(fenced(i), rwlock.WithSkipAfter(p.args.Skip))
		if i%2 == 1 {
			opts = append(opts, rwlock.ShareReads())
		}
		return c.ReadWriteLock(name("rw", i), opts...)
	}
	switch kind {
	case kindPlain:
		return thing{kind: kind, lock: plain(i), names: []string{name(kind, i)}, inner: plain(i), probe: true}
	case kindFair:
		return thing{kind: kind, lock: fair(i), names: []string{name(kind, i)}, inner: fair(i), probe: true}
	case kindRead:
		return thing{kind: kind, lock: rw(i).ReadLock(), names: []string{name("rw", i)}, read: true, inner: rw(i).ReadLock(), probe: true}
	case kindWrite:
		t := thing{kind: kind, lock: rw(i).WriteLock(), names: []string{name("rw", i)}, inner: rw(i).WriteLock(), probe: true}
		if p.ids.Load()%2 == 0 {
			t.inner, t.innerRead = rw(i).ReadLock(), true
		}
		return t
	case kindGroup:
		both := func(a, b int) redlatch.Locker { return redlatch.MultiLock(plain(a), plain(b)) }
		return thing{
			kind: kind, lock: both(i, i^1), inner: both(i, i^1), probe: true,
			names: []string{name(kindPlain, i), name(kindPlain, i^1)},
		}
	case kindMixed:
		both := func() redlatch.Locker { return redlatch.MultiLock(plain(i), fair(i)) }
		return thing{kind: kind, lock: both(), inner: both(), probe: true, names: []string{name(kindPlain, i), name(kindFair, i)}}
	case kindQuorum:
		copies := func() redlatch.Locker {
			var all []redlatch.Member
			for _, c := range g.clients {
				all = append(all, c.RLock(name(kind, i), fenced(i)...))
			}
			return redlatch.QuorumLock(all...)
		}
		return thing{kind: kind, lock: copies(), inner: copies(), names: []string{name(kind, i)}}
	case kindSpread:
		members := func() (all []redlatch.Member, resources []string) {
			for k := range 2 {
				n := (i + k) % len(g.clients)
				all = append(all, g.clients[n].RLock(name(kind, 0), redlatch.Fenced()))
				resources = append(resources, fmt.Sprintf("%s@%d", name(kind, 0), n))
			}
			return all, resources
		}
		all, resources := members()
		again, _ := members()
		return thing{kind: kind, lock: redlatch.MultiLock(all...), inner: redlatch.MultiLock(again...), names: resources}
	}
	panic("no such kind: " + kind)
}
