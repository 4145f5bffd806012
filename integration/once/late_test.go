package once

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A claim's first command that comes when the next period is due claims nothing, for nobody: whether its retry was told
// that the period is used up, or granted.
func TestALateClaim(t *testing.T) {
	for _, granted := range []bool{false, true} {
		t.Run(map[bool]string{false: "after its retry was refused", true: "after its retry was granted"}[granted], func(t *testing.T) {
			x := newScene(t)
			const period = time.Second
			if !granted {
				must(t, x.other.Once("report"), period)
			}
			trap := x.proxy.DropRequest(testbed.Contains("EVALSHA", luascript.Once.SHA))
			testbed.Equal(t, must(t, x.c.Once("report"), period), granted, "the retry was granted")
			trap.Wait(t)
			gone(t, x.Server)
			testbed.Equal(t, trap.Deliver(t), "*1\r\n:-1\r\n", "the answer to the late command")
			testbed.Equal(t, must(t, x.other.Once("report"), period), true, "somebody ran in this period")
		})
	}
}
