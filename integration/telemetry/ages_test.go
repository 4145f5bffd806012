package telemetry

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// none checks that a gauge of ages says 0 for all that it knows.
func (r *rig) none(name string) {
	r.t.Helper()
	for labels, age := range points(r.collect()[name]) {
		testbed.Equal(r.t, age, 0, name, "of", labels, "in ms, though there is none")
	}
}

// The gauges of ages tell of the oldest hold and of the longest wait of all Clients of a provider, by type, and 0
// once there is none. Closing a Client takes it out of them, and leaves nothing with the provider.
func TestAges(t *testing.T) {
	r := newRig(t)
	second := r.open()
	const labels = "lock.type=reentrant"
	began := time.Now()
	h := bed.Lock(t, t.Context(), r.client.RLock("old"))
	ctx, cancel := context.WithCancel(t.Context())
	waits := []<-chan bed.Attempt{bed.Async(ctx, r.client.RLock("old"))}
	r.older("lock.wait.age", labels, 0)
	r.older("lock.hold.age", labels, time.Second)
	waits = append(waits, bed.Async(ctx, second.RLock("old")))
	beganLater := time.Now()
	young := bed.Lock(t, t.Context(), second.RLock("young"))
	younger := bed.Lock(t, t.Context(), r.client.RLock("younger")) // of a Client that has an older one
	for range 20 {                                                 // whichever Client is asked last
		held, waited := r.point("lock.hold.age", labels), r.point("lock.wait.age", labels)
		if most := time.Since(began).Milliseconds(); held < 1000 || held > most || waited <= 0 || waited > most {
			t.Errorf("held for %d ms, waited for %d ms, since %s", held, waited, time.Since(began))
		}
	}
	cancel()
	for _, w := range waits {
		bed.Get(t, w)
	}
	r.none("lock.wait.age")
	bed.Unlock(t, h)
	r.older("lock.hold.age", labels, 0)
	age := r.point("lock.hold.age", labels)
	testbed.AtMost(t, age, time.Since(beganLater).Milliseconds(), "milliseconds that the hold that is left is old")
	bed.Unlock(t, young, younger)
	r.none("lock.hold.age")
	second.Close()
	r.none("lock.hold.age")
	r.client.Close()
	if got, told := r.collect()["lock.hold.age"]; told {
		t.Error("closed Clients tell of ages:", points(got))
	}
}

// With Telemetry.LockName the ages have names, of those that wait for several locks, too; a LockName that panics costs
// the ages and nothing else.
func TestAgesByName(t *testing.T) {
	var panics atomic.Bool
	r := newRig(t, func(c *redlatch.Config) {
		c.Telemetry.LockName = func(name string) string {
			if panics.Load() {
				panic("names")
			}
			return strings.TrimRight(name, "0123456789") + "*"
		}
	})
	const orders = "lock.name=orders:*,lock.type=reentrant"
	h := bed.Lock(t, t.Context(), r.client.RLock("orders:42"))
	f := bed.Lock(t, t.Context(), r.client.FairLock("night:1"))
	ctx, cancel := context.WithCancel(t.Context())
	waits := bed.Async(ctx, redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("orders:42")))
	r.older("lock.wait.age", orders, 0)
	r.older("lock.wait.age", "lock.name=[a orders:42]*,lock.type=multi", 0)
	r.older("lock.hold.age", orders, 0)
	r.older("lock.hold.age", "lock.name=night:*,lock.type=fair", 0)
	cancel()
	bed.Get(t, waits)
	r.none("lock.wait.age")
	panics.Store(true)
	r.collect()
	panics.Store(false)
	r.older("lock.hold.age", orders, 0)
	bed.Unlock(t, f, h)
}

// A reader of metrics that hangs in the user's code does not keep Close for ever.
func TestCloseBesideAReaderThatHangs(t *testing.T) {
	open, inside := make(chan struct{}), make(chan struct{}, 100)
	var hang atomic.Bool
	r := newRig(t, func(c *redlatch.Config) {
		c.UnlockTimeout = 300 * time.Millisecond
		c.Telemetry.LockName = func(name string) string {
			if hang.Load() {
				inside <- struct{}{}
				<-open
			}
			return name
		}
	})
	bed.Lock(t, t.Context(), r.client.RLock("x"))
	hang.Store(true)
	read := began(func() { r.collect() })
	<-inside
	within(t, "Close", began(r.client.Close))
	close(open)
	within(t, "the reader", read)
}
