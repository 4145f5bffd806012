package acl

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/testbed"
)

// open connects with one more setting; what comes of it is said.
func (w *walk) open(change func(*redlatch.Config)) *redlatch.Client {
	cfg := redlatch.Config{}
	w.config(&cfg)
	change(&cfg)
	c, err := redlatch.New(cfg)
	if w.note(err) {
		return nil
	}
	w.t.Cleanup(c.Close)
	return c
}

// Behind sentinels it is the same: for the user of the servers and for that of the sentinels each right of the page is
// enough, beyond a failover, and needed.
func TestEachRightBehindSentinels(t *testing.T) {
	t.Parallel()
	set := testbed.Sentinel(t)
	servers := append(set.Replicas(), set.Master())
	app, sentinels := acl.Rules("links", "sentinel"), acl.Rules("sentinels")
	var walks []*walk
	for i, one := range append([]string{"", "+role"}, sentinels...) {
		w := prepare(t, set.Master(), i, one)
		w.nodes = append(set.Sentinels(), servers...)
		for _, s := range servers {
			s.SetUser(t, w.user, w.but(app)...)
		}
		for _, s := range set.Sentinels() {
			s.SetUser(t, w.user, w.but(sentinels)...)
		}
		w.a = w.open(func(c *redlatch.Config) {
			c.Redis.InitAddress = set.SentinelAddrs()
			c.Redis.Sentinel = rueidis.SentinelOption{MasterSet: testbed.MasterName, Username: w.user, Password: "secret"}
		})
		walks = append(walks, w)
	}
	use := func(w *walk) {
		if w.a != nil {
			if h, err := w.a.RLock("l").TryLock(w.ctx, 10*time.Second, 0); !w.note(err) {
				w.note(h.Unlock(w.ctx))
			}
		}
	}
	for _, w := range walks {
		use(w)
	}
	set.Failover(t)
	for _, w := range walks {
		use(w)
		w.judge("sentinels")
	}
}

// On a cluster each right of the page is enough and needed, also where a slot is half-way to another node.
func TestEachRightOnACluster(t *testing.T) {
	testbed.Needs(t, 7, 0, "sharded channels")
	set := testbed.Cluster(t)
	const half = "{half}way"
	from := set.NodeOfKey(t, half)
	to := set.Masters(t)[0]
	if to == from {
		to = set.Masters(t)[1]
	}
	set.BeginMigration(t, testbed.Slot(half), to)
	rules := acl.Rules("links", "cluster")
	for i, one := range slices.DeleteFunc(append([]string{""}, rules...), func(r string) bool { return slices.Contains(acl.Rules("links"), r) }) {
		t.Run("without "+one, func(t *testing.T) {
			w := prepare(t, from, i, one)
			w.nodes = set.Nodes()
			if one == "+asking" || one == "+cluster|slots" { // nobody waits for it any longer
				var cancel context.CancelFunc
				w.ctx, cancel = context.WithTimeout(w.ctx, 2*time.Second)
				defer cancel()
			}
			for _, s := range set.Nodes() {
				s.SetUser(t, w.user, append(w.but(rules), "~redlatch_*:"+w.prefix+"*", "&*:"+w.prefix+"*")...) // names with braces
			}
			dial := func(c *redlatch.Config) { c.Redis.InitAddress = set.Addrs() }
			w.a, w.b = w.open(dial), w.open(dial)
			if w.a != nil && w.b != nil {
				w.take(w.a.RLock(half), w.b.RLock(half))
			}
			w.judge("cluster")
		})
	}
}
