//go:build unix

package redisson

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// On a cluster both sides use sharded channels, and hear each other on them.
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
							eventually(t, "a sharded channel of the lock on its node", func() bool {
								return slices.ContainsFunc(node.List(t, "PUBSUB", "SHARDCHANNELS"), func(c string) bool {
									return strings.HasPrefix(c, "redisson_") && strings.Contains(c, "{"+n+"}")
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
			for _, s := range cluster.Masters(t) {
				plain := s.List(t, "PUBSUB", "CHANNELS", "redisson_*")
				if len(plain) > 0 {
					t.Errorf("plain channels on a cluster: %v", plain)
				}
			}
		})
	}
}
