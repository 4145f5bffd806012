package once

import (
	"strconv"
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A Reset that comes late deletes nothing when its retry was faster, and another run has begun: the
// period has its run.
func TestALateResetDoesNotForgetALaterRun(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr())
	if !must(t, c.Once("report"), hour) {
		t.Fatal("did not run")
	}
	tick, _ := record(t, s, "report")
	trap := p.DropRequest(testbed.Contains("EVALSHA", luascript.OnceReset.SHA, strconv.FormatInt(tick, 10)))
	if ok, err := c.Once("report").Reset(t.Context()); !ok || err != nil {
		t.Fatal(ok, err)
	}
	trap.Wait(t)
	if !must(t, c.Once("report"), hour) {
		t.Fatal("did not run after the Reset")
	}
	trap.Deliver(t)
	if must(t, c.Once("report"), hour) {
		t.Error("a second run in a period")
	}
}

// The reply to a Reset is lost: it did forget the run, and says so.
func TestAResetWhoseReplyIsLost(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr())
	must(t, c.Once("report"), hour)
	tick, _ := record(t, s, "report")
	trap := p.DropReply(testbed.Contains("EVALSHA", luascript.OnceReset.SHA, strconv.FormatInt(tick, 10)))
	if ok, err := c.Once("report").Reset(t.Context()); !ok || err != nil {
		t.Error(ok, err)
	}
	trap.Wait(t)
	if !must(t, c.Once("report"), hour) {
		t.Error("did not run after the Reset")
	}
}
