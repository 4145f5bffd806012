package main

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/redlatchtest"
)

// TestEachTickOnce: three replicas, whose clocks are wrong by up to 80 ms, tick three times; each tick has one run.
func TestEachTickOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const ticks, period = 3, 2 * time.Second
		server := redlatchtest.NewServer(t)
		ctx, stop := context.WithCancel(t.Context())
		start := time.Now().Add(period)
		var runs []time.Duration // one replica runs at a time, under the job's lock
		var replicas sync.WaitGroup
		for _, skew := range []time.Duration{-20 * time.Millisecond, 0, 80 * time.Millisecond} {
			clock := make(chan time.Time)
			replicas.Go(func() {
				every(ctx, clock, server.Client().Once("report"), period, func(context.Context) error {
					runs = append(runs, time.Since(start).Round(period))
					return nil
				})
			})
			replicas.Go(func() {
				for tick := range ticks {
					time.Sleep(time.Until(start.Add(skew + time.Duration(tick)*period)))
					clock <- time.Now()
				}
			})
		}
		time.Sleep((ticks + 1) * period)
		stop()
		replicas.Wait()
		if want := []time.Duration{0, period, 2 * period}; !slices.Equal(runs, want) {
			t.Errorf("runs at %v, want %v", runs, want)
		}
	})
}
