package once

import (
	"testing"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A Reset whose reply is lost did forget the run, and says so; one that is on its way for long, and comes when another run
// has begun behind its faster retry, deletes nothing.
func TestAResetOnABadLine(t *testing.T) {
	for _, late := range []bool{false, true} {
		t.Run(map[bool]string{false: "its reply is lost", true: "its command is late"}[late], func(t *testing.T) {
			x := newScene(t)
			o := x.c.Once("report")
			must(t, o, hour)
			tick := record(t, x.Server, "report")
			set := map[bool]func(testbed.Match) *testbed.Trap{false: x.proxy.DropReply, true: x.proxy.DropRequest}[late]
			trap := set(testbed.Contains("EVALSHA", luascript.OnceReset.SHA, itoa(tick)))
			if ok, err := o.Reset(t.Context()); !ok || err != nil {
				t.Error(ok, err)
			}
			trap.Wait(t)
			testbed.Equal(t, must(t, o, hour), true, "ran after the Reset")
			if late {
				trap.Deliver(t)
			}
			testbed.Equal(t, must(t, o, hour), false, "ran a second time in a period")
		})
	}
}
