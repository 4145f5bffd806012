package main

import (
	"context"
	"errors"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// instance is one of the service.
func instance(t *testing.T, addr string, load func(context.Context) (string, error)) *cache {
	t.Helper()
	return &cache{redis: replica.Data(t, addr), locks: replica.Locks(t, addr, redlatch.WithPrefix("lock:")), ttl: time.Minute, load: load}
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
		c := instance(t, addr, load)
		for range 20 {
			readers.Go(func() {
				if value, err := c.get(t.Context(), "prices"); err != nil || value != "1" {
					t.Errorf("got %q, %v", value, err)
				}
			})
		}
	}
	readers.Wait()
	testbed.Equal(t, loads.Load(), 1, "times the source was asked")
}

// TestTheLoaderLeaves: the reader that loads goes, and the next one in line loads.
func TestTheLoaderLeaves(t *testing.T) {
	loading := make(chan struct{})
	var loads atomic.Int64
	c := instance(t, testbed.Standalone(t).Addr(), func(ctx context.Context) (string, error) {
		if loads.Add(1) > 1 {
			return "7", nil
		}
		close(loading)
		<-ctx.Done()
		return "", ctx.Err()
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	left, next := make(chan error, 1), make(chan error, 1)
	get := func(ctx context.Context, done chan<- error, want string) {
		value, err := c.get(ctx, "prices")
		testbed.Equal(t, value, want, "what it got")
		done <- err
	}
	go get(ctx, left, "")
	<-loading
	go get(t.Context(), next, "7")
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Error("the one who left:", err)
	}
	if err := <-next; err != nil {
		t.Error("the next one:", err)
	}
}
