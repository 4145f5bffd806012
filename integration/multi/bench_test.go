package multi

import (
	"context"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// BenchmarkPair is Lock + Unlock without contention: one lock, five of one node,
// five of five nodes, and a quorum of five.
func BenchmarkPair(b *testing.B) {
	list := testbed.Masters(b, 5)
	cs := clients(b, addrs(list))
	five := names("k", 5)
	members := make([]redlatch.Member, 5)
	for i, c := range cs {
		members[i] = c.RLock(five[i])
	}
	for name, l := range map[string]redlatch.Member{
		"rlock": cs[0].RLock("one"), "multi-1-node": redlatch.MultiLock(plain(cs[0], five...)...),
		"multi-5-nodes": redlatch.MultiLock(members...), "quorum-5": redlatch.QuorumLock(copies(cs, "q")...),
		"quorum-5-fenced": redlatch.QuorumLock(copies(cs, "f", redlatch.Fenced())...),
	} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				h, err := l.Lock(context.Background())
				if err != nil {
					b.Fatal(err)
				}
				if err := h.Unlock(context.Background()); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
