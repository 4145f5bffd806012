package main

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestLoadedOnce: three replicas with many readers each miss at once; the source
// is asked once, everybody gets the same, and nobody sees half of it.
func TestLoadedOnce(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	var loads atomic.Int64
	load := func(context.Context) (prices, error) {
		n := int(loads.Add(1))
		time.Sleep(50 * time.Millisecond) // the others come meanwhile
		return prices{Currency: "EUR", Cents: n}, nil
	}
	var readers sync.WaitGroup
	for range 3 {
		redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(redis.Close)
		locks, err := redlatch.Open("redis://" + addr)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(locks.Close)
		replica := &cache{redis: redis, locks: locks, ttl: time.Minute, load: load}
		for range 20 {
			readers.Go(func() {
				if p, err := replica.get(t.Context()); err != nil || p != (prices{"EUR", 1}) {
					t.Errorf("got %+v, %v", p, err)
				}
			})
		}
	}
	readers.Wait()
	if loads.Load() != 1 {
		t.Errorf("the source was asked %d times", loads.Load())
	}
}

// TestTheFirstReaderLeaves: the refresh belongs to all who wait for it.
func TestTheFirstReaderLeaves(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	locks, err := redlatch.Open("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locks.Close)
	loading, goOn := make(chan struct{}), make(chan struct{})
	c := &cache{redis: redis, locks: locks, ttl: time.Minute, load: func(ctx context.Context) (prices, error) {
		close(loading)
		<-goOn
		return prices{"EUR", 7}, ctx.Err()
	}}
	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error, 1)
	go func() {
		_, err := c.get(ctx)
		left <- err
	}()
	<-loading
	leave()
	if err := <-left; err == nil {
		t.Error("the one who left got prices")
	}
	close(goOn)
	if p, err := c.get(t.Context()); err != nil || p.Cents != 7 {
		t.Errorf("the next one got %+v, %v", p, err)
	}
}
