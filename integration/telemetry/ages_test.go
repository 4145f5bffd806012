package telemetry

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// older reports whether a gauge of ages says more than d.
func (r *rig) older(name, labels string, d time.Duration) func() bool {
	return func() bool { return points(r.t, r.collect()[name])[labels] > d.Milliseconds() }
}

// The gauges of ages tell of the oldest hold and of the longest wait of all Clients of a provider, by type, and 0
// once there is none. Closing a Client takes it out of them, and leaves nothing with the provider.
func TestAges(t *testing.T) {
	r := newRig(t)
	second := r.open()
	old, young := r.client.RLock("old"), second.RLock("young")
	began := time.Now()
	h := must[redlatch.Hold](t)(old.Lock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	wait := begin(t, func() { _, _ = old.Lock(ctx) })
	const labels = "lock.type=reentrant"
	eventually(t, "somebody waits", r.older("lock.wait.age", labels, 0))
	eventually(t, "the hold gets older", r.older("lock.hold.age", labels, time.Second))
	later := begin(t, func() { _, _ = second.RLock("old").Lock(ctx) })
	beganLater := time.Now()
	y := must[redlatch.Hold](t)(young.Lock(t.Context()))
	for range 20 { // whichever Client is asked last
		all := r.collect()
		held, waited := points(t, all["lock.hold.age"])[labels], points(t, all["lock.wait.age"])[labels]
		if most := time.Since(began).Milliseconds(); held < 1000 || held > most || waited <= 0 || waited > most {
			t.Errorf("held for %d ms, waited for %d ms, since %s", held, waited, time.Since(began))
		}
	}
	cancel()
	wait()
	later()
	r.expectPoints("lock.wait.age", map[string]int64{labels: 0})
	unlock(t, h)
	eventually(t, "the second Client's hold is told", r.older("lock.hold.age", labels, 0))
	if age := points(t, r.collect()["lock.hold.age"])[labels]; age > time.Since(beganLater).Milliseconds() {
		t.Errorf("%d ms after the first hold ended the other one is %d ms old", time.Since(beganLater).Milliseconds(), age)
	}
	unlock(t, y)
	r.expectPoints("lock.hold.age", map[string]int64{labels: 0})
	second.Close()
	r.expectPoints("lock.hold.age", map[string]int64{labels: 0})
	r.client.Close()
	if got, told := r.collect()["lock.hold.age"]; told {
		t.Error("closed Clients tell of ages:", points(t, got))
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
	h := must[redlatch.Hold](t)(r.client.RLock("orders:42").Lock(t.Context()))
	f := must[redlatch.Hold](t)(r.client.FairLock("night:1").Lock(t.Context()))
	ctx, cancel := context.WithCancel(t.Context())
	wait := begin(t, func() {
		_, _ = redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("orders:42")).Lock(ctx)
	})
	const orders = "lock.name=orders:*,lock.type=reentrant"
	eventually(t, "it waits", r.older("lock.wait.age", orders, 0))
	eventually(t, "the whole waits", r.older("lock.wait.age", "lock.name=[a orders:42]*,lock.type=multi", 0))
	eventually(t, "it is held", r.older("lock.hold.age", orders, 0))
	eventually(t, "the other one is held", r.older("lock.hold.age", "lock.name=night:*,lock.type=fair", 0))
	cancel()
	wait()
	for labels, age := range points(t, r.collect()["lock.wait.age"]) {
		if age != 0 {
			t.Errorf("nobody waits: %s is %d ms", labels, age)
		}
	}
	panics.Store(true)
	r.collect()
	panics.Store(false)
	eventually(t, "it is held", r.older("lock.hold.age", orders, 0))
	unlock(t, f)
	unlock(t, h)
}

// A reader of metrics that hangs in the user's code does not keep Close for ever.
func TestCloseBesideAReaderThatHangs(t *testing.T) {
	open, inside := make(chan struct{}), make(chan struct{}, 1)
	var hang atomic.Bool
	r := newRig(t, func(c *redlatch.Config) {
		c.UnlockTimeout = 300 * time.Millisecond
		c.Telemetry.LockName = func(name string) string {
			if hang.Load() {
				select {
				case inside <- struct{}{}:
				default:
				}
				<-open
			}
			return name
		}
	})
	_ = must[redlatch.Hold](t)(r.client.RLock("x").Lock(t.Context()))
	hang.Store(true)
	read := begin(t, func() { r.collect() })
	<-inside
	closed := begin(t, r.client.Close)
	closed()
	close(open)
	read()
}
