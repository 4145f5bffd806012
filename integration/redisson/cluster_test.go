//go:build unix

package redisson

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// On a cluster both sides use sharded channels, and hear each other on them; before
// 7.0 there are plain ones only.
func TestClusterWithShardedChannels(t *testing.T) {
	needJava(t)
	cluster := testbed.Cluster(t)
	var addrs []string
	for _, s := range cluster.Masters(t) {
		addrs = append(addrs, s.Addr())
	}
	o := Options{Cluster: addrs}
	golang := startGo(t, o)
	for _, v := range Versions {
		t.Run(string(v), func(t *testing.T) {
			java := Start(t, v, o)
			for _, kind := range append([]string{"read"}, exclusive...) {
				for _, dir := range []struct {
					name          string
					first, second *Driver
				}{{"java-go", java, golang}, {"go-java", golang, java}} {
					t.Run(kind+"/"+dir.name, func(t *testing.T) {
						var took []time.Duration
						for range 3 { // names of different nodes
							n := name(t)
							node := cluster.NodeOfKey(t, n)
							holds := dir.first.Owner("a").Lock(kind, n)
							asks := dir.second.Owner("b").Lock(kind, n)
							if kind == "read" {
								asks = dir.second.Owner("b").Write(n)
							}
							holds.Lock(t, 0)
							if asks.TryLock(t, -1, 0) {
								t.Fatal("the other side took a held lock")
							}
							waits := asks.GoLock(0)
							eventually(t, "a channel of the lock where its messages are", func() bool {
								return slices.ContainsFunc(cluster.LockChannels(t, n), func(c string) bool {
									ours := strings.HasPrefix(c, "redlatch_") && !testbed.ServerVersion(t).AtLeast(7, 0) // a grant's
									return (ours || strings.HasPrefix(c, "redisson_")) && strings.Contains(c, "{"+n+"}")
								})
							})
							(&bed{server: node}).settle(t)
							if !waits.Pending() {
								t.Fatal("the other side took a held lock")
							}
							took = append(took, latency(holds.Unlock(t), waits.Wait(t)))
							asks.Unlock(t)
							b := &bed{server: node}
							b.nothingLeft(t, n)
						}
						t.Logf("wake-ups %v", took)
						between(t, "longest wake-up", slices.Max(took), 0, soon)
					})
				}
			}
			t.Run("multi", func(t *testing.T) {
				for _, side := range [][2]*Driver{{java, golang}, {golang, java}} {
					n1, n2 := name(t), name(t)
					for cluster.NodeOfKey(t, n2) == cluster.NodeOfKey(t, n1) {
						n2 = name(t)
					}
					multi := side[0].Owner("m").Multi(Spec("rlock", n1), Spec("fair", n2))
					one, two := side[1].Owner("1").RLock(n1), side[1].Owner("2").Fair(n2)
					multi.Lock(t, 0)
					if one.TryLock(t, -1, 0) || two.TryLock(t, -1, 0) {
						t.Fatal("a member of a held multi-lock was taken")
					}
					c1, c2 := one.GoLock(0), two.GoLock(0)
					for _, n := range []string{n1, n2} {
						node := cluster.NodeOfKey(t, n)
						eventually(t, "a waiter", func() bool {
							return slices.ContainsFunc(cluster.LockChannels(t, n), func(c string) bool { return strings.Contains(c, "{"+n+"}") })
						})
						(&bed{server: node}).settle(t)
					}
					unlock := multi.Unlock(t)
					between(t, "wake-up of the first", latency(unlock, c1.Wait(t)), 0, soon)
					between(t, "wake-up of the second", latency(unlock, c2.Wait(t)), 0, soon)
					one.Unlock(t)
					two.Unlock(t)
				}
			})
			for _, s := range cluster.Masters(t) {
				plain := s.List(t, "PUBSUB", "CHANNELS", "redisson_*")
				if len(plain) > 0 && testbed.ServerVersion(t).AtLeast(7, 0) {
					t.Errorf("plain channels on a cluster: %v", plain)
				}
			}
		})
	}
}
