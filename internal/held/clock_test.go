package held

import (
	"log/slog"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// granted takes what a server granted of a lock, in a registry after whose holds nobody looks but the test.
func granted(t *testing.T, leaseTime time.Duration, g *Grant) (*Registry, *Hold) {
	t.Helper()
	r := &Registry{cfg: Config{LeaseTime: leaseTime, News: &observe.News{}, Log: slog.New(slog.DiscardHandler)}, epoch: g.Sent}
	r.dog = newWatchdog(r)
	g.Lock, g.Claim, g.Ctx = &Lock{Key: "l", Kind: plain{}}, newOwner().Claim(r, "l"), t.Context()
	h, err := r.Take(g)
	testbed.Must(t, err)
	return r, h
}

// What a machine slept of a lease is gone, though its wall clock had been set back since the deadline was made. The
// server need not be there to tell.
func TestASleepCountsThoughTheWallClockWasSetBack(t *testing.T) {
	t.Parallel()
	const length = 30 * time.Second
	for what, fixed := range map[string]time.Duration{"the watchdog's": 0, "a fixed lease": length} {
		now := time.Now()
		r, h := granted(t, length, &Grant{Fixed: fixed, Lease: length, Sent: now})
		h.session.renewing = true // so that no command is sent
		if r.dog.look(testbed.WallAt(t, now.Add(time.Second), -time.Hour)); h.Ended() != nil {
			t.Fatalf("%s: the wall clock was set back: %v", what, h.Ended())
		}
		r.dog.look(testbed.WallAt(t, now.Add(2*time.Second), length-time.Hour))
		if h.Ended() == nil || h.lost.Reason != lock.LossExpired {
			t.Errorf("%s: after a sleep for the length of its lease: %v", what, h.Ended())
		}
		r.cfg.News.Wait()
	}
}

// So it does for the end that renewals lead a quorum's copy to.
func TestASleepCountsForTheEndThatRenewalsLeadTo(t *testing.T) {
	t.Parallel()
	const length, back = 30 * time.Second, -time.Hour
	now := time.Now()
	r, h := granted(t, length, &Grant{Fixed: 4 * length / 3, Lease: length, Sent: now})
	r.dog.look(testbed.WallAt(t, now.Add(time.Second), back))
	renewed := testbed.WallAt(t, now.Add(length/2), back)
	r.dog.renewedLocked(h.session, renewed, renewed, length)
	h.session.renewing, r.closed = true, true // so that no command is sent
	r.dog.look(testbed.WallAt(t, now.Add(length/2), back+length))
	if h.Ended() == nil {
		t.Error("the hold outlasts its lease by what its machine slept")
	}
	r.cfg.News.Wait()
}

// A grant that was handed over is confirmed before the watchdog's lease is over: who re-enters it may count on no more.
func TestALongGrantIsConfirmedWithinLeaseTime(t *testing.T) {
	t.Parallel()
	const length = time.Second
	_, h := granted(t, length, &Grant{Fixed: 10 * length, Lease: 10 * length, Sent: time.Now(), Handed: true, Lasts: 5 * length})
	testbed.AtMost(t, time.Until(h.session.grant.confirmAt), length/2, "it is confirmed in")
	testbed.AtLeast(t, time.Until(h.ValidUntil()), 4*length, "it lasts for")
}
