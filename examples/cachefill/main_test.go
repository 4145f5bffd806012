package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// replica is an instance of the service.
func replica(t *testing.T, addr string, load func(context.Context) (string, error)) *cache {
	t.Helper()
	redis, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{addr}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(redis.Close)
	locks, err := redlatch.Open("redis://"+addr, redlatch.WithPrefix("lock:"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(locks.Close)
	return &cache{redis: redis, locks: locks, ttl: time.Minute, load: load}
}

// TestLoadedOnce: three replicas with many readers each miss at once; the source
// is asked once, and everybody gets the same.
func TestLoadedOnce(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	var loads atomic.Int64
	load := func(context.Context) (string, error) {
		time.Sleep(50 * time.Millisecond) // the others come meanwhile
		return strconv.FormatInt(loads.Add(1), 10), nil
	}
	var readers sync.WaitGroup
	for range 3 {
		c := replica(t, addr, load)
		for range 20 {
			readers.Go(func() {
				if value, err := c.get(t.Context(), "prices"); err != nil || value != "1" {
					t.Errorf("got %q, %v", value, err)
				}
			})
		}
	}
	readers.Wait()
	if loads.Load() != 1 {
		t.Errorf("the source was asked %d times", loads.Load())
	}
}

// TestTheLoaderLeaves: the reader that loads goes, and the next one in line loads.
func TestTheLoaderLeaves(t *testing.T) {
	loading := make(chan struct{})
	var loads atomic.Int64
	c := replica(t, testbed.Standalone(t).Addr(), func(ctx context.Context) (string, error) {
		if loads.Add(1) > 1 {
			return "7", nil
		}
		close(loading)
		<-ctx.Done()
		return "", ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left := make(chan error, 1)
	go func() {
		_, err := c.get(ctx, "prices")
		left <- err
	}()
	<-loading
	next := make(chan error, 1)
	go func() {
		value, err := c.get(t.Context(), "prices")
		if value != "7" {
			t.Errorf("the next one got %q", value)
		}
		next <- err
	}()
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error("the one who left:", err)
	}
	if err := <-next; err != nil {
		t.Error("the next one:", err)
	}
}
