package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Fencing tokens.

// Fencing tokens increase from holder to holder, over all clients.
func TestRLockTokensIncrease(t *testing.T) {
	s := bed.Server(t)
	c1, c2 := rlClient(t, s.Addr()), rlClient(t, s.Addr())
	var mu sync.Mutex
	var tokens []uint64 // in the order of the sections
	var wg sync.WaitGroup
	for g := range 8 {
		c := c1
		if g%2 == 0 {
			c = c2
		}
		wg.Go(func() {
			for range 25 {
				h, err := c.RLock("l", redlatch.Fenced()).Lock(context.Background())
				if err != nil {
					t.Error(err)
					return
				}
				mu.Lock()
				tokens = append(tokens, h.Token())
				mu.Unlock()
				if err := h.Unlock(context.Background()); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	for i := 1; i < len(tokens); i++ {
		if tokens[i] <= tokens[i-1] {
			t.Fatalf("token %d after %d", tokens[i], tokens[i-1])
		}
	}
}

// A re-entry has the token of the hold that it enters, and who did not ask for a token neither gets
// nor uses one.
func TestRLockTokenIsStableOnReentry(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	h := bed.Lock(t, t.Context(), c.RLock("l", redlatch.Fenced()))
	nested := bed.Lock(t, h.Context(), c.RLock("l", redlatch.Fenced()))
	if h.Token() == 0 || nested.Token() != h.Token() {
		t.Errorf("tokens %d and %d", h.Token(), nested.Token())
	}
	st, err := c.RLock("l", redlatch.Fenced()).State(t.Context())
	if err != nil || st.Token != h.Token() {
		t.Errorf("State says %d, %v", st.Token, err)
	}
	bed.Unlock(t, nested)
	bed.Unlock(t, h)
	plain := bed.Lock(t, t.Context(), c.RLock("l"))
	if plain.Token() != 0 {
		t.Errorf("token %d without Fenced", plain.Token())
	}
	bed.Unlock(t, plain)
	if now := s.Int(t, "GET", luascript.TokenKey("l")); now != int64(h.Token()) {
		t.Errorf("an acquisition that did not ask has paid: counter %d", now)
	}
	// A stale holder keeps its own token, not its successor's.
	stale := bed.Lock(t, t.Context(), c.RLock("l", redlatch.Fenced()), redlatch.WithLease(50*time.Millisecond))
	token := stale.Token()
	next := bed.Lock(t, t.Context(), c.RLock("l", redlatch.Fenced()))
	if stale.Token() != token || next.Token() <= token {
		t.Errorf("stale %d (was %d), next %d", stale.Token(), token, next.Token())
	}
	bed.Unlock(t, next)
}

// Tokens never fall back, though their counter is lost, falls back or runs ahead of the clock.
func TestRLockTokensSurviveTheirCounter(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	take := func() uint64 {
		t.Helper()
		h := bed.Lock(t, t.Context(), c.RLock("l", redlatch.Fenced()))
		bed.Unlock(t, h)
		return h.Token()
	}
	last := take()
	next := func(what string) uint64 {
		t.Helper()
		got := take()
		if got <= last {
			t.Errorf("%s: token %d after %d", what, got, last)
		}
		last = got
		return got
	}
	s.Do(t, "DEL", luascript.TokenKey("l"))
	next("counter deleted")
	s.Do(t, "SET", luascript.TokenKey("l"), "7") // an old replica took over
	next("counter fell back")
	s.Restart(t, testbed.Empty)
	next("server restarted empty")
	ahead := time.Now().Add(time.Hour).UnixMicro()
	s.Do(t, "SET", luascript.TokenKey("l"), fmt.Sprint(ahead))
	if got := next("counter ahead of the clock"); got != uint64(ahead)+1 {
		t.Errorf("token %d after a stored %d, want one more", got, ahead)
	}
}

// The counter of the tokens lives for FenceTTL after the last acquisition, a day by default, and
// for ever if that is negative.
func TestRLockFenceTTL(t *testing.T) {
	s := bed.Server(t)
	for ttl, want := range map[time.Duration][2]int64{
		0:         {23 * 3600_000, 24 * 3600_000}, // the default
		time.Hour: {3500_000, 3600_000},
		-1:        {-1, -1},
	} {
		c := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.FenceTTL = ttl })
		h := bed.Lock(t, t.Context(), c.RLock("l", redlatch.Fenced()))
		if got := s.Int(t, "PTTL", luascript.TokenKey("l")); got < want[0] || got > want[1] {
			t.Errorf("FenceTTL %v: the counter ends in %d ms", ttl, got)
		}
		bed.Unlock(t, h)
	}
}

// A hold of a fenced lock has a token, or the acquisition fails: what was acquired without a
// token can't be re-entered through a fenced object, of whatever kind. The other way round works.
func TestFencedReentryHasAToken(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	f := redlatch.Fenced()
	rw, fencedRW := c.ReadWriteLock("rw"), c.ReadWriteLock("rw", f)
	shared, fencedShared := c.ReadWriteLock("s", redlatch.ShareReads()), c.ReadWriteLock("s", redlatch.ShareReads(), f)
	for _, l := range []*redlatch.ReadWriteLock{fencedRW, fencedShared} {
		bed.Unlock(t, bed.Lock(t, t.Context(), l.WriteLock())) // whose token readers have
	}
	for what, pair := range map[string][2]redlatch.Locker{
		"plain":  {c.RLock("l"), c.RLock("l", f)},
		"fair":   {c.FairLock("f"), c.FairLock("f", f)},
		"write":  {rw.WriteLock(), fencedRW.WriteLock()},
		"read":   {rw.ReadLock(), fencedRW.ReadLock()},
		"shared": {shared.ReadLock(), fencedShared.ReadLock()},
		"group":  {redlatch.MultiLock(c.RLock("a"), c.RLock("b")), redlatch.MultiLock(c.RLock("b"), c.RLock("c", f), c.RLock("a", f))},
	} {
		h := bed.Lock(t, t.Context(), pair[0])
		nested, err := pair[1].TryLock(h.Context(), 10*time.Second, 0)
		if !errors.Is(err, redlatch.ErrInvalidOption) || !strings.Contains(err.Error(), "Fenced") {
			t.Errorf("%s: a fenced re-entry of a hold without a token: %v", what, err)
		}
		if err == nil {
			bed.Unlock(t, nested)
		}
		bed.Unlock(t, h)
		h = bed.Lock(t, t.Context(), pair[1])
		nested = bed.Lock(t, h.Context(), pair[0])
		if h.Token() == 0 || nested.Token() > h.Token() {
			t.Errorf("%s: token %d, and of the re-entry %d", what, h.Token(), nested.Token())
		}
		bed.Unlock(t, nested)
		bed.Unlock(t, h)
	}
}
