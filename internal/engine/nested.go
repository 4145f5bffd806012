package engine

import (
	"sync"
	"time"

	"github.com/redlatch/redlatch/internal/observe"
)

// A call inside a critical section that is made with another ctx than the hold's belongs to a new
// owner, and waits for its own goroutine for ever. It looks like a wait for another goroutine's long
// section; so what has lasted for a third of LeaseTime, for one and the same hold, deserves a line.

// ownWait is the wait of an acquisition for one hold of its own client.
type ownWait struct {
	holder string    // its field; "": another client's, or not known
	since  time.Time // when it was first seen
	over   bool      // nothing more is to be told of the acquisition
}

// ownLook notes who holds the lock, and returns when to look whether it is still the same hold of
// this client; zero: never. A waiter whose place is refreshed looks once more, and no oftener.
func (a *acquisition) ownLook() time.Time {
	w, holder := &a.own, a.busy.Holder
	if !a.core.owns(holder) {
		holder = ""
	}
	if holder != w.holder {
		w.over = w.over || a.place != nil && w.holder != ""
		w.holder, w.since = holder, time.Now()
	}
	if holder == "" || w.over {
		return time.Time{}
	}
	return w.since.Add(a.core.cfg.LeaseTime / 3)
}

// tellOfOwn tells, once for each hold, that it has been waited for too long by its own client. The
// server has just said that it holds the lock.
func (a *acquisition) tellOfOwn() {
	at, now := a.ownLook(), time.Now()
	if at.IsZero() || now.Before(at) {
		return
	}
	w := &a.own
	w.over = true
	if !a.core.nested.first(a.about().lock.of.Key, w.holder) {
		return
	}
	log, ctx := a.core.cfg.Log, a.values
	args := append(a.Logged(), "holder", w.holder, "waited", now.Sub(w.since))
	a.core.cfg.News.Tell(func() {
		log.WarnContext(ctx, "redlatch: waiting for a lock that this client holds; if this call is inside that section, lock with hold.Context()", observe.Resolve(args)...)
	})
}

// nestings is of which holds it was told that their own client waits for them. The zero value is
// empty. It is safe for concurrent use.
type nestings struct {
	mu   sync.Mutex
	told map[string]string // guarded by mu; the last holder of each key
}

// maxNestings bounds what is remembered: beyond it a line may come again.
const maxNestings = 1024

// first reports whether nothing was told of a key's holder yet.
func (n *nestings) first(key, holder string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.told[key] == holder {
		return false
	}
	if n.told == nil || len(n.told) >= maxNestings {
		n.told = map[string]string{}
	}
	n.told[key] = holder
	return true
}
