package engine_test

import (
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// A server whose scripts let a token through that is none, or that no other can follow, is not believed: the
// grant is given back, and the error is typed.
func TestATokenThatIsNoneIsRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakePlain(1)
		f.calm = true
		l := f.link()
		core := engine.NewCore(engine.Config{
			ID: "00000000-0000-0000-0000-00000000000c", LeaseTime: leaseTime, UnlockTimeout: time.Second,
			FenceTTL: time.Hour, Log: slog.New(slog.DiscardHandler),
		}, l, pubsub.NewHub(l, nil))
		defer core.Wait()
		defer core.Close()
		for _, before := range []int64{1<<53 - 1, math.MaxInt64 - 1, math.MinInt64, -2} {
			f.token = before // the next one is larger by one
			h, err := engine.Open(new(rlock.RLock), core, "l", lock.Fenced()).TryLock(t.Context(), 0, 0)
			var refused *lock.ServerError
			if err == nil {
				t.Errorf("token %d", h.Token())
				continue
			}
			if !errors.As(err, &refused) {
				t.Error(err)
			}
			time.Sleep(time.Second) // it is undone in the background
			f.mu.Lock()
			if f.keys["l"] != nil {
				t.Errorf("held by %s", f.keys["l"].field)
			}
			f.mu.Unlock()
		}
	})
}
