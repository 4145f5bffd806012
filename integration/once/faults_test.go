package once

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The process dies in the middle of a run: nobody else starts before its lease has
// ended, and then somebody does.
func TestTheProcessDiesInTheMiddle(t *testing.T) {
	x := newScene(t, redlatch.WithLeaseTime(time.Second))
	end := running(t, x.Server, t.Context(), x.c)
	x.proxy.Refuse() // it is dead as far as the server can tell
	x.proxy.Cut()
	ran := false
	for deadline := time.Now().Add(bed.Patience); !ran && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		held, err := x.Int(t, "EXISTS", "report") == 1, error(nil)
		ran, err = x.other.Once("report").Do(t.Context(), time.Second, nothing)
		switch {
		case ran && (err != nil || x.Int(t, "EXISTS", "report") == 1):
			t.Errorf("a run beside the lease of the dead one: %v", err)
		case errors.Is(err, redlatch.ErrUnavailable): // a busy machine's server
			testbed.Untested(t, "one try of a run beside a dead one's lease: %v", err)
		case err != nil && (!errors.Is(err, redlatch.ErrNotAcquired) || !held):
			t.Fatal(err)
		}
	}
	testbed.Equal(t, ran, true, "somebody ran after the lease of the dead one")
	x.proxy.Admit(t)
	bed.Want(t, end(), redlatch.ErrLeaseLost)
}

// The retry of a claim whose reply was lost recognises itself: fn runs once, and the period is used up once.
func TestALostReplyIsNoSecondRun(t *testing.T) {
	x := newScene(t)
	trap := x.proxy.DropReply(testbed.Contains("EVALSHA", luascript.Once.SHA))
	runs := 0
	ran, err := x.c.Once("report").Do(t.Context(), hour, func(context.Context) error { runs++; return nil })
	trap.Wait(t)
	if !ran || err != nil || runs != 1 {
		t.Fatal(ran, err, runs)
	}
	tick := record(t, x.Server, "report")
	testbed.Between(t, now(t, x.Server)-tick, 0, bed.Patience.Milliseconds(), "milliseconds since the period began")
	testbed.Equal(t, must(t, x.other.Once("report"), hour), false, "ran a second time")
}

// A claim that was given up while it was on its way arrives after the undoing: refused.
func TestALateCommandOfAGivenUpClaimIsRefused(t *testing.T) {
	x := newScene(t)
	trap := x.proxy.DropRequest(testbed.Contains("EVALSHA", luascript.Once.SHA))
	undone := x.proxy.CopyRequest(testbed.Contains("EVALSHA", luascript.OnceUndo.SHA))
	x.proxy.Refuse() // no second try before the undoing
	ctx, cancel := context.WithCancel(t.Context())
	refused := call(ctx, x.c, hour, nothing)
	trap.Wait(t)
	cancel()
	bed.Want(t, <-refused, context.Canceled)
	x.proxy.Admit(t)
	undone.Wait(t)
	exists(t, x.Server, luascript.VoidKey("report"), 1)
	gone(t, x.Server)
	testbed.Equal(t, trap.Deliver(t), "*1\r\n:-1\r\n", "the answer to the late command")
	testbed.Equal(t, records(t, x.Server), 0, "periods that it used up")
}

// While the server is away, Do tries until the next tick is at hand, or ctx ends.
func TestAnUnreachableServer(t *testing.T) {
	x := newScene(t, redlatch.WithLeaseTime(3*time.Second))
	o := x.c.Once("report")
	x.proxy.Refuse()
	x.proxy.Cut()
	ran, err := o.Do(t.Context(), outage, nothing)
	if ran || !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(ran, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), outage)
	defer cancel()
	ran, err = o.Do(ctx, hour, nothing)
	if ran || !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(ran, err)
	}
	if _, err := o.Reset(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redlatch.ErrUnavailable) {
		t.Error(err)
	}
	x.proxy.Admit(t)
	testbed.Equal(t, must(t, o, hour), true, "ran when the server was back")
}

// Too few replicas: the claim is undone, and the error says so.
func TestReplicaAcks(t *testing.T) {
	x := newScene(t, func(c *redlatch.Config) { c.ReplicaAcks, c.ReplicaAckTimeout = 1, 50*time.Millisecond })
	ran, err := x.c.Once("report").Do(t.Context(), hour, nothing)
	testbed.Equal(t, ran, false, "ran")
	bed.Want(t, err, redlatch.ErrReplicaAcks)
	testbed.Equal(t, records(t, x.Server), 0, "claims that were not undone")
}
