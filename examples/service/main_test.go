package main

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// start runs the service. It returns how its signal comes, and its end.
func start(t *testing.T, addr string, grace time.Duration, work func(ctx context.Context, customer int) error) (signal func(), done <-chan error) {
	t.Helper()
	ctx, signal := context.WithCancel(t.Context())
	ended, client := make(chan error, 1), replica.Locks(t, addr)
	go func() { ended <- run(ctx, client, grace, work) }()
	return signal, ended
}

// isFree fails unless the first customer's lock is free.
func isFree(t *testing.T, client *redlatch.Client) {
	t.Helper()
	hold, err := client.RLock("customer:1").TryLock(t.Context(), 0, 0)
	if err != nil {
		t.Fatal("the lock is still held: ", err)
	}
	testbed.Must(t, hold.Unlock(t.Context()))
}

// TestBegunWorkIsFinished: the signal comes in the middle of a section; it goes
// on to its end, and the lock is free at once, not at the end of its lease.
func TestBegunWorkIsFinished(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	other := replica.Locks(t, addr)
	begun, goOn, finished := make(chan struct{}), make(chan struct{}), false
	signal, done := start(t, addr, time.Minute, func(ctx context.Context, customer int) error {
		if customer != 1 {
			t.Error("work began after the signal")
		}
		close(begun)
		<-goOn
		finished = ctx.Err() == nil
		return nil
	})
	<-begun
	signal()
	if _, err := other.RLock("customer:1").TryLock(t.Context(), 200*time.Millisecond, 0); err == nil {
		t.Error("the lock was given up under the running section")
	}
	close(goOn)
	if err := <-done; err != nil || !finished {
		t.Errorf("stopped with %v; finished: %t", err, finished)
	}
	isFree(t, other)
}

// TestGraceEnds: work that takes too long is told, and gives its lock back.
func TestGraceEnds(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	begun := make(chan struct{})
	signal, done := start(t, addr, 50*time.Millisecond, func(ctx context.Context, _ int) error {
		close(begun)
		<-ctx.Done()
		return context.Cause(ctx)
	})
	<-begun
	signal()
	if err := <-done; err == nil {
		t.Error("unfinished work was not told")
	}
	isFree(t, replica.Locks(t, addr))
}

// TestWaitersEndWithTheSignal: who waits for a lock has begun nothing.
func TestWaitersEndWithTheSignal(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	other := replica.Locks(t, addr)
	hold, err := other.RLock("customer:1").Lock(t.Context())
	testbed.Must(t, err)
	signal, done := start(t, addr, time.Minute, func(context.Context, int) error {
		t.Error("it has begun")
		return nil
	})
	replica.UntilWaiting(t, other, "customer:1")
	signal()
	testbed.Must(t, <-done)
	testbed.Must(t, hold.Unlock(t.Context()))
}
