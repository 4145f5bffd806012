package once

import (
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A Reset that is on its way for long, and comes when another run has begun behind its faster retry, deletes nothing.
func TestALateResetDoesNotForgetALaterRun(t *testing.T) {
	x := newScene(t)
	trap, reset := x.reset(t, (*testbed.Proxy).DropRequest)
	reset()
	if !must(t, x.c.Once("report"), hour) {
		t.Fatal("did not run after the Reset")
	}
	trap.Deliver(t)
	if must(t, x.c.Once("report"), hour) {
		t.Error("a second run in a period")
	}
}

// A Reset whose reply is lost did forget the run, and says so.
func TestAResetWhoseReplyIsLost(t *testing.T) {
	x := newScene(t)
	_, reset := x.reset(t, (*testbed.Proxy).DropReply)
	reset()
	if !must(t, x.c.Once("report"), hour) {
		t.Error("did not run after the Reset")
	}
}

// reset sets a trap for the command of a Reset, which the returned function makes, of a run that has just been.
func (x scene) reset(t *testing.T, set func(*testbed.Proxy, testbed.Match) *testbed.Trap) (*testbed.Trap, func()) {
	t.Helper()
	if !must(t, x.c.Once("report"), hour) {
		t.Fatal("did not run")
	}
	tick, _ := record(t, x.Server, "report")
	trap := set(x.proxy, testbed.Contains("EVALSHA", luascript.OnceReset.SHA, itoa(tick)))
	return trap, func() {
		t.Helper()
		if ok, err := x.c.Once("report").Reset(t.Context()); !ok || err != nil {
			t.Error(ok, err)
		}
		trap.Wait(t)
	}
}
