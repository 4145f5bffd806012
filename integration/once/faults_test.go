package once

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

func init() { testbed.Role("once-victim", victim) }

type victimArgs struct{ Addr string }

// victim begins a run and never ends it.
func victim(ctx context.Context, w *testbed.Worker) error {
	var a victimArgs
	if err := w.Args(&a); err != nil {
		return err
	}
	c, err := redlatch.Open("redis://"+a.Addr, redlatch.WithLeaseTime(time.Second))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = c.Once("report").Do(ctx, short, func(ctx context.Context) error {
		w.Say("running")
		<-ctx.Done()
		return ctx.Err()
	})
	return err
}

func itoa(n int64) string { return strconv.FormatInt(n, 10) }

// The process dies in the middle of a run: nobody else starts before its lease has
// ended, and then somebody does.
func TestTheProcessDiesInTheMiddle(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := bed.Client(t, s.Addr())
	p := testbed.Spawn(t, "once-victim", victimArgs{s.Addr()})
	p.Expect(t, "running")
	p.Kill(t)
	deadline := time.Now().Add(bed.Patience)
	for {
		held := s.Int(t, "EXISTS", "report") == 1
		ran, err := c.Once("report").Do(t.Context(), time.Second, nothing)
		if ran {
			if err != nil {
				t.Error(err)
			}
			if s.Int(t, "EXISTS", "report") == 1 {
				t.Error("a run beside the lease of the dead one")
			}
			return
		}
		slow := errors.Is(err, redlatch.ErrUnavailable) // a busy machine's server
		if slow {
			testbed.Untested(t, "one try of a run beside a dead one's lease: %v", err)
		}
		if err != nil && !slow && (!errors.Is(err, redlatch.ErrNotAcquired) || !held) {
			t.Fatal(err)
		}
		if time.Now().After(deadline) {
			t.Fatal("nobody ran after the lease of the dead one")
		}
		time.Sleep(10 * time.Millisecond)
	}
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
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := bed.Client(t, p.Addr())
	trap := p.DropRequest(testbed.Contains("EVALSHA", luascript.Once.SHA))
	ctx, cancel := context.WithCancel(t.Context())
	undone := p.CopyRequest(testbed.Contains("EVALSHA", luascript.OnceUndo.SHA))
	p.Refuse() // no second try before the undoing
	refuse := make(chan error, 1)
	go func() {
		_, err := c.Once("report").Do(ctx, hour, nothing)
		refuse <- err
	}()
	trap.Wait(t)
	cancel()
	if err := <-refuse; !errors.Is(err, context.Canceled) {
		t.Fatal(err)
	}
	p.Admit(t)
	undone.Wait(t)
	deadline := time.Now().Add(bed.Patience)
	for s.Int(t, "EXISTS", luascript.VoidKey("report")) == 0 && time.Now().Before(deadline) {
		time.Sleep(time.Millisecond)
	}
	gone(t, s)
	if reply := trap.Deliver(t); !strings.Contains(reply, ":-1") {
		t.Errorf("the late command was answered %q", reply)
	}
	if _, found := record(t, s, "report"); found {
		t.Error("it used up the period")
	}
}

// While the server is away, Do tries until the next tick is at hand, or ctx ends.
func TestAnUnreachableServer(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := bed.Client(t, p.Addr(), leaseTime(3*time.Second))
	p.Refuse()
	p.Cut()
	ran, err := c.Once("report").Do(t.Context(), outage, nothing)
	if ran || !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(ran, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), outage)
	defer cancel()
	ran, err = c.Once("report").Do(ctx, hour, nothing)
	if ran || !errors.Is(err, redlatch.ErrUnavailable) || errors.Is(err, redlatch.ErrNotAcquired) || !errors.Is(err, context.DeadlineExceeded) {
		t.Error(ran, err)
	}
	if _, err := c.Once("report").Reset(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, redlatch.ErrUnavailable) {
		t.Error(err)
	}
	p.Admit(t)
	if !must(t, c.Once("report"), hour) {
		t.Error("did not run when the server was back")
	}
}

// Too few replicas: the claim is undone, and the error says so.
func TestReplicaAcks(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.ReplicaAcks, c.ReplicaAckTimeout = 1, 50*time.Millisecond })
	ran, err := c.Once("report").Do(t.Context(), hour, nothing)
	if ran || !errors.Is(err, redlatch.ErrReplicaAcks) {
		t.Error(ran, err)
	}
	if _, found := record(t, s, "report"); found {
		t.Error("the claim was not undone")
	}
}
