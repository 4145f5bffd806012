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
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Close and Shutdown.

// Close ends every hold's context and every wait at once, and frees nothing under a section that
// still runs.
func TestRLockClose(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	const lease = 5 * time.Second // no stall of the machine ends it
	c := rlClient(t, s.Addr(), rlLease(lease))
	watched := rlLock(t, t.Context(), c.RLock("w"))
	fixed := rlLock(t, t.Context(), c.RLock("f"), redlatch.WithLease(lease))
	lost := rlLock(t, t.Context(), c.RLock("lost"), redlatch.WithLease(50*time.Millisecond))
	rlEnded(t, lost, redlatch.ErrLeaseLost)
	released := rlLock(t, t.Context(), c.RLock("released"))
	rlUnlock(t, released)
	head, second := rlAsync(t.Context(), c.RLock("w")), rlAsync(t.Context(), c.RLock("w"))
	rlSubscribed(t, s, "w", 1)
	rlAlive(t, watched)
	rlAlive(t, fixed)
	began := time.Now()
	c.Close()
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("Close took %v", took)
	}
	for _, w := range []<-chan rlAttempt{head, second} {
		r := rlGet(t, w)
		rlWant(t, r.err, redlatch.ErrClosed)
		rlNoWant(t, r.err, redlatch.ErrNotAcquired)
	}
	for _, h := range []redlatch.Hold{watched, fixed} {
		rlEnded(t, h, redlatch.ErrClosed)
		rlWant(t, h.Unlock(t.Context()), redlatch.ErrClosed)
		rlWant(t, h.Extend(t.Context(), time.Second), redlatch.ErrClosed)
	}
	rlWant(t, lost.Extend(t.Context(), time.Second), redlatch.ErrLeaseLost)
	rlWant(t, lost.Unlock(t.Context()), redlatch.ErrLeaseLost)
	for _, h := range []redlatch.Hold{lost, released} { // what has been unlocked is no news of Close's
		rlWant(t, h.Unlock(t.Context()), redlatch.ErrNotHeld)
		rlWant(t, h.Extend(t.Context(), time.Second), redlatch.ErrNotHeld)
	}
	if s.Int(t, "EXISTS", "w", "f") != 2 {
		t.Error("Close freed keys: other processes would enter beside sections that still run")
	}
	if all, _ := rlConnections(t, s); all != 0 {
		rlUntil(t, "the end of the connections", func() bool { all, _ := rlConnections(t, s); return all == 0 })
	}
	_, err := c.RLock("x").Lock(t.Context())
	rlWant(t, err, redlatch.ErrClosed)
	_, err = c.RLock("x").TryLock(t.Context(), 0, 0)
	rlWant(t, err, redlatch.ErrClosed)
	_, err = c.RLock("x").State(t.Context())
	rlWant(t, err, redlatch.ErrClosed)
	_, err = c.RLock("x").ForceUnlock(t.Context())
	rlWant(t, err, redlatch.ErrClosed)
	c.Close()
	if err := c.Shutdown(t.Context()); err != nil {
		t.Errorf("Shutdown after Close: %v", err)
	}
	rlUntil(t, "the end of the leases", func() bool { return s.Int(t, "EXISTS", "w", "f") == 0 }) // nothing renews them
}

// Close while a connection is being made anew, for longer than Close waits for what is under way,
// leaves none behind.
func TestRLockCloseBesideADial(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	var held atomic.Bool
	dialling, goOn := make(chan struct{}), make(chan struct{})
	c := rlClient(t, s.Addr(), rlLease(time.Minute), redlatch.WithConfig(func(cfg *redlatch.Config) {
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
	stuck := rlAsync(t.Context(), c.RLock("a"))
	<-dialling
	closed := make(chan struct{})
	go func() { c.Close(); close(closed) }()
	rlWant(t, rlGet(t, stuck).err, redlatch.ErrClosed)
	time.Sleep(250 * time.Millisecond) // so that most runs find the rest closed; it is right without
	close(goOn)
	<-closed
	rlUntil(t, "the end of the connections", func() bool { all, _ := rlConnections(t, s); return all == 0 })
}

// Close beside many goroutines that lock ends all of them, and leaves nothing. The lease is the
// default one: a machine or a server that stands still costs no connection and no hold, and a hold
// that Close forgets does not end by its lease.
func TestRLockCloseFromManyGoroutines(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
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
					rlOneOf(t, err, redlatch.ErrClosed)
					return
				}
				if i%2 == 0 {
					if err := h.Unlock(t.Context()); err != nil {
						rlOneOf(t, err, redlatch.ErrClosed)
					}
					return
				}
				first.Do(func() { close(stays) })
				select {
				case <-h.Context().Done(): // Close ends every hold, also those granted beside it
					rlOneOf(t, context.Cause(h.Context()), redlatch.ErrClosed)
				case <-time.After(rlPatience):
					t.Error("a hold outlives its client")
				}
			})
		}
		for i := range 4 {
			wg.Go(func() {
				if round%2 == 1 { // in the other rounds, beside the first grants or before them
					select {
					case <-stays:
					case <-time.After(rlPatience):
						t.Error("nobody was granted the lock")
					}
				}
				if i%2 == 0 {
					c.Close()
					return
				}
				ctx, cancel := context.WithTimeout(context.Background(), rlPatience)
				defer cancel()
				if err := c.Shutdown(ctx); err != nil {
					t.Errorf("Shutdown beside Close: %v", err)
				}
			})
		}
		wg.Wait()
		// Nobody is left who could renew.
		rlUntil(t, "the end of the connections", func() bool { all, _ := rlConnections(t, s); return all == 0 })
	}
	s.Do(t, "FLUSHALL")
}

// Shutdown waits until the last hold is unlocked, keeps it renewed, and lets in nobody but who
// re-enters.
func TestRLockShutdownWaitsForHolds(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(5*time.Second))
	h := rlLock(t, t.Context(), c.RLock("l"))
	waiter := rlAsync(t.Context(), c.RLock("l"))
	rlSubscribed(t, s, "l", 1)

	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	rlWant(t, c.Shutdown(ctx), context.DeadlineExceeded)
	rlWant(t, rlGet(t, waiter).err, redlatch.ErrClosed)
	_, err := c.RLock("x").Lock(t.Context())
	rlWant(t, err, redlatch.ErrClosed)
	_, err = c.RLock("x").TryLock(h.Context(), 0, 0) // another lock of the same owner is a new acquisition
	rlWant(t, err, redlatch.ErrClosed)

	done := make(chan error, 1)
	go func() { done <- c.Shutdown(context.Background()) }()
	nested := rlLock(t, h.Context(), c.RLock("l")) // re-entry still works
	if err := h.Extend(t.Context(), 5200*time.Millisecond); err != nil {
		t.Error(err)
	}
	time.Sleep(10 * time.Second) // renewal goes on
	rlAlive(t, h)
	rlUnlock(t, nested)
	select {
	case err := <-done:
		t.Fatalf("Shutdown returned %v while a lock is held", err)
	default:
	}
	rlUnlock(t, h)
	if err := <-done; err != nil {
		t.Errorf("Shutdown: %v", err)
	}
	rlAbsent(t, s)
	_, err = c.RLock("l").Lock(t.Context())
	rlWant(t, err, redlatch.ErrClosed)
}

// A writer that takes the read lock, too, re-enters: Shutdown lets it.
func TestShutdownLetsAWriterRead(t *testing.T) {
	t.Parallel()
	s := testbed.Standalone(t)
	c := rlClient(t, s.Addr())
	l := c.ReadWriteLock("l")
	w := rlLock(t, t.Context(), l.WriteLock())
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	rlWant(t, c.Shutdown(ctx), context.Canceled) // it has begun
	r := rlLock(t, w.Context(), l.ReadLock())
	rlUnlock(t, r)
	rlUnlock(t, w)
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
}

// A lost hold does not keep Shutdown waiting.
func TestRLockShutdownDoesNotWaitForLostHolds(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	rlLock(t, t.Context(), c.RLock("l"), redlatch.WithLease(200*time.Millisecond))
	if err := c.Shutdown(t.Context()); err != nil {
		t.Error(err)
	}
	rlUntil(t, "the end of the lease", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
}

// A grant that is on its way when Shutdown or Close comes is given back.
func TestRLockGrantBesideTheEndIsGivenBack(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(c *redlatch.Client){
		"Close": func(c *redlatch.Client) { c.Close() }, "Shutdown": func(c *redlatch.Client) { _ = c.Shutdown(context.Background()) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p, c := rlProxied(t)
			held := rlLock(t, t.Context(), c.RLock("held")) // Shutdown waits for it
			waiter := rlAsync(t.Context(), c.RLock("held"))
			rlSubscribed(t, s, "held", 1)
			rlQuiet(t, s)
			trap := p.StallReply(rlRuns(luascript.Acquire, "l"))
			got := rlAsync(t.Context(), c.RLock("l"))
			trap.Wait(t)
			done := make(chan struct{})
			go func() { end(c); close(done) }()
			rlWant(t, rlGet(t, waiter).err, redlatch.ErrClosed) // it has begun
			trap.Release()
			rlWant(t, rlGet(t, got).err, redlatch.ErrClosed)
			rlUntil(t, "the grant given back", func() bool { return s.Int(t, "EXISTS", "l") == 0 })
			if err := held.Unlock(t.Context()); err != nil { // left to its lease by Close
				rlWant(t, err, redlatch.ErrClosed)
				s.Do(t, "DEL", "held")
			}
			select {
			case <-done:
			case <-time.After(rlPatience):
				t.Fatal("it does not return")
			}
			rlAbsent(t, s)
		})
	}
}

// Close on a server that does not answer: holds end at once, it returns within
// UnlockTimeout and what connections take to close.
func TestRLockCloseOnAFrozenServer(t *testing.T) {
	t.Parallel()
	s := rlServer(t)
	c := rlClient(t, s.Addr(), rlLease(5*time.Second), rlUnlockTimeout(500*time.Millisecond), func(c *redlatch.Config) {
		c.Tenure = -1 // an Unlock that is faster than Close would pass the lock on to the waiter
	})
	h := rlLock(t, t.Context(), c.RLock("l"))
	waiter := rlAsync(t.Context(), c.RLock("l"))
	rlSubscribed(t, s, "l", 1)
	s.Freeze(t)
	stuck := rlAsync(context.Background(), c.RLock("m"))
	u := rlAsyncUnlock(h)
	began := time.Now()
	c.Close()
	if took := time.Since(began); took > 6*time.Second {
		t.Errorf("Close took %v", took)
	}
	rlWant(t, rlGet(t, waiter).err, redlatch.ErrClosed)
	rlWant(t, rlGet(t, stuck).err, redlatch.ErrClosed)
	rlOneOf(t, <-u, redlatch.ErrClosed, redlatch.ErrUnavailable)
	s.Thaw(t)
	rlUntil(t, "the end of the leases", func() bool { return s.Int(t, "EXISTS", "l", "m") == 0 })
	s.Do(t, "DEL", luascript.WaitKey("l")) // which nobody could leave: it ends after a minute
}

func rlAsyncUnlock(h redlatch.Hold) <-chan error {
	out := make(chan error, 1)
	go func() { out <- h.Unlock(context.Background()) }()
	return out
}
