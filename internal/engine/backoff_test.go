package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// Waiters whose tries failed during an outage pause up to a second and a half between two of
// them. The subscription that stands again says that the server is back: they try then.
func TestReconnectEndsThePauseAfterAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRedis{keys: map[string]*fakeKey{}, void: map[string]bool{}, latency: time.Millisecond}
		d := &breakable{fakeRedis: f, down: make(chan error, 1)}
		core := engine.NewCore(engine.Config{
			ID: "00000000-0000-0000-0000-00000000000c", LeaseTime: leaseTime, UnlockTimeout: 5 * time.Second,
			Log: slog.New(slog.DiscardHandler),
		}, f, pubsub.NewHub(d, nil))
		defer core.Wait()
		defer core.Close()
		other := second(t, f, leaseTime)
		const n = 20
		var wg sync.WaitGroup
		var holds []lock.Hold
		got := make([]time.Time, n)
		for i := range n {
			name := fmt.Sprintf("l%d", i)
			holds = append(holds, take(t, t.Context(), other, name, lock.WithLease(10*time.Second)))
			wg.Go(func() {
				h := take(t, t.Context(), core, name)
				got[i] = time.Now()
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			})
		}
		// One that stays: the subscriptions come back together, but of a lock that was free before
		// that nobody needs one any more.
		busy := take(t, t.Context(), other, "busy", lock.WithLease(time.Hour))
		ctx, cancel := context.WithCancel(t.Context())
		stays := make(chan error, 1)
		go func() {
			_, err := engine.Open(new(rlock.RLock), core, "busy").Lock(ctx)
			stays <- err
		}()
		time.Sleep(8 * time.Second) // they listen, and sleep
		f.onBefore(func(conn.Command) error { return errUnsent })
		d.broken.Store(true)
		d.down <- errors.New("cut")
		time.Sleep(20 * time.Second) // the leases have ended, and all pause between their tries
		f.onBefore(nil)
		back := time.Now()
		d.broken.Store(false)
		for !core.Hears("busy") {
			time.Sleep(time.Millisecond)
		}
		heard := time.Now()
		wg.Wait()
		late := slices.MaxFunc(got, time.Time.Compare).Sub(heard)
		t.Logf("heard after %v, the last one got its lock %v later", heard.Sub(back), late)
		if late > engine.LeastPause+5*time.Millisecond {
			t.Errorf("the last one got its lock %v after the subscription stood again", late)
		}
		// It has asked by then, too: else it would say that the server was away.
		time.Sleep(engine.LeastPause + 5*time.Millisecond)
		cancel()
		if err := <-stays; !errors.Is(err, lock.ErrNotAcquired) {
			t.Error(err)
		}
		if err := busy.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		for _, h := range holds {
			if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrLeaseLost) {
				t.Error(err)
			}
		}
	})
}

// A server that refuses every try while messages arrive, or connections for them flap, is not asked at their
// pace.
func TestSignalsWhileTheServerRefusesAreNoHotLoop(t *testing.T) {
	for name, signal := range map[string]func(h pubsub.Handler, channel string){
		"calls":      func(h pubsub.Handler, channel string) { h.Message(channel, "1700000000000000") },
		"reconnects": func(h pubsub.Handler, channel string) { h.Confirmed(channel) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f, core := newFake(t, leaseTime)
				other := second(t, f, leaseTime)
				h := take(t, t.Context(), other, "l", lock.WithLease(time.Hour))
				ctx, cancel := context.WithCancel(t.Context())
				ended := make(chan error, 1)
				go func() {
					_, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx)
					ended <- err
				}()
				time.Sleep(time.Second) // it listens, and sleeps
				tries := 0
				f.onBefore(func(conn.Command) error {
					tries++
					return errUnsent
				})
				f.mu.Lock()
				listener := f.listener
				f.mu.Unlock()
				const lasts = 10 * time.Second
				for range lasts / time.Millisecond {
					signal(listener, luascript.CallChannel("l")+core.ID())
					time.Sleep(time.Millisecond)
				}
				synctest.Wait()
				if most := int(lasts/engine.LeastPause) + 10; tries < 20 || tries > most {
					t.Errorf("%d tries in %v, want more than without signals and no more than %d", tries, lasts, most)
				}
				cancel()
				if err := <-ended; !errors.Is(err, lock.ErrUnavailable) {
					t.Error(err)
				}
				f.onBefore(nil)
				if err := h.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// Who asks for a lease that is over before the answer comes can't have the lock. Those behind it
// in the line can: it lets them go first, and asks again in its turn.
func TestGrantsThatAreTooLateHoldUpNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFake(t, leaseTime)
		f.latency = time.Millisecond
		var mu sync.Mutex
		var short []time.Time // when the lease of 2 ms was asked for
		f.onBefore(func(cmd conn.Command) error {
			if cmd.Script == luascript.Acquire && cmd.Args[1] == "2" {
				mu.Lock()
				short = append(short, time.Now())
				mu.Unlock()
			}
			return nil
		})
		first := take(t, t.Context(), core, "l")
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() {
			_, err := engine.Open(new(rlock.RLock), core, "l").Lock(ctx, lock.WithLease(2*time.Millisecond))
			ended <- err
		}()
		synctest.Wait()
		const n = 5
		const each = 2 * time.Second // longer than any pause
		got := make(chan time.Time, n)
		for range n {
			time.Sleep(10 * time.Millisecond)
			go func() {
				h := take(t, t.Context(), core, "l")
				got <- time.Now()
				time.Sleep(each)
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}()
		}
		time.Sleep(time.Second)
		mu.Lock()
		short = nil
		mu.Unlock()
		if err := first.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		free := time.Now()
		var last time.Time
		for i := range n {
			select {
			case last = <-got:
			case <-time.After(each + time.Second):
				t.Fatalf("waiter %d does not get a lock that is free", i)
			}
		}
		if late := last.Sub(free) - (n-1)*each; late > 100*time.Millisecond {
			t.Errorf("the lock was free for %v in all", late)
		}
		mu.Lock()
		if len(short) != 1 {
			t.Errorf("the short lease was asked for at %v, want once and in its turn", short)
		}
		mu.Unlock()
		time.Sleep(each + 5*time.Second) // it is alone now, and goes on
		mu.Lock()
		if n := len(short); n < 3 || n > 30 {
			t.Errorf("the short lease was asked for %d times", n)
		}
		mu.Unlock()
		cancel()
		if err := <-ended; !tooLate(err) {
			t.Error(err)
		}
		time.Sleep(time.Second)
		if f.count("l") != 0 || core.Holding() != 0 {
			t.Errorf("count %d, %d held", f.count("l"), core.Holding())
		}
	})
}
