package borrow

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Subscriptions end, and the program lives, though scripts of others run past the server's limit
// again and again, and it says BUSY to all meanwhile: on a connection of the application's the
// client library would panic if it met that answer behind an UNSUBSCRIBE, so none is sent.
func TestSubscriptionsEndBesideABusyServer(t *testing.T) {
	t.Parallel()
	for _, shape := range []string{"defaults", "always pipelining", "RESP2"} {
		t.Run(shape, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			client, opt := app(t, s.Addr(), shapes[shape], func(o *rueidis.ClientOption) { o.ConnWriteTimeout = 5 * time.Second })
			c := with(t, client, func(c *redlatch.Config) { c.Redis = opt })
			other, _ := app(t, s.Addr())
			keeper := with(t, other)
			var holds []redlatch.Hold
			for i := range 8 {
				holds = append(holds, bed.Lock(t, t.Context(), keeper.RLock(fmt.Sprint("n", i))))
			}
			s.Do(t, "CONFIG", "SET", "lua-time-limit", "20")
			var all, hog sync.WaitGroup
			over := make(chan struct{})
			hog.Go(func() { keepBusy(t, s, over) }) // ends with over
			for i := range 8 {
				all.Go(func() {
					for end := time.Now().Add(4 * time.Second); time.Now().Before(end); {
						_, err := c.RLock(fmt.Sprint("n", i)).TryLock(t.Context(), 50*time.Millisecond, 0)
						if _, waited := errors.AsType[*redlatch.NotAcquiredError](err); !waited {
							t.Error(err)
						}
						time.Sleep(600 * time.Millisecond) // a subscription outlives its last waiter by half a second
					}
				})
			}
			all.Wait()
			close(over)
			hog.Wait()
			next := bed.Async(t.Context(), c.RLock("n0"))
			bed.Unlock(t, holds...)
			bed.Unlock(t, bed.Hold(t, next))
			calls := s.CommandStats(t).Calls
			testbed.AtMost(t, calls["unsubscribe"]+calls["sunsubscribe"]+calls["punsubscribe"], 0, "UNSUBSCRIBE on an application's connections")
			works(t, client)
		})
	}
}

// keepBusy runs scripts that last for longer than the server's limit, until over is closed.
func keepBusy(t *testing.T, s *testbed.Server, over <-chan struct{}) {
	client, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	if err != nil {
		t.Error(err)
		return
	}
	defer client.Close()
	const script = "local t = redis.call('TIME') local from = t[1] * 1000000 + t[2] repeat t = redis.call('TIME') until t[1] * 1000000 + t[2] - from > 40000"
	for {
		select {
		case <-over:
			return
		case <-time.After(5 * time.Millisecond):
			_ = client.Do(context.Background(), client.B().Eval().Script(script).Numkeys(0).Build()).Error() // BUSY as well
		}
	}
}

// TestManySubscriptionsEndTogether: channels that nobody waits on any more stay with an application's
// connection, but not for as long as somebody waits on another one: with many of them it is left for a
// new connection, and who waits still hears.
func TestManySubscriptionsEndTogether(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	client, opt := app(t, s.Addr())
	c := with(t, client, func(c *redlatch.Config) { c.Redis = opt })
	other, _ := app(t, s.Addr())
	keeper := with(t, other)
	h := bed.Lock(t, t.Context(), keeper.RLock("kept"))
	const many = 1100
	for i := range many {
		s.Do(t, "HSET", fmt.Sprint("n", i), "6d4e6c1a-0000-4000-8000-000000000002:1", "1")
		s.Do(t, "PEXPIRE", fmt.Sprint("n", i), "60000")
	}
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(t.Context())
	for i := range many {
		all.Go(func() {
			_, err := c.RLock(fmt.Sprint("n", i)).Lock(ctx)
			bed.Want(t, err, context.Canceled)
		})
	}
	next := bed.Async(t.Context(), c.RLock("kept"))
	channels := func() int { return len(s.List(t, "PUBSUB", "CHANNELS")) }
	bed.Eventually(t, "all wait", func() bool { return channels() > many })
	cancel()
	all.Wait()
	bed.Eventually(t, "one waits", func() bool { n := channels(); return n > 0 && n < 10 })
	began := time.Now()
	bed.Unlock(t, h)
	after := bed.Hold(t, next)
	// Without a message it would be a third of the lease, or more.
	testbed.AtMost(t, time.Since(began), 5*time.Second, "the waiter got it after")
	bed.Unlock(t, after)
	for i := range many {
		s.Do(t, "DEL", fmt.Sprint("n", i))
	}
}
