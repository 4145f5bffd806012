package once

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
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

// A claim that was given up and comes when its server has been out of reach for longer than a period is given back as
// soon as it is there again: nobody waits for the end of a period that has no run.
func TestALateClaimAfterALongOutage(t *testing.T) {
	x := newScene(t)
	const period = 4 * time.Second
	trap := x.proxy.DropRequest(testbed.Contains("EVALSHA", luascript.Once.SHA))
	x.proxy.Refuse()
	ctx, cancel := context.WithCancel(t.Context())
	left := call(ctx, x.c, period, nothing)
	trap.Wait(t)
	cancel()
	bed.Want(t, <-left, context.Canceled)
	time.Sleep(period + period/2)
	trap.Deliver(t)
	testbed.Equal(t, records(t, x.Server), 1, "periods that the late command claimed")
	claimed := time.Now()
	x.proxy.Admit(t)
	bed.Eventually(t, "given back", func() bool { return records(t, x.Server) == 0 })
	testbed.AtMost(t, time.Since(claimed), period*3/4, "it was given back after")
}
