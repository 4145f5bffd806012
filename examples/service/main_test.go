package main

import (
	"context"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func open(t *testing.T, addr string) *redlatch.Client {
	t.Helper()
	client, err := redlatch.Open("redis://" + addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client
}

// TestBegunWorkIsFinished: the signal comes in the middle of a section; it goes
// on to its end, and the lock is free at once, not at the end of its lease.
func TestBegunWorkIsFinished(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	other := open(t, addr)
	ctx, signal := context.WithCancel(t.Context())
	begun, goOn, finished := make(chan struct{}), make(chan struct{}), false
	done := make(chan error, 1)
	client := open(t, addr)
	go func() {
		done <- run(ctx, client, time.Minute, func(ctx context.Context, customer int) error {
			if customer != 1 {
				t.Error("work began after the signal")
			}
			close(begun)
			<-goOn
			finished = ctx.Err() == nil
			return nil
		})
	}()
	<-begun
	signal()
	if _, err := other.RLock("customer:1").TryLock(t.Context(), 200*time.Millisecond, 0); err == nil {
		t.Error("the lock was given up under the running section")
	}
	close(goOn)
	if err := <-done; err != nil || !finished {
		t.Errorf("stopped with %v; finished: %t", err, finished)
	}
	hold, err := other.RLock("customer:1").TryLock(t.Context(), 0, 0)
	if err != nil {
		t.Fatal("the lock is still held: ", err)
	}
	if err := hold.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestGraceEnds: work that takes too long is told, and gives its lock back.
func TestGraceEnds(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	ctx, signal := context.WithCancel(t.Context())
	done := make(chan error, 1)
	begun := make(chan struct{})
	client := open(t, addr)
	go func() {
		done <- run(ctx, client, 50*time.Millisecond, func(ctx context.Context, _ int) error {
			close(begun)
			<-ctx.Done()
			return context.Cause(ctx)
		})
	}()
	<-begun
	signal()
	if err := <-done; err == nil {
		t.Error("unfinished work was not told")
	}
	if _, err := open(t, addr).RLock("customer:1").TryLock(t.Context(), 0, 0); err != nil {
		t.Error("the lock is still held: ", err)
	}
}

// TestWaitersEndWithTheSignal: who waits for a lock has begun nothing.
func TestWaitersEndWithTheSignal(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	other := open(t, addr)
	hold, err := other.RLock("customer:1").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	client := open(t, addr)
	ctx, signal := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- run(ctx, client, time.Minute, func(context.Context, int) error {
			t.Error("it has begun")
			return nil
		})
	}()
	for deadline := time.Now().Add(20 * time.Second); ; time.Sleep(time.Millisecond) {
		if in, err := other.Inspect(t.Context(), "customer:1"); err != nil || in.Processes > 0 {
			if err != nil {
				t.Error(err)
			}
			break // it waits
		}
		if time.Now().After(deadline) {
			t.Error("nobody waits for the lock")
			break
		}
	}
	signal()
	if err := <-done; err != nil {
		t.Error(err)
	}
	if err := hold.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
}
