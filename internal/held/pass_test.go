package held

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// Whoever takes away thousands of locks by force does not walk through all of them each time, nor
// remembers them for good.
func TestDoubtsAreLookedThroughOncePerLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{cfg: Config{LeaseTime: 30 * time.Second}}
		doubt := func(key string) { r.Doubt(key)(true, false) }
		begun := r.Doubt("asked")
		doubt("a")
		time.Sleep(time.Second)
		doubt("b")
		time.Sleep(30 * time.Second)
		doubt("c") // it is a lease since the last look: a is forgotten
		time.Sleep(time.Second)
		doubt("d") // b need not be remembered, either
		if r.doubts["a"] != nil || r.doubts["b"] == nil || len(r.doubts) != 4 {
			t.Errorf("a second after a look %d are remembered, want those since then and b", len(r.doubts))
		}
		time.Sleep(30 * time.Second)
		doubt("e")
		if r.doubts["b"] != nil || r.doubts["asked"] == nil || len(r.doubts) > 4 {
			t.Errorf("a lease later %d are remembered", len(r.doubts))
		}
		begun(true, false)
		time.Sleep(40 * time.Second)
		doubt("f")
		if len(r.doubts) != 1 {
			t.Errorf("at last %d are remembered", len(r.doubts))
		}
	})
}

// plain is a kind that says what it is.
type plain struct{ kind.Kind }

func (plain) Traits() *kind.Traits { return &kind.Traits{Mode: lock.ModeLock} }

// A check that is due since a lock may have been taken away is not put off by a re-entry, or the confirmation of a
// grant, that ran before.
func TestACheckThatIsDueIsNotPutOff(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := &Registry{cfg: Config{LeaseTime: 30 * time.Second}, epoch: time.Now()}
		r.dog = newWatchdog(r) // nobody looks
		c := newOwner().Claim(r, "l")
		h, err := r.Take(&Grant{Lock: &Lock{Key: "l", Kind: plain{}}, Claim: c, Ctx: t.Context(), Lease: 30 * time.Second, Sent: time.Now()})
		testbed.Must(t, err)
		due := func() bool { return !h.session.renewAt.After(time.Now()) }
		sent := time.Now()
		time.Sleep(time.Second)
		if due() || !r.Suspect("l", lock.ModeNone, ManyHeld) || !due() {
			t.Fatal("what is suspected is not checked at once")
		}
		if _, err := h.session.Reenter(t.Context(), c, 0, 30*time.Second, sent); err != nil || !due() {
			t.Errorf("after a re-entry (%v) the check is due in %v", err, time.Until(h.session.renewAt))
		}
		h.session.grant = &grant{asked: 30 * time.Second, at: sent}
		if r.dog.renewedLocked(h.session, sent, time.Now(), 30*time.Second); !due() {
			t.Errorf("after the confirmation of its grant the check is due in %v", time.Until(h.session.renewAt))
		}
	})
}
