package once

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A claim's command that comes when the next period is due claims nothing, after its retry was told
// that the period is used up.
func TestALateClaimAfterItsRetryWasRefused(t *testing.T) {
	s := server(t)
	const period = time.Second
	must(t, dial(t, s.Addr()).Once("report"), period)
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr())
	trap := p.DropRequest(testbed.Contains("EVALSHA", luascript.Once.SHA))
	if must(t, c.Once("report"), period) {
		t.Fatal("ran")
	}
	trap.Wait(t)
	time.Sleep(period)
	if reply := trap.Deliver(t); reply != "*1\r\n:-1\r\n" {
		t.Errorf("the late command was answered with %q", reply)
	}
	if !must(t, c.Once("report"), period) {
		t.Error("nobody ran in this period")
	}
}

// The retry is granted, and the claim's first command comes when the next period is due: it must
// not use that up.
func TestALateClaimAfterItsRetryWasGranted(t *testing.T) {
	s := server(t)
	const period = time.Second
	p := testbed.NewProxy(t, s.Addr())
	c := dial(t, p.Addr())
	trap := p.DropRequest(testbed.Contains("EVALSHA", luascript.Once.SHA))
	if !must(t, c.Once("report"), period) {
		t.Fatal("did not run")
	}
	trap.Wait(t)
	time.Sleep(period)
	if reply := trap.Deliver(t); reply != "*1\r\n:-1\r\n" {
		t.Errorf("the late command was answered with %q", reply)
	}
	if !must(t, dial(t, s.Addr()).Once("report"), period) {
		t.Error("nobody ran in this period")
	}
}
