package once

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A fenced lock's token is never 0, and later holders' are larger: also where the owner holds the
// lock already by an object that is not fenced.
func TestFencedReentryHasAToken(t *testing.T) {
	t.Parallel()
	s := server(t)
	c := dial(t, s.Addr())
	plain, err := c.RLock("stock").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	fenced, err := c.RLock("stock", redlatch.Fenced()).Lock(plain.Context())
	if err != nil {
		t.Fatal(err)
	}
	if fenced.Token() == 0 {
		t.Error("a hold of a fenced lock has no token")
	}
	for _, h := range []redlatch.Hold{fenced, plain} {
		if err := h.Unlock(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// After a broken connection nothing is passed on until the server has answered again, also if no
// command was under way when it broke: whoever answers now may be another server.
func TestNothingIsPassedOnAfterAQuietBreak(t *testing.T) {
	t.Parallel()
	for _, breaks := range []bool{false, true} {
		s := server(t)
		p := testbed.NewProxy(t, s.Addr())
		c := dial(t, p.Addr(), func(c *redlatch.Config) { c.LeaseTime, c.Tenure = 9*time.Second, 3*time.Second })
		h, err := c.RLock("l").Lock(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		got := make(chan error, 1)
		go func() {
			next, err := c.RLock("l").Lock(t.Context())
			if err == nil {
				err = next.Unlock(context.Background())
			}
			got <- err
		}()
		for deadline := time.Now().Add(patience); len(s.List(t, "PUBSUB", "CHANNELS")) == 0 && time.Now().Before(deadline); {
			time.Sleep(5 * time.Millisecond)
		}
		time.Sleep(100 * time.Millisecond) // its second look
		if breaks {
			p.Cut()
			time.Sleep(100 * time.Millisecond)
		}
		s.Do(t, "DEL", "l") // the one that took over has never heard of it
		err = h.Unlock(context.Background())
		asked := errors.Is(err, redlatch.ErrLeaseLost)
		t.Logf("broken %v: Unlock: %v", breaks, err)
		t.Logf("broken %v: Unlock: %v, the receiver: %v", breaks, err, <-got)
		if asked != breaks {
			t.Errorf("broken %v: the server was asked: %v", breaks, asked)
		}
	}
}
