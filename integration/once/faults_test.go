package once

import (
	"context"
	"errors"
	"strings"
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
	x := newScene(t, leaseTime(time.Second))
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
	if !ran {
		t.Error("nobody ran after the lease of the dead one")
	}
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
	tick, _ := record(t, x.Server, "report")
	if d := now(t, x.Server) - tick; d < 0 || d > bed.Patience.Milliseconds() {
		t.Errorf("the period began %d ms ago", d)
	}
	if must(t, x.other.Once("report"), hour) {
		t.Error("a second run")
	}
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
	if err := <-refused; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	x.proxy.Admit(t)
	undone.Wait(t)
	exists(t, x.Server, luascript.VoidKey("report"), 1)
	gone(t, x.Server)
	if reply := trap.Deliver(t); !strings.Contains(reply, ":-1") {
		t.Errorf("the late command was answered %q", reply)
	}
	if _, found := record(t, x.Server, "report"); found {
		t.Error("it used up the period")
	}
}

// While the server is away, Do tries until the next tick is at hand, or ctx ends.
func TestAnUnreachableServer(t *testing.T) {
	x := newScene(t, leaseTime(3*time.Second))
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
	if !must(t, o, hour) {
		t.Error("did not run when the server was back")
	}
}

// Too few replicas: the claim is undone, and the error says so.
func TestReplicaAcks(t *testing.T) {
	x := newScene(t, func(c *redlatch.Config) { c.ReplicaAcks, c.ReplicaAckTimeout = 1, 50*time.Millisecond })
	ran, err := x.c.Once("report").Do(t.Context(), hour, nothing)
	if ran || !errors.Is(err, redlatch.ErrReplicaAcks) {
		t.Error(ran, err)
	}
	if _, found := record(t, x.Server, "report"); found {
		t.Error("the claim was not undone")
	}
}
