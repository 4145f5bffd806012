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

// A call during a run that is longer than its period claims nothing: another one hears of the run, too, and not that the
// period has its run, though the first has not heard yet; and nothing is lost if the first dies.
func TestACallDuringALongRunClaimsNothing(t *testing.T) {
	x := newScene(t)
	end := running(t, x.Server, t.Context(), bed.Client(t, x.Addr()))
	trap := x.proxy.StallReply(testbed.Contains("EVALSHA", luascript.Once.SHA))
	first := call(t.Context(), x.c, hour, never(t))
	trap.Wait(t)
	_, err := x.other.Once("report").Do(t.Context(), hour, never(t))
	isBusy(t, err, false)
	trap.Release()
	isBusy(t, <-first, false)
	bed.Want(t, end(), nil)
}

// taken begins a call through the proxy whose lock is taken by hand between its claim and its attempt to get it. The
// attempt is stalled until the trap is released.
func taken(ctx context.Context, t *testing.T, x scene, period time.Duration) (trap *testbed.Trap, done <-chan error) {
	t.Helper()
	trap = x.proxy.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
	done = call(ctx, x.c, period, never(t))
	trap.Wait(t)
	h := bed.Lock(t, t.Context(), x.other.RLock("report"))
	t.Cleanup(func() { bed.Unlock(t, h) })
	return trap, done
}

// What a call gives back that claimed the period and did not get the lock is the record as it was.
func TestGivingBackRestoresTheLastRun(t *testing.T) {
	x := newScene(t)
	last := now(t, x.Server) - 950_000 // a call in the last tenth is early
	x.Do(t, "SET", luascript.OnceKey("report"), itoa(last)+" x 0", "PX", "50000")
	trap, done := taken(t.Context(), t, x, 1000*time.Second)
	if record(t, x.Server, "report") == last {
		t.Error("nothing was claimed: the test tests nothing")
	}
	trap.Release()
	isBusy(t, <-done, false)
	testbed.Equal(t, record(t, x.Server, "report"), last, "the record")
	testbed.Between(t, x.Int(t, "PTTL", luascript.OnceKey("report")), 1, 50_000, "ms of the record")
}

// A period is given back though the server could not be reached until the caller had left: its ctx ended between two
// tries, or the time for an answer was over.
func TestGivingBackGoesOnWithoutTheCaller(t *testing.T) {
	for _, leaves := range []bool{true, false} {
		t.Run(map[bool]string{true: "ctx ended", false: "UnlockTimeout was over"}[leaves], func(t *testing.T) {
			x := newScene(t, func(c *redlatch.Config) { c.UnlockTimeout = outage })
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			trap, done := taken(ctx, t, x, hour)
			lost := x.proxy.DropRequest(testbed.Contains("EVALSHA", luascript.OnceUndo.SHA))
			x.proxy.Refuse()
			trap.Release()
			lost.Wait(t)
			if leaves {
				cancel()
			}
			err := <-done
			if errors.Is(err, redlatch.ErrUnavailable) == leaves || errors.Is(err, redlatch.ErrNotAcquired) != leaves {
				t.Error(err)
			}
			oneLine(t, err)
			testbed.Equal(t, records(t, x.Server), 1, "claims that are there still: without one this tests nothing")
			x.proxy.Admit(t)
			gone(t, x.Server)
		})
	}
}

// That the server refuses to give a period back is told as well, on one line.
func TestGivingBackIsRefused(t *testing.T) {
	x := newScene(t)
	trap, done := taken(t.Context(), t, x, hour)
	x.Do(t, "DEL", luascript.OnceKey("report"))
	x.Do(t, "HSET", luascript.OnceKey("report"), "no", "record")
	trap.Release()
	err := <-done
	_ = bed.As[*redlatch.ServerError](t, err)
	bed.Want(t, err, redlatch.ErrNotAcquired)
	oneLine(t, err)
}

// Who leaves, wherever its call waits for the server, returns at once, and gives the period back as soon as the server
// answers: before Close returns, if that is what ended the call.
func TestWhoLeavesGivesThePeriodBack(t *testing.T) {
	for where, stall := range map[string]func(p *testbed.Proxy) *testbed.Trap{
		"the claim is on its way": func(p *testbed.Proxy) *testbed.Trap {
			return p.StallRequest(testbed.Contains("EVALSHA", luascript.Once.SHA))
		},
		"its answer is": func(p *testbed.Proxy) *testbed.Trap {
			return p.StallReply(testbed.Contains("EVALSHA", luascript.Once.SHA))
		},
		"the lock is asked for": func(p *testbed.Proxy) *testbed.Trap {
			return p.StallRequest(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
		},
		"and granted": func(p *testbed.Proxy) *testbed.Trap {
			return p.StallReply(testbed.Contains("EVALSHA", luascript.Acquire.SHA))
		},
	} {
		for _, closes := range []bool{false, true} {
			t.Run(where+map[bool]string{true: "/Close", false: "/ctx ends"}[closes], func(t *testing.T) {
				x := newScene(t, func(c *redlatch.Config) { c.UnlockTimeout = 2 * bed.Patience })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				trap := stall(x.proxy)
				done, closed := call(ctx, x.c, hour, never(t)), make(chan struct{})
				trap.Wait(t)
				if where != "the claim is on its way" && records(t, x.Server) == 0 {
					t.Error("nothing was claimed: the test tests nothing")
				}
				x.proxy.Refuse() // no new connection either
				want := []error{redlatch.ErrNotAcquired, context.Canceled}
				if closes {
					want = []error{redlatch.ErrClosed}
					go func() { x.c.Close(); close(closed) }()
				} else {
					close(closed)
					cancel()
				}
				select {
				case err := <-done:
					for _, w := range want {
						if !errors.Is(err, w) || errors.Is(err, redlatch.ErrUnavailable) {
							t.Error(err)
						}
					}
				case <-time.After(bed.Patience):
					t.Error("Do waits for the server after its end")
				}
				x.proxy.Admit(t)
				trap.Release()
				if <-closed; closes {
					testbed.Equal(t, records(t, x.Server), 0, "periods that are used up by nobody")
				}
				// A claim that was held up runs now, and is undone behind it: nobody has the period for its hour.
				bed.Eventually(t, "another one runs", func() bool {
					ran, err := x.other.Once("report").Do(t.Context(), hour, nothing)
					if err != nil && !errors.Is(err, redlatch.ErrNotAcquired) {
						t.Fatal(err)
					}
					return ran
				})
			})
		}
	}
}

// A Client that shuts down claims nothing: else the others would hear that the period has its run until it had given that
// back, and nobody would run.
func TestShutdownClaimsNothing(t *testing.T) {
	x := newScene(t)
	h := bed.Lock(t, t.Context(), x.c.RLock("l"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	bed.Want(t, x.c.Shutdown(ctx), context.Canceled) // goes on taking no new locks
	before := x.CommandStats(t)
	if ran, err := x.c.Once("report").Do(t.Context(), hour, never(t)); ran || !errors.Is(err, redlatch.ErrClosed) {
		t.Error(ran, err)
	}
	testbed.AtMost(t, x.CommandStats(t).Sub(before).Calls["evalsha"], 0, "times that the server was asked")
	bed.Unlock(t, h)
}
