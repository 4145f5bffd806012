//go:build unix

package redisson

import (
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// On a cluster both sides use sharded channels, and hear each other on them; before
// 7.0 there are plain ones only.
func TestClusterWithShardedChannels(t *testing.T) {
	needJava(t)
	cluster := testbed.Cluster(t)
	var o Options
	for _, s := range cluster.Masters(t) {
		o.Cluster = append(o.Cluster, s.Addr())
	}
	golang := startGo(t, o)
	for _, v := range Versions {
		t.Run(string(v), func(t *testing.T) {
			b := &bed{version: v, cluster: cluster, java: Start(t, v, o), golang: golang, options: o}
			on := func(roles string, steps func(s *scene)) {
				one, two, _ := strings.Cut(roles, "-")
				t.Run(roles, func(t *testing.T) {
					s := b.scene(t, "")
					s.sides["1"], s.sides["2"] = s.sides[one], s.sides[two]
					steps(s)
				})
			}
			for _, roles := range []string{"java-go", "go-java"} {
				for range 3 { // names of different nodes
					on(roles, func(s *scene) {
						s.run(`
							1.* lock */*
							2.* trylock */* -> false
							* = 2.* lock */*
							1.r lock read/r
							2.r trylock write/r -> false
							r = 2.r lock write/r
							r waits
							1.r unlock read/r
							r enters
							2.r unlock write/r
							* waits
							1.* unlock */*
							* enters
							2.* unlock */*`)
					})
				}
				on(roles, func(s *scene) {
					for cluster.NodeOfKey(t, s.name("x")) == cluster.NodeOfKey(t, s.name("y")) {
						delete(s.names, "y")
					}
					s.run(`
						1.m lock rlock/x+fair/y
						2.a trylock rlock/x -> false
						2.b trylock fair/y -> false
						one = 2.a lock rlock/x
						two = 2.b lock fair/y
						one waits
						two waits
						1.m unlock rlock/x+fair/y
						one enters
						two enters
						2.a unlock rlock/x
						2.b unlock fair/y`)
				})
			}
			for _, s := range cluster.Masters(t) {
				plain := s.List(t, "PUBSUB", "CHANNELS", "redisson_*")
				if len(plain) > 0 && testbed.ServerVersion(t).AtLeast(7, 0) {
					t.Errorf("plain channels on a cluster: %v", plain)
				}
			}
		})
	}
}
