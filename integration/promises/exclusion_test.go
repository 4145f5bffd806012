package promises

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
)

// One holder is inside at a time, over goroutines and processes, also where acquisitions are given up at any
// moment: no section's update is lost, nobody waits for the lease of somebody who has left, and late
// grants are given back.
func TestOneIsInside(t *testing.T) {
	t.Parallel()
	const processes, goroutines = 3, 4
	for _, k := range bed.Kinds() {
		t.Run(k.Name, func(t *testing.T) {
			t.Parallel()
			x := bed.NewSite(t, k)
			var workers []*bed.Worker
			for range processes {
				workers = append(workers, bed.Spawn(t, bed.Setup{Addrs: x.Addrs(), Lease: bed.Lease}))
			}
			for what, rounds := range map[string]int{"all stay": 8, "some give up": 30} {
				t.Run(what, func(t *testing.T) {
					name, counter := bed.Name(t.Name()), "counter:"+what
					cmd := bed.Command{Do: "loop", Kind: k.Name, Name: name, Count: goroutines, Rounds: rounds, Counter: counter}
					if what == "some give up" {
						cmd.GiveUp = 60 * time.Millisecond
					}
					var ids []int
					for i, w := range workers {
						one := cmd
						if k.Shared && i == 0 {
							one.Kind = "write" // beside which the others read
						}
						ids = append(ids, w.Start(t, one))
					}
					var sum, took, gave int64
					for i, w := range workers {
						a := w.Await(t, ids[i], "looped")
						if took, gave = took+a.Count, gave+a.Gave; !k.Shared || i == 0 {
							sum += a.Count
						}
					}
					t.Logf("%d sections, %d given up", took, gave)
					if got := x.Servers[0].Int(t, "GET", counter); got != sum {
						t.Errorf("the counter says %d, the sections were %d", got, sum)
					}
					if tried := took > 0 && (cmd.GiveUp == 0) == (gave == 0); !tried {
						t.Errorf("%d sections, %d given up: one of them was not tried", took, gave)
					}
					x.Servers[0].Do(t, "DEL", counter)
					bed.Eventually(t, "no key left", func() bool { return len(x.Keys(t, name)) == 0 })
				})
			}
			bed.End(t, workers...)
		})
	}
}
