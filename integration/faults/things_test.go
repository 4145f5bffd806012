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

// pick chooses a thing; its handles are new ones, as a program's would be.
func (p *party) pick(g *generation, r *rand.Rand) thing {
	kinds := p.args.Work.Kinds
	return p.thing(g, kinds[r.IntN(len(kinds))], r.IntN(p.args.Work.Names))
}

func (p *party) thing(g *generation, kind string, i int) thing {
	c := g.clients[0]
	options := func(i int, more ...redlatch.Option) []redlatch.Option {
		if i%2 == 0 && !p.args.Work.Unfenced {
			more = append(more, redlatch.Fenced())
		}
		return more
	}
	named := func(tag string, i int) string { return fmt.Sprintf("{%s}%d", tag, i) }
	plain := func(i int) redlatch.Member { return c.RLock(named(kindPlain, i), options(i)...) }
	fair := func() redlatch.Member {
		return c.FairLock(named(kindFair, i), options(i, fairlock.WithSkipAfter(p.args.Skip))...)
	}
	rw := func() *rwlock.ReadWriteLock {
		opts := options(i, rwlock.WithSkipAfter(p.args.Skip))
		if i%2 == 1 {
			opts = append(opts, rwlock.ShareReads())
		}
		return c.ReadWriteLock(named("rw", i), opts...)
	}
	t := thing{kind: kind, names: []string{named(kind, i)}, probe: true}
	var handle func() redlatch.Locker
	switch kind {
	case kindPlain:
		handle = func() redlatch.Locker { return plain(i) }
	case kindFair:
		handle = func() redlatch.Locker { return fair() }
	case kindRead:
		t.names, t.read = []string{named("rw", i)}, true
		handle = func() redlatch.Locker { return rw().ReadLock() }
	case kindWrite:
		t.names = []string{named("rw", i)}
		handle = func() redlatch.Locker { return rw().WriteLock() }
	case kindGroup:
		t.names = []string{named(kindPlain, i), named(kindPlain, i^1)}
		handle = func() redlatch.Locker { return redlatch.MultiLock(plain(i), plain(i^1)) }
	case kindMixed:
		t.names = []string{named(kindPlain, i), named(kindFair, i)}
		handle = func() redlatch.Locker { return redlatch.MultiLock(plain(i), fair()) }
	case kindQuorum:
		t.probe = false
		handle = func() redlatch.Locker {
			var all []redlatch.Member
			for _, c := range g.clients {
				all = append(all, c.RLock(named(kind, i), options(i)...))
			}
			return redlatch.QuorumLock(all...)
		}
	case kindSpread:
		a, b := i%len(g.clients), (i+1)%len(g.clients)
		lock := named(kind, 0)
		t.names, t.probe = []string{fmt.Sprintf("%s@%d", lock, a), fmt.Sprintf("%s@%d", lock, b)}, false
		handle = func() redlatch.Locker {
			return redlatch.MultiLock(g.clients[a].RLock(lock, redlatch.Fenced()), g.clients[b].RLock(lock, redlatch.Fenced()))
		}
	default:
		panic("no such kind: " + kind)
	}
	t.lock, t.inner = handle(), handle()
	if kind == kindWrite && p.ids.Load()%2 == 0 {
		t.inner, t.innerRead = rw().ReadLock(), true
	}
	return t
}
