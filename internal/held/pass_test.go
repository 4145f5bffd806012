package held

import (
	"testing"
	"testing/synctest"
	"time"
)

// Whoever takes away thousands of locks by force does not walk through all of them each time, nor
// remembers them for good.
func TestDoubtsAreLookedThroughOncePerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{cfg: Config{LeaseTime: 30 * time.Second}}
		doubt := func(key string) { r.Doubt(key)(true, false) }
		begun := r.Doubt("asked")
		doubt("a")
		time.Sleep(time.Second)
		doubt("b")
		time.Sleep(30 * time.Second)
		doubt("c") // it is a lease since the last look: a is forgotten
		time.Sleep(time.Second)
		doubt("d") // b need not be remembered, either
		if r.doubts["a"] != nil || r.doubts["b"] == nil || len(r.doubts) != 4 {
			t.Errorf("a second after a look %d are remembered, want those since then and b", len(r.doubts))
		}
		time.Sleep(30 * time.Second)
		doubt("e")
		if r.doubts["b"] != nil || r.doubts["asked"] == nil || len(r.doubts) > 4 {
			t.Errorf("a lease later %d are remembered", len(r.doubts))
		}
		begun(true, false)
		time.Sleep(40 * time.Second)
		doubt("f")
		if len(r.doubts) != 1 {
			t.Errorf("at last %d are remembered", len(r.doubts))
		}
	})
}
