package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// breakable is a dialer whose connections end, and that then makes no other ones.
type breakable struct {
	*fakeRedis
	broken atomic.Bool
	down   chan error
}

func (d *breakable) Dial(node string, h pubsub.Handler) (pubsub.Link, error) {
	if d.broken.Load() {
		return nil, errUnsent
	}
	l, err := d.fakeRedis.Dial(node, h)
	return &breakableLink{l, d.down}, err
}

type breakableLink struct {
	pubsub.Link
	down chan error
}

func (l *breakableLink) Down() <-chan error { return l.down }

// A waiter whose subscription is lost while it sleeps until the end of a long lease looks from
// time to time: a server that has no place for another connection goes on answering commands.
func TestWaiterLooksWhenItsSubscriptionIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeRedis{keys: map[string]*fakeKey{}, void: map[string]bool{}}
		d := &breakable{fakeRedis: f, down: make(chan error, 1)}
		core := engine.NewCore(engine.Config{
			ID: "00000000-0000-0000-0000-00000000000c", LeaseTime: leaseTime, UnlockTimeout: 5 * time.Second,
			Log: slog.New(slog.DiscardHandler),
		}, f, pubsub.NewHub(d, nil))
		defer core.Wait()
		defer core.Close()
		other := second(t, f, leaseTime)
		h := take(t, t.Context(), other, "l", lock.WithLease(time.Hour))
		got := make(chan time.Time, 1)
		go func() {
			h := take(t, t.Context(), core, "l")
			at := time.Now()
			if err := h.Unlock(context.Background()); err != nil {
				t.Error(err)
			}
			got <- at // the test may end now
		}()
		time.Sleep(10 * time.Second) // it listens, and sleeps
		d.broken.Store(true)
		d.down <- errors.New("cut")
		time.Sleep(10 * time.Second)
		free := time.Now()
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		if late := (<-got).Sub(free); late > 2*time.Second {
			t.Errorf("the lock was free for %v", late)
		}
	})
}
