package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"reflect"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func rwShareProxy(t *testing.T, s *testbed.Server, lease, tenure time.Duration) (*redlatch.Client, *testbed.Proxy) {
	t.Helper()
	proxy := testbed.NewProxy(t, s.Addr())
	return rwShareOpen(t, proxy.Addr(), lease, tenure), proxy
}

// A re-entry beside the last release by another owner of the same session, which pass different
// gates, has a hold that excludes, or hears that it is lost.
func TestRWShareReentryBesideFinalRelease(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 30*time.Second, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	w := rwClient(t, s, 0).ReadWriteLock("n").WriteLock()
	rwUnlock(t, rwLock(t, l, t.Context()))
	rwUnlock(t, rwLock(t, w, t.Context()))

	asB := redlatch.WithOwner(t.Context(), "b")
	a := rwLock(t, l, t.Context())
	b := rwLock(t, l, asB)                                        // joins
	short := rwLock(t, l, asB, redlatch.WithLease(2*time.Second)) // over before the first renewal
	rwUnlock(t, b)
	slow := proxy.StallReply(testbed.Contains("EVALSHA"))
	again := rwAsync(t, l, asB) // re-enters: the owner holds short
	slow.Wait(t)
	<-short.Context().Done()
	last := proxy.StallReply(testbed.Contains("EVALSHA"))
	unlocked := make(chan error, 1)
	go func() { unlocked <- a.Unlock(context.Background()) }()
	rwEventually(t, "released on the server", func() bool { return s.Int(t, "EXISTS", "n") == 0 })
	slow.Release()
	last.Wait(t)
	var b3 redlatch.Hold
	select {
	case b3 = <-again:
	case <-time.After(500 * time.Millisecond):
		// It is no hold of the ended session, but acquires anew.
	}
	last.Release()
	if err := <-unlocked; err != nil {
		t.Error("a.Unlock:", err)
	}
	if b3 == nil {
		b3 = rwGot(t, again, 10*time.Second)
	}
	hw, err := w.TryLock(t.Context(), 0, 0)
	if err != nil {
		rwUnlock(t, b3)
		return // it is held
	}
	select {
	case <-b3.Context().Done():
	case <-time.After(90 * time.Second): // three leases
		t.Errorf("a reader is inside beside a writer, and is not told for three leases; its ValidUntil was %v ago; Extend: %v",
			time.Since(b3.ValidUntil()), b3.Extend(t.Context(), time.Minute))
	}
	rwUnlock(t, hw)
	t.Log("b3.Unlock:", b3.Unlock(t.Context()), c.Held())
}

// TestRWShareFencedJoinsUnfenced: a fenced reader gets the session of one that is not.
func TestRWShareFencedJoinsUnfenced(t *testing.T) {
	s := rwServer(t)
	c := rwShareClient(t, s, 9*time.Second)
	fenced := c.ReadWriteLock("n", redlatch.ShareReads(), redlatch.Fenced())
	rwUnlock(t, rwLock(t, fenced.WriteLock(), t.Context()))
	h := rwLock(t, fenced.ReadLock(), t.Context())
	want := h.Token()
	rwUnlock(t, h)
	plain := rwLock(t, c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock(), t.Context())
	h = rwLock(t, fenced.ReadLock(), t.Context())
	if got := h.Token(); got != want || got == 0 {
		t.Errorf("a fenced reader of its own owner has token %d, not %d", got, want)
	}
	rwUnlock(t, h, plain)
}

// TestRWShareUnlockAfterForce: a reader whose lock was taken away by its own client's
// ForceUnlock, and who had a writer beside it since, learns of it by Unlock, shared or not.
func TestRWShareUnlockAfterForce(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{"shared": {redlatch.ShareReads()}, "plain": nil} {
		t.Run(name, func(t *testing.T) {
			s := rwServer(t)
			c := rwShareClient(t, s, 9*time.Second)
			l := c.ReadWriteLock("n", opts...)
			holds := []redlatch.Hold{rwLock(t, l.ReadLock(), t.Context()), rwLock(t, l.ReadLock(), t.Context()), rwLock(t, l.ReadLock(), t.Context())}
			if ok, err := l.ReadLock().ForceUnlock(t.Context()); !ok || err != nil {
				t.Fatal(ok, err)
			}
			rwUnlock(t, rwLock(t, l.WriteLock(), t.Context())) // a writer was beside the readers
			for i, h := range holds {
				if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
					t.Errorf("reader %d: %v, want ErrLeaseLost", i, err)
				}
			}
		})
	}
}

// Close or Shutdown at a random moment of many shared reads ends them all and leaves nothing.
func TestRWShareCloseInTheMiddle(t *testing.T) {
	s := rwServer(t)
	proxy := testbed.NewProxy(t, s.Addr())
	for i := range 30 {
		c := rwShareOpen(t, proxy.Addr(), 30*time.Second, 50*time.Millisecond)
		l := c.ReadWriteLock("n", redlatch.ShareReads())
		var all sync.WaitGroup
		for g := range 12 {
			all.Go(func() {
				for k := 0; ; k++ {
					ctx := t.Context()
					if g%3 == 0 {
						ctx = redlatch.WithOwner(ctx, "o")
					}
					var h redlatch.Hold
					var err error
					switch {
					case g == 11 && k%3 == 0:
						h, err = l.WriteLock().TryLock(ctx, 5*time.Millisecond, 0)
					case g%2 == 0:
						h, err = l.ReadLock().TryLock(ctx, 3*time.Millisecond, 0)
					default:
						h, err = l.ReadLock().Lock(ctx)
					}
					if errors.Is(err, redlatch.ErrClosed) {
						return
					}
					if err != nil {
						if !waited(err) {
							t.Error(err)
						}
						continue
					}
					time.Sleep(time.Duration(rand.IntN(1000)) * time.Microsecond)
					if err := h.Unlock(context.Background()); err != nil && !errors.Is(err, redlatch.ErrClosed) {
						t.Error(err)
					}
				}
			})
		}
		time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
		trap := proxy.StallReply(testbed.Contains("EVALSHA"))
		if i%3 == 0 {
			trap.Release()
		}
		time.AfterFunc(time.Duration(rand.IntN(30))*time.Millisecond, trap.Release)
		if i%2 == 0 {
			ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
			if err := c.Shutdown(ctx); err != nil {
				t.Error(i, err)
			}
			cancel()
		}
		c.Close()
		done := make(chan struct{})
		go func() { all.Wait(); close(done) }()
		select {
		case <-done:
		case <-time.After(20 * time.Second):
			t.Fatal(i, "calls hang after Close")
		}
		if n := rwShareEntries(c); n != 0 {
			t.Errorf("%d: %d shares", i, n)
		}
		if i%2 == 0 && s.Int(t, "EXISTS", "n") != 0 {
			t.Errorf("%d: left after Shutdown: %v", i, s.List(t, "HGETALL", "n"))
		}
		s.Do(t, "FLUSHALL")
	}
}

// TestRWShareCancelled: thousands of cancelled shared reads leave nothing.
func TestRWShareCancelled(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 8*time.Second, 50*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	rwUnlock(t, rwLock(t, l, t.Context()))
	stop := make(chan struct{})
	var chaos sync.WaitGroup
	chaos.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(time.Duration(rand.IntN(40)) * time.Millisecond):
			}
			switch rand.IntN(8) {
			case 0:
				proxy.DropReply(testbed.Contains("EVALSHA"))
			default:
				trap := proxy.StallReply(testbed.Contains("EVALSHA"))
				time.Sleep(time.Duration(rand.IntN(20)) * time.Millisecond)
				trap.Release()
			}
		}
	})
	var all sync.WaitGroup
	for g := range 16 {
		all.Go(func() {
			for range 150 {
				ctx := t.Context()
				if g%4 == 0 {
					ctx = redlatch.WithOwner(ctx, "o")
				}
				ctx, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(6000))*time.Microsecond)
				h, err := l.Lock(ctx)
				cancel()
				if err == nil {
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
					}
				} else if !waited(err) {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	close(stop)
	chaos.Wait()
	rwEmpty(t, s)
	if n := rwShareEntries(c); n != 0 || len(c.Held()) != 0 {
		t.Error(n, c.Held())
	}
}

// TestRWShareSlowServer: readers that come at the same time send one command for all,
// also where a round trip takes longer than the tenure.
func TestRWShareSlowServer(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 30*time.Second, 10*time.Millisecond)
	const rtt = 60 * time.Millisecond
	took := map[bool]time.Duration{}
	for _, shared := range []bool{false, true} {
		l := c.ReadWriteLock("n").ReadLock()
		if shared {
			l = c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
		}
		rwUnlock(t, rwLock(t, l, t.Context()))
		var mu sync.Mutex
		var holds []redlatch.Hold
		var sum time.Duration
		var all sync.WaitGroup
		proxy.Delay(testbed.Replies, rtt)
		n := rwScripts(t, s, func() {
			for range 50 {
				all.Go(func() {
					began := time.Now()
					h := rwLock(t, l, t.Context())
					mu.Lock()
					defer mu.Unlock()
					holds, sum = append(holds, h), sum+time.Since(began)
				})
			}
			all.Wait()
		})
		proxy.Delay(testbed.Replies, 0)
		rwUnlock(t, holds...)
		took[shared] = sum / 50
		t.Logf("shared %v: 50 readers at once, %d commands, %v each", shared, n, took[shared])
		if shared && n > 25 {
			t.Errorf("%d commands for 50 readers, and %.1f times the time", n, float64(took[true])/float64(took[false]))
		}
	}
}

// TestRWShareLeaderLeaves: when the one who asks for all leaves, another one asks for
// the others, not each for itself.
func TestRWShareLeaderLeaves(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 30*time.Second, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	rwUnlock(t, rwLock(t, l, t.Context()))
	trap := proxy.StallReply(testbed.Contains("EVALSHA"))
	lead, leave := context.WithCancel(t.Context())
	n := rwScripts(t, s, func() {
		go func() { _, _ = l.Lock(lead) }()
		trap.Wait(t)
		var got []<-chan redlatch.Hold
		for range 50 {
			got = append(got, rwAsync(t, l, t.Context()))
		}
		rwInLine(t, 50)
		leave()
		rwInLine(t, 49) // the next one asks
		trap.Release()
		for _, ch := range got {
			rwUnlock(t, rwGot(t, ch, 10*time.Second))
		}
	})
	t.Logf("%d commands, releases among them", n)
	if n > 50 {
		t.Errorf("%d commands for 50 readers whose leader left", n)
	}
}

func rwShareEntries(c *redlatch.Client) int {
	return reflect.ValueOf(c).Elem().FieldByName("core").Elem().FieldByName("reg").Elem().FieldByName("shares").Len()
}
