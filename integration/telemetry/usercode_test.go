package telemetry

import (
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// theWhole reports whether a name is that of a MultiLock over a and b.
func theWhole(name string) bool { return strings.Contains(name, "a") && strings.Contains(name, "b") }

// TestBlockedCodeDoesNotDelayTheLossOfAWhole: the section of a MultiLock hears of the loss first,
// whatever the code does that is told of it.
func TestBlockedCodeDoesNotDelayTheLossOfAWhole(t *testing.T) {
	var blocks atomic.Bool
	open := make(chan struct{})
	r := newRig(t, leaseTime(checked), func(c *redlatch.Config) {
		c.Telemetry.LockName = func(name string) string {
			if theWhole(name) && blocks.Load() {
				<-open
			}
			return name
		}
	})
	h := must[redlatch.Hold](t)(redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("b")).Lock(t.Context()))
	blocks.Store(true)
	r.server.Int(t, "DEL", "a")
	select {
	case <-h.Context().Done():
	case <-time.After(patience):
		t.Error("the context of the lost hold goes on")
	}
	close(open)
	_ = h.Unlock(t.Context())
}

// TestPanicOfAWholesCode: a panic in the code that is told of a MultiLock, or of its members, costs nobody
// anything, whichever of the calls it was: the lock is acquired, and its members are free when it is unlocked.
func TestPanicOfAWholesCode(t *testing.T) {
	t.Run("whole", func(t *testing.T) { panicsInCalls(t, theWhole) })
	t.Run("members", func(t *testing.T) { panicsInCalls(t, func(name string) bool { return !theWhole(name) }) })
}

func panicsInCalls(t *testing.T, of func(name string) bool) {
	var left atomic.Int64 // calls until one panics; below zero: none does
	bad := func(c *redlatch.Config) {
		c.Telemetry.LockName = func(name string) string {
			if of(name) && left.Add(-1) == 0 {
				panic("a template of the user's")
			}
			return name
		}
	}
	r := newRig(t, bad)
	other := r.open(bad)
	wholes := map[string]redlatch.Locker{
		"one client": redlatch.MultiLock(r.client.RLock("a"), r.client.RLock("b")),
		"two":        redlatch.MultiLock(r.client.RLock("a"), other.RLock("b")),
		"fair":       redlatch.MultiLock(r.client.FairLock("a"), r.client.FairLock("b")),
	}
	for what, whole := range wholes {
		panics := 0
		for n := int64(1); ; n++ {
			left.Store(n)
			unlock(t, must[redlatch.Hold](t)(whole.Lock(t.Context())))
			eventually(t, what, func() bool { return r.server.Int(t, "EXISTS", "a", "b") == 0 })
			eventually(t, what, func() bool { return !running("redlatch/multilock.") })
			if left.Swap(-1) > 0 { // there is no such call
				break
			}
			panics++
		}
		if panics < 2 {
			t.Errorf("%s: %d panics, some were expected when it is acquired and when it is unlocked", what, panics)
		}
	}
	left.Store(-1)
}

// A panic in the code that is told of a majority of copies, which are asked in goroutines, costs
// nobody anything.
func TestPanicOfAQuorumsCode(t *testing.T) {
	var left atomic.Int64
	bad := func(c *redlatch.Config) {
		c.Telemetry.LockName = func(name string) string {
			if left.Add(-1) == 0 {
				panic("a template of the user's")
			}
			return name
		}
	}
	r := newRig(t, bad)
	at := func(s *testbed.Server) setting {
		return func(c *redlatch.Config) { c.Redis.InitAddress = []string{s.Addr()} }
	}
	second, third := testbed.Standalone(t), testbed.Standalone(t)
	q := redlatch.QuorumLock(r.client.RLock("q"), r.open(bad, at(second)).RLock("q"), r.open(at(third)).RLock("q"))
	left.Store(-1)
	h := must[redlatch.Hold](t)(q.Lock(t.Context())) // a young server's first copies are all needed
	if err := h.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	third.Kill(t) // both others are needed now
	free := func() bool { return r.server.Int(t, "EXISTS", "q")+second.Int(t, "EXISTS", "q") == 0 }
	panics := 0
	for n := int64(1); ; n++ {
		left.Store(n)
		h := must[redlatch.Hold](t)(q.Lock(t.Context()))
		if err := h.Extend(t.Context(), time.Minute/4); err != nil {
			t.Error(err)
		}
		unlock(t, h)
		eventually(t, "all copies free", free)
		eventually(t, "nobody at work", func() bool { return !running("redlatch/multilock.") })
		if left.Swap(-1) > 0 { // there is no such call
			break
		}
		panics++
	}
	if panics < 12 {
		t.Errorf("%d calls", panics)
	}
}

// running reports whether a goroutine is in code of that package, or was started there.
func running(pkg string) bool {
	stacks := make([]byte, 4<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), pkg)
}

// TestEndOfAQuorumIsToldBeforeCloseReturns: the Close that takes the majority waits until that is told,
// though the client of the first copy, whose observer hears of it, was closed before.
func TestEndOfAQuorumIsToldBeforeCloseReturns(t *testing.T) {
	var told atomic.Bool
	slow := func(c *redlatch.Config) {
		c.Telemetry.LockName = func(name string) string {
			if strings.Contains(string(debug.Stack()), "multilock.(*hold).toTell") {
				time.Sleep(200 * time.Millisecond)
				told.Store(true)
			}
			return name
		}
	}
	r := newRig(t, slow)
	cs, copies := []*redlatch.Client{r.client}, []redlatch.Member{r.client.RLock("q")}
	for range 2 {
		s := testbed.Standalone(t)
		c := r.open(slow, func(c *redlatch.Config) { c.Redis.InitAddress = []string{s.Addr()} })
		cs, copies = append(cs, c), append(copies, c.RLock("q"))
	}
	h := must[redlatch.Hold](t)(redlatch.QuorumLock(copies...).Lock(t.Context()))
	cs[0].Close()
	if h.Context().Err() != nil || told.Load() {
		t.Fatal("two of three copies are held: the whole is")
	}
	cs[1].Close()
	if h.Context().Err() == nil || !told.Load() {
		t.Errorf("Close returned: the hold has ended %t, that was told %t", h.Context().Err() != nil, told.Load())
	}
	_ = h.Unlock(t.Context())
}

// attempt reports whether f returned; it has panicked otherwise.
func attempt[T any](f func() T) (got T, over bool) {
	defer func() {
		if !over {
			_ = recover()
		}
	}()
	got = f()
	return got, true
}
