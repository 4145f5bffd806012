package main

import (
	"context"
	"errors"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/redlatchtest"
)

// newCashier counts the charges.
func newCashier(lock func(name string) redlatch.Locker) (c *cashier, charged map[string]int) {
	charged = map[string]int{}
	return &cashier{
		lock:   lock,
		charge: func(_ context.Context, order string) error { charged[order]++; return nil },
		paid:   map[string]bool{},
	}, charged
}

// Without a server: each outcome on demand. The bubble of testing/synctest makes the wait
// of two seconds pass at once.
func TestPayWithoutAServer(t *testing.T) {
	for _, test := range []struct {
		name    string
		arrange func(l *redlatchtest.Locker)
		want    error
		charges int
	}{
		{"free", func(*redlatchtest.Locker) {}, nil, 1},
		{"busy", func(l *redlatchtest.Locker) { l.Busy("another replica") }, errBusy, 0},
		{"free in time", func(l *redlatchtest.Locker) { time.AfterFunc(time.Second, l.Busy("another replica")) }, nil, 1},
		{"an outage", func(l *redlatchtest.Locker) { l.SetUnavailable(true) }, errLater, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				locks := redlatchtest.NewLockers()
				test.arrange(locks.Get("order:42"))
				c, charged := newCashier(locks.ByName)
				if err := c.pay(t.Context(), "42"); !errors.Is(err, test.want) {
					t.Errorf("pay: %v, want %v", err, test.want)
				}
				if charged["42"] != test.charges {
					t.Errorf("charged %d times", charged["42"])
				}
				if held := locks.Held(); len(held) > 0 {
					t.Errorf("not unlocked: %v", held)
				}
			})
		})
	}
}

// The lock is lost in the middle: the charge is told by its ctx, the caller by the error.
func TestPayIsToldOfALostLock(t *testing.T) {
	lock := redlatchtest.NewLocker("order:42")
	c, _ := newCashier(func(string) redlatch.Locker { return lock })
	c.charge = func(ctx context.Context, _ string) error {
		lock.Lose()
		<-ctx.Done()
		return ctx.Err()
	}
	if err := c.pay(t.Context(), "42"); !errors.Is(err, redlatch.ErrLeaseLost) || c.paid["42"] {
		t.Errorf("pay: %v; paid: %t", err, c.paid["42"])
	}
}

// With the real locks, on a server of the test's own: ten requests in two processes, and
// the order is charged once.
func TestTwoReplicasChargeOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.NewServer(t)
		ours, theirs := server.Client(), server.Other()
		c, charged := newCashier(nil) // one database: the lock guards it
		var wg sync.WaitGroup
		for i := range 10 {
			replica := *c
			replica.lock = func(name string) redlatch.Locker { return []*redlatch.Client{ours, theirs}[i%2].RLock(name) }
			wg.Go(func() {
				if err := replica.pay(t.Context(), "42"); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if charged["42"] != 1 {
			t.Errorf("charged %d times", charged["42"])
		}
		if held := server.Held(); len(held) > 0 {
			t.Errorf("not unlocked: %+v", held)
		}
	})
}

// A replica that died while it paid blocks the others until its lease ends; an outage is
// no reason to charge.
func TestADeadReplicaAndAnOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := redlatchtest.NewServer(t)
		client := server.Client()
		c, charged := newCashier(func(name string) redlatch.Locker { return client.RLock(name) })

		server.Take("order:42")
		server.Other().Close() // dies: nobody renews its lease of 30 s
		if err := c.pay(t.Context(), "42"); !errors.Is(err, errBusy) {
			t.Errorf("pay, while a dead replica's lease lasts: %v", err)
		}
		time.Sleep(redlatch.DefaultLeaseTime)
		if err := c.pay(t.Context(), "42"); err != nil || charged["42"] != 1 {
			t.Errorf("pay, after its lease: %v; charged %d times", err, charged["42"])
		}

		server.Down()
		if err := c.pay(t.Context(), "43"); !errors.Is(err, errLater) || charged["43"] != 0 {
			t.Errorf("pay in an outage: %v; charged %d times", err, charged["43"])
		}
		server.Up()
		if err := c.pay(t.Context(), "43"); err != nil {
			t.Errorf("pay after the outage: %v", err)
		}
	})
}
