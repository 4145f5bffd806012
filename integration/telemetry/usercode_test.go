package telemetry

import (
	"context"
	"errors"
	"runtime"
	"runtime/debug"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	sdktrace "go.opentelemetry.io/otel/sdk/trace"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// nosy is code of the user's that calls back: where it is asked for a lock's name, and where a span begins or ends.
type nosy struct{ called func(name string) }

func (n nosy) config(c *redlatch.Config) {
	c.Telemetry.LockName = func(name string) string {
		n.called(name)
		return name
	}
}

func (n nosy) OnStart(_ context.Context, s sdktrace.ReadWriteSpan) { n.span(s) }
func (n nosy) OnEnd(s sdktrace.ReadOnlySpan)                       { n.span(s) }
func (n nosy) span(s sdktrace.ReadOnlySpan)                        { n.called(valueOf(s.Attributes(), "lock.name")) }
func (nosy) Shutdown(context.Context) error                        { return nil }
func (nosy) ForceFlush(context.Context) error                      { return nil }

// at sends the client to another server.
func at(s *testbed.Server) setting {
	return func(c *redlatch.Config) { c.Redis.InitAddress = []string{s.Addr()} }
}

// whole reports whether a name is that of a MultiLock or QuorumLock.
func whole(name string) bool { return strings.HasPrefix(name, "[") }

// running reports whether a goroutine is in code of that package, or was started there.
func running(pkg string) bool {
	stacks := make([]byte, 4<<20)
	return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), pkg)
}

// TestPanicOfTheCodeThatIsTold: a panic in the code that is told of a MultiLock, of its members or of an operator's
// command costs nobody anything, whichever of the calls it was: the lock is acquired, extended and free when it is
// unlocked, and the operator has his answer.
func TestPanicOfTheCodeThatIsTold(t *testing.T) {
	var wholes, parts atomic.Int64 // calls until one panics; below zero: none does
	n := nosy{func(name string) {
		left := &parts
		if whole(name) {
			left = &wholes
		}
		if left.Add(-1) == 0 {
			panic("code of the user's")
		}
	}}
	r := newRig(t, n.config)
	second, third := testbed.Standalone(t), testbed.Standalone(t)
	c, far := r.client, r.open(n.config, at(second))
	quorum := redlatch.QuorumLock(c.RLock("q"), far.RLock("q"), r.open(at(third)).RLock("q"))
	bed.Unlock(t, bed.Lock(t, t.Context(), quorum)) // a young server's first copies are all needed
	third.Kill(t)                                   // both others are needed now
	r.tracing.RegisterSpanProcessor(n)
	turn := func(l redlatch.Locker) func(t *testing.T) {
		return func(t *testing.T) {
			t.Helper()
			h := bed.Lock(t, t.Context(), l)
			bed.Want(t, h.Extend(t.Context(), time.Minute/4), nil)
			bed.Unlock(t, h)
			bed.Eventually(t, "all is free, and nobody at work", func() bool {
				held := r.server.Int(t, "EXISTS", "a", "b", "q") + second.Int(t, "EXISTS", "b", "q")
				return held == 0 && !running("redlatch/multilock.")
			})
		}
	}
	operate := func(t *testing.T) {
		t.Helper()
		_, inspected := c.Inspect(t.Context(), "held")
		_, looked := c.RLock("held").State(t.Context())
		_, forced := c.ForceUnlock(t.Context(), "none")
		bed.Want(t, errors.Join(inspected, looked, forced), nil)
	}
	bed.Lock(t, t.Context(), c.RLock("held"))
	for what, do := range map[string]func(t *testing.T){
		"locks of one client": turn(redlatch.MultiLock(c.RLock("a"), c.RLock("b"))),
		"locks of two":        turn(redlatch.MultiLock(c.RLock("a"), far.RLock("b"))),
		"locks that are fair": turn(redlatch.MultiLock(c.FairLock("a"), c.FairLock("b"))),
		"a quorum":            turn(quorum),
		"an operator":         operate,
	} {
		for whom, left := range map[string]*atomic.Int64{"the whole": &wholes, "its parts": &parts} {
			if whom == "the whole" && !strings.HasPrefix(what, "locks") {
				continue // it has no name of its own
			}
			t.Run(what+"/"+whom, func(t *testing.T) {
				panics := 0
				for n := int64(1); !t.Failed(); n++ {
					left.Store(n)
					do(t)
					if left.Swap(-1) > 0 { // there is no such call
						break
					}
					panics++
				}
				testbed.AtLeast(t, panics, 6, "panics, some in each of the calls")
			})
		}
	}
	parts.Store(-1)
}

// TestWhatIsToldMayAskTheHold: what is told of a MultiLock's hold and its end is told under no mutex of the hold, so
// that code which looks at the hold does not stand still.
func TestWhatIsToldMayAskTheHold(t *testing.T) {
	var now atomic.Pointer[redlatch.Hold]
	looked := atomic.Int64{}
	r := newRig(t, redlatch.WithLeaseTime(checked), nosy{func(string) {
		if h := now.Load(); h != nil {
			_, _ = (*h).ValidUntil(), (*h).Token()
			looked.Add(1)
		}
	}}.config)
	for _, how := range []string{"released", "lost"} {
		h := bed.Lock(t, t.Context(), redlatch.MultiLock(r.client.RLock("a"), r.client.FairLock("b")))
		now.Store(&h)
		before := looked.Load()
		within(t, how, began(func() {
			if how == "lost" {
				r.server.Do(t, "DEL", "a")
				<-h.Context().Done()
			}
			_ = h.Unlock(context.Background())
		}))
		testbed.AtLeast(t, looked.Load(), before+1, how, "what was told")
		now.Store(nil)
	}
}

// TestEndOfAQuorumIsToldBeforeCloseReturns: the Close that takes the majority waits until that is told,
// though the client of the first copy, whose observer hears of it, was closed before.
func TestEndOfAQuorumIsToldBeforeCloseReturns(t *testing.T) {
	var told atomic.Bool
	slow := nosy{func(string) {
		if strings.Contains(string(debug.Stack()), "multilock.(*hold).toTell") {
			time.Sleep(200 * time.Millisecond)
			told.Store(true)
		}
	}}.config
	r := newRig(t, slow)
	copies := []redlatch.Member{r.client.RLock("q")}
	for range 2 {
		copies = append(copies, r.open(slow, at(testbed.Standalone(t))).RLock("q"))
	}
	h := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies...))
	r.client.Close()
	if h.Context().Err() != nil || told.Load() {
		t.Fatal("two of three copies are held: the whole is")
	}
	r.clients[1].Close()
	if h.Context().Err() == nil || !told.Load() {
		t.Errorf("Close returned: the hold has ended %t, that was told %t", h.Context().Err() != nil, told.Load())
	}
	_ = h.Unlock(t.Context())
}

// An operator's late command is told of in the background: no call waits for it any more.
func TestAnOperatorsLateCommandIsToldOfInTheBackground(t *testing.T) {
	r := newRig(t)
	var told atomic.Value // where the last span was told of
	r.tracing.RegisterSpanProcessor(nosy{func(string) { told.Store(string(debug.Stack())) }})
	inBackground := func() bool { return strings.Contains(told.Load().(string), "observe.(*News)") }
	if _, err := r.client.Inspect(t.Context(), "a"); err != nil || inBackground() {
		t.Errorf("the end of a command that was waited for, %v, was told by %v", err, told.Load())
	}
	r.server.Freeze(t)
	_, err := r.client.Inspect(t.Context(), "a")
	r.server.Thaw(t)
	bed.Want(t, err, redlatch.ErrUnavailable)
	bed.Eventually(t, "its end is told in the background", inBackground)
}

// A loss is logged before Close returns, also when it is found while Close runs. Who finds it ends
// the hold's context first, which takes a while here, and tells of it afterwards.
func TestALossIsLoggedBeforeCloseReturns(t *testing.T) {
	r := newRig(t, redlatch.WithLeaseTime(checked), off)
	h := bed.Lock(t, t.Context(), r.client.RLock("a"))
	cancels := make([]context.CancelFunc, 200_000)
	for i := range cancels {
		_, cancels[i] = context.WithCancel(h.Context())
	}
	r.server.Int(t, "DEL", "a")
	<-h.Context().Done()
	r.client.Close()
	testbed.Equal(t, len(r.log.lines(t, "lease lost")), 1, "lines in the log")
	for _, cancel := range cancels {
		cancel()
	}
}
