package integration

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// Close and Shutdown.

// Close while a connection is being made anew, for longer than Close waits for what is under way,
// leaves none behind.
func TestRLockCloseBesideADial(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	var held atomic.Bool
	dialling, goOn := make(chan struct{}), make(chan struct{})
	c := rlClient(t, s.Addr(), redlatch.WithLeaseTime(time.Minute), redlatch.WithConfig(func(cfg *redlatch.Config) {
		cfg.UnlockTimeout = 50 * time.Millisecond
		cfg.Redis.DialCtxFn = func(ctx context.Context, addr string, d *net.Dialer, _ *tls.Config) (net.Conn, error) {
			if held.CompareAndSwap(true, false) {
				close(dialling)
				<-goOn
			}
			return d.DialContext(ctx, "tcp", addr)
		}
	}))
	held.Store(true)
	s.Do(t, "CLIENT", "KILL", "TYPE", "normal")
	stuck := bed.Async(t.Context(), c.RLock("a"))
	<-dialling
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	bed.Want(t, bed.Get(t, stuck).Err, redlatch.ErrClosed)
	time.Sleep(250 * time.Millisecond) // so that most runs find the rest closed; it is right without
	close(goOn)
	<-closed
	bed.Eventually(t, "the end of the connections", func() bool { return len(s.ForeignClients(t)) == 0 })
}

// Close beside many goroutines that lock ends all of them, and leaves nothing. The lease is the
// default one: a machine or a server that stands still costs no connection and no hold, and a hold
// that Close forgets does not end by its lease.
func TestRLockCloseFromManyGoroutines(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	for round := range 10 {
		c := rlClient(t, s.Addr())
		name := fmt.Sprintf("l%d", round) // each round's last holders leave their key behind
		stays := make(chan struct{})      // closed when one has the lock that keeps it until Close
		var first sync.Once
		var wg sync.WaitGroup
		for i := range 16 {
			wg.Go(func() {
				h, err := c.RLock(name).Lock(t.Context())
				if err != nil {
					bed.Want(t, err, redlatch.ErrClosed)
					return
				}
				if i%2 == 0 {
					bed.Want(t, h.Unlock(t.Context()), nil, redlatch.ErrClosed)
					return
				}
				first.Do(func() { close(stays) })
				select {
				case <-h.Context().Done(): // Close ends every hold, also those granted beside it
					bed.Want(t, context.Cause(h.Context()), redlatch.ErrClosed)
				case <-time.After(bed.Patience):
					t.Error("a hold outlives its client")
				}
			})
		}
		for i := range 4 {
			wg.Go(func() {
				if round%2 == 1 { // in the other rounds, beside the first grants or before them
					select {
					case <-stays:
					case <-time.After(bed.Patience):
						t.Error("nobody was granted the lock")
					}
				}
				if i%2 == 0 {
					c.Close()
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), bed.Patience)
				defer cancel()
				bed.Want(t, c.Shutdown(ctx), nil)
			})
		}
		wg.Wait()
		// Nobody is left who could renew.
		bed.Eventually(t, "the end of the connections", func() bool { return len(s.ForeignClients(t)) == 0 })
	}
	s.Do(t, "FLUSHALL")
}
