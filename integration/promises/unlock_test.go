package promises

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A hold is unlocked once, however many try: Unlock returns when it is known what became of the lock, and nothing
// that was asked for beside it brings the lock back.
func TestAHoldIsUnlockedOnce(t *testing.T) {
	t.Parallel()
	overKinds(t, nil, cases{
		"one of many unlocks counts": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			start, results := make(chan struct{}), make(chan error, 16)
			for range cap(results) {
				go func() {
					<-start
					results <- h.Unlock(context.Background())
				}()
			}
			close(start)
			done := 0
			for range cap(results) {
				if err := <-results; err == nil {
					done++
				} else {
					want(t, "another one's Unlock", err, redlatch.ErrNotHeld)
				}
			}
			testbed.Equal(t, done, 1, "calls that unlocked it, of", cap(results))
		},
		"a second unlock waits for the first": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			for _, p := range x.Proxies {
				p.Pause(testbed.Requests)
			}
			said := make(chan error, 2)
			unlock := func() { said <- h.Unlock(context.Background()) }
			go unlock()
			<-h.Context().Done() // it is under way
			go unlock()
			select {
			case err := <-said:
				t.Errorf("an Unlock returned %v while the servers were silent", err)
				said <- err
			case <-time.After(100 * time.Millisecond):
			}
			for _, p := range x.Proxies {
				p.Resume(testbed.Requests)
			}
			one, other := <-said, <-said
			if one != nil { // either may be the one that is sent
				one, other = other, one
			}
			if one != nil || !errors.Is(other, redlatch.ErrNotHeld) {
				t.Errorf("the Unlocks returned %v and %v, want nil and %v", one, other, redlatch.ErrNotHeld)
			}
		},
		"an Extend beside it": func(t *testing.T, x *bed.Site, name string) {
			for range 25 {
				h := bed.Lock(t, t.Context(), x.Lock(name))
				extended := make(chan error, 1)
				go func() { extended <- h.Extend(context.Background(), time.Hour) }()
				bed.Unlock(t, h)
				if err := <-extended; err != nil && !errors.Is(err, redlatch.ErrNotHeld) {
					t.Fatalf("Extend: %v", err)
				}
			}
		},
		"without a context, which is the caller's mistake": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			slowed(x, testbed.Requests, 200*time.Millisecond)
			ctx, leave := context.WithTimeout(t.Context(), 20*time.Millisecond)
			want(t, "Extend", h.Extend(ctx, time.Minute), context.DeadlineExceeded) // its command is on its way
			leave()
			want(t, "Unlock", h.Unlock(nil), nil) //nolint:staticcheck // it is the question
			slowed(x, testbed.Requests, 0)
		},
		"an inner one costs a command": func(t *testing.T, x *bed.Site, name string) {
			for _, lease := range []time.Duration{30 * time.Second, time.Hour} {
				outer := bed.Lock(t, t.Context(), x.Lock(name))
				inner := bed.Lock(t, outer.Context(), x.Lock(name), redlatch.WithLease(lease))
				quiet(t, x) // a quorum's last copy has come
				var before []testbed.Stats
				for _, s := range x.Servers {
					before = append(before, s.CommandStats(t))
				}
				bed.Unlock(t, inner)
				quiet(t, x)
				for i, s := range x.Servers {
					testbed.Equal(t, s.CommandStats(t).Sub(before[i]).Calls["evalsha"], 1, "commands, of a lease of", lease)
				}
				bed.Unlock(t, outer)
			}
		},
	})
}
