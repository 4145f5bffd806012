package work

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// cold is a locker whose first Locks are never told that the lock is free, or only when their ctx is over. Its holds
// are their ctx, as with libraries whose locks end with it.
type cold struct {
	sleeps, late int
	unlocked     int
}

type ctxHold struct {
	ctx context.Context
	l   *cold
}

func (h ctxHold) Unlock(context.Context) error { h.l.unlocked++; return nil }

func (l *cold) Lock(ctx context.Context) (Hold, error) {
	switch {
	case l.sleeps > 0:
		l.sleeps--
		<-ctx.Done()
		return nil, ctx.Err()
	case l.late > 0:
		l.late--
		<-ctx.Done()
	}
	return ctxHold{ctx, l}, nil
}

// TestWarmHoldsLast: whoever hands the lock over in the first pass that counts still holds it.
func TestWarmHoldsLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		l := &cold{sleeps: 2, late: 1}
		began := time.Now()
		h, err := lockWithin(ctx, l, warmPasses-1)
		if err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 3*coldWait || l.unlocked != 1 {
			t.Errorf("after %v, %d unlocked, want %v and the one that came too late", took, l.unlocked, 3*coldWait)
		}
		time.Sleep(2 * coldWait)
		if err := h.(ctxHold).ctx.Err(); err != nil {
			t.Errorf("the hold's ctx: %v", err)
		}
		cancel()
		if _, err := lockWithin(ctx, &cold{sleeps: 1}, 0); err == nil {
			t.Error("a hold after the end")
		}
	})
}
