package main

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestTheNextOneLeads: one leads at a time; a failed term, a lost lock and a
// leader that goes each bring a new term.
func TestTheNextOneLeads(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	type term struct {
		who  int
		ctx  context.Context
		ends chan error
	}
	terms := make(chan term)
	var clients []*redlatch.Client
	leaving, done := make([]context.CancelFunc, 2), make(chan error, 2)
	for who := range 2 {
		client := replica.Locks(t, addr, redlatch.WithLeaseTime(8*time.Second))
		clients = append(clients, client)
		ctx, cancel := context.WithCancel(t.Context())
		leaving[who] = cancel
		go func() {
			done <- lead(ctx, client.FairLock("leader"), func(ctx context.Context) error {
				mine := term{who, ctx, make(chan error)}
				terms <- mine
				select {
				case err := <-mine.ends:
					return err
				case <-ctx.Done():
					return context.Cause(ctx)
				}
			})
		}()
	}
	// queued returns once the other one stands for election. The queue of a fair lock says when it does.
	queued := func() {
		for length := 0; length != 1; time.Sleep(10 * time.Millisecond) {
			state, err := clients[0].FairLock("leader").State(t.Context())
			testbed.Must(t, err)
			length = state.QueueLength
		}
	}
	first := <-terms
	queued()
	select {
	case <-terms:
		t.Fatal("two lead at once")
	case <-time.After(200 * time.Millisecond):
	}
	first.ends <- errors.New("boom")
	second := <-terms
	if second.who == first.who {
		t.Error("the replica whose term failed leads again, and the other one waits")
	}
	queued() // the one whose term failed, again, after its pause
	if _, err := clients[0].FairLock("leader").ForceUnlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	// It enters at once, while the one that lost the lock pauses.
	third := <-terms
	if third.who == second.who {
		t.Error("the one that lost the lock leads again at once")
	}
	leaving[third.who]()
	fourth := <-terms
	leaving[fourth.who]()
	for range 2 {
		testbed.Must(t, <-done)
	}
}
