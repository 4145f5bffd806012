package engine_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
)

// A client of the user's may keep a renewal for as long as it likes: Close leaves it behind.
func TestCloseLeavesABlockedClientBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.Alone = true })
		open := make(chan struct{})
		t.Cleanup(func() { close(open) }) // before the core's own
		f.onAfter(fault{script: luascript.Renew, do: func() { <-open }}.hook())
		take(t, t.Context(), core, "l")
		time.Sleep(leaseTime / 2)
		began := time.Now()
		core.Close()
		if core.Wait() {
			t.Error("Wait says that nothing is left")
		}
		testbed.AtMost(t, time.Since(began), 10*time.Second, "Close took, with an UnlockTimeout of 5 s")
	})
}

// clinging is a dialer whose connections do not end before open is closed.
type clinging struct {
	*fakeLink
	open chan struct{}
}

func (d clinging) Dial(node string, h pubsub.Handler) (pubsub.Link, error) {
	l, err := d.fakeLink.Dial(node, h)
	return clingingLink{l, d.open}, err
}

type clingingLink struct {
	pubsub.Link
	open chan struct{}
}

func (l clingingLink) Close() {
	<-l.open
	l.Link.Close()
}

// The connection of the subscriptions may take for ever to end: Close goes on after UnlockTimeout.
// With a client of our own that is closed next, which ends the connection; one of the user's is left
// behind.
func TestCloseLeavesABlockedSubscriptionBehind(t *testing.T) {
	const limit = 5 * time.Second
	for name, theirs := range map[string]bool{"a client of our own": false, "a client of the user's": true} {
		bubble(t, name, func(t *testing.T) {
			open := make(chan struct{})
			l := newServer().link()
			core := newCore(t, l, clinging{l, open}, func(cfg *engine.Config) { cfg.Alone = theirs })
			take(t, t.Context(), core, "l")
			waits := locking(t.Context(), core, "l")
			time.Sleep(time.Second) // it listens
			began := time.Now()
			core.Close()
			testbed.AtMost(t, time.Since(began), limit, "Close took")
			waits.ends(t, lock.ErrClosed)
			if !theirs {
				close(open)
			}
			ended := core.Wait()
			if took := time.Since(began); ended == theirs || took > 3*limit {
				t.Errorf("Wait says after %v that nothing is left: %t", took, ended)
			}
			if theirs {
				close(open)
			}
		})
	}
}
