package integration

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

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
		testbed.Between(t, s.Int(t, "PTTL", luascript.TokenKey("l")), want[0], want[1], "the counter's ms, by", ttl)
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
		bed.Unlock(t, nested, h)
	}
}
