package topology

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// kinds are all kinds of lock that stand on one deployment.
func kinds() []bed.Kind {
	return slices.DeleteFunc(bed.Kinds(), func(k bed.Kind) bool { return k.Servers > 1 })
}

// on is a kind's lock from one client, with tokens unless the kind is the one without.
func on(k bed.Kind, c *redlatch.Client, name string) redlatch.Locker {
	var opts []redlatch.Option
	if k.Name != "plain" {
		opts = append(opts, redlatch.Fenced())
	}
	return k.New([]*redlatch.Client{c}, name, opts...)
}

// exclusive are those of which one holder is inside.
func exclusive() []bed.Kind {
	return slices.DeleteFunc(kinds(), func(k bed.Kind) bool { return k.Shared })
}

// deployment is several servers, of which the one with the locks changes.
type deployment struct {
	opt     rueidis.ClientOption
	listens func(t *testing.T, name string) func() bool // whether somebody waits for the lock
	// happens are what may happen to the server that has the keys with the tag {x}, in this order. Those that
	// lose nothing are true.
	happens []happening
}

type happening struct {
	what string
	keep bool
	do   func(t *testing.T, names []string, reenter func())
}

// What is held is kept, and whoever waits for it gets it, whatever the servers do that loses no data: a slot moves, a
// master hands over. Where a master dies, a holder hears of a loss, and whoever waits goes on with the replica that
// took over. Tokens increase either way.
func TestLocksOutliveTheirServer(t *testing.T) {
	for name, start := range map[string]func(t *testing.T) deployment{"cluster": onCluster, "sentinel": onSentinel} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits, for the most part
			d := start(t)
			// A client may learn late of a takeover, where nodes have little time to tell each other.
			patient := func(cfg *redlatch.Config) { cfg.UnlockTimeout = 20 * time.Second }
			c, other := open(t, d.opt, patient), open(t, d.opt, patient)
			for i, h := range d.happens {
				t.Run(h.what, func(t *testing.T) { outlive(t, d, h, c, other, string(rune('a'+i))) })
			}
		})
	}
}

func outlive(t *testing.T, d deployment, happens happening, c, other *redlatch.Client, part string) {
	t.Helper()
	type pair struct {
		kind bed.Kind
		hold redlatch.Hold
		next <-chan bed.Attempt
	}
	pairs := map[string]pair{}
	var names []string
	for _, k := range kinds() {
		name := "{x}" + part + k.Name
		hold := take(t, t.Context(), on(k, c, name))
		of := k
		if k.Other != nil {
			of.New = k.Other
		}
		names = append(names, name)
		pairs[name] = pair{k, hold, waiting(t, on(of, other, name), d.listens(t, name))}
	}
	reenter := func() {
		for name, p := range pairs {
			bed.Unlock(t, take(t, p.hold.Context(), on(p.kind, c, name)))
		}
	}
	happens.do(t, names, reenter)
	if happens.keep {
		time.Sleep(lease + lease/2) // what the old master promised has ended
		for name, p := range pairs {
			if err := p.hold.Extend(t.Context(), time.Minute); err != nil || p.hold.Context().Err() != nil {
				t.Errorf("%s: the hold ended: %v: %v", name, err, context.Cause(p.hold.Context()))
			}
		}
	}
	for _, name := range names {
		p := pairs[name]
		// Kept or lost where a master dies depends on what the replica had and on how long the takeover took.
		err := p.hold.Unlock(bed.Within(t, 20*time.Second))
		if died := errors.Is(err, redlatch.ErrLeaseLost) || errors.Is(err, redlatch.ErrUnavailable); err != nil && (happens.keep || !died) {
			t.Errorf("%s: Unlock: %v", name, err)
		}
		limit := 3 * lease
		if happens.keep {
			limit = lease
		}
		next := bed.HoldWithin(t, limit, p.next)
		if had, has := p.hold.Token(), next.Token(); has < had || has == had && has != 0 {
			t.Errorf("%s: token %d after %d", name, has, had)
		}
		bed.Unlock(t, next)
		bed.Unlock(t, take(t, t.Context(), on(p.kind, c, name))) // nor does it go to a demoted one
	}
}

func onCluster(t *testing.T) deployment {
	t.Helper()
	set := clustered(t)
	slot := testbed.Slot("{x}")
	// Which node of the shard has the subscriber does not matter: a message goes to all of them.
	listens := func(t *testing.T, name string) func() bool {
		t.Helper()
		return func() bool { return len(set.LockChannels(t, name, "*"+name+"*")) > 0 }
	}
	again := func(t *testing.T, names []string) {
		t.Helper()
		for _, name := range names {
			bed.Eventually(t, "the waiter listens in the shard: "+name, listens(t, name))
		}
	}
	return deployment{cluster(set), listens, []happening{
		{"a slot moves", true, func(t *testing.T, names []string, reenter func()) {
			m := set.BeginMigration(t, slot, elsewhere(t, set, slot))
			m.MoveKeys(t)
			reenter() // the old node answers ASK
			m.Finish(t)
			again(t, names)
		}},
		{"a master hands over", true, func(t *testing.T, names []string, _ func()) {
			set.Failover(t, set.NodeOfSlot(t, slot))
			again(t, names)
		}},
		{"a master dies", false, func(t *testing.T, _ []string, _ func()) {
			nodeTimeout(t, set, testbed.ClusterNodeTimeout)
			master := set.NodeOfSlot(t, slot)
			master.Kill(t)
			set.AwaitTakeover(t, slot, master)
			t.Cleanup(func() { master.Restart(t, testbed.Empty) })
		}},
	}}
}

func onSentinel(t *testing.T) deployment {
	t.Helper()
	set := testbed.Sentinel(t)
	return deployment{
		sentinel(set),
		func(t *testing.T, name string) func() bool { t.Helper(); return listens(t, set.Master(), name) },
		[]happening{
			{"a failover", true, func(t *testing.T, names []string, _ func()) {
				set.AwaitSync(t)
				next := set.Failover(t)
				for _, name := range names {
					bed.Eventually(t, "the waiter listens to the new master: "+name, listens(t, next, name))
				}
			}},
			{"the master dies", false, func(t *testing.T, _ []string, _ func()) { set.AwaitNewMaster(t, set.KillMaster(t)) }},
		},
	}
}
