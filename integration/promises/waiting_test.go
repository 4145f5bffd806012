package promises

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What happens to a lock that somebody waits for; the waiter is inside then, whoever the holder was.
var wakes = map[string]func(t *testing.T, x *bed.Site, name string, h redlatch.Hold){
	"unlocked":    func(t *testing.T, _ *bed.Site, _ string, h redlatch.Hold) { t.Helper(); bed.Unlock(t, h) },
	"forced open": func(t *testing.T, x *bed.Site, name string, _ redlatch.Hold) { t.Helper(); forceOpen(t, x, name) },
	"deleted by hand": func(t *testing.T, x *bed.Site, name string, _ redlatch.Hold) {
		t.Helper()
		for _, s := range x.Servers {
			for _, key := range x.Kind.Names(name) {
				s.Do(t, "DEL", key)
			}
		}
	},
	"unlocked, and the message is lost": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		t.Helper()
		for i, s := range x.Servers {
			x.Proxies[i].Refuse() // nobody listens before it is unlocked
			s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		}
		bed.Unlock(t, h)
		for _, p := range x.Proxies {
			p.Admit(t)
		}
	},
	"unlocked while the waiter has no connection": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		t.Helper()
		for _, p := range x.Proxies {
			p.Refuse()
			p.Cut()
		}
		bed.Unlock(t, h)
		for _, p := range x.Proxies {
			p.Admit(t)
		}
	},
	"unlocked while the scripts are gone": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		t.Helper()
		for _, s := range x.Servers {
			s.Do(t, "SCRIPT", "FLUSH")
		}
		bed.Unlock(t, h)
	},
	"unlocked while answers are slow": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		t.Helper()
		for _, p := range x.Proxies {
			p.Delay(testbed.Replies, 60*time.Millisecond)
			p.Delay(testbed.Requests, 60*time.Millisecond)
			t.Cleanup(func() { p.Delay(testbed.Replies, 0); p.Delay(testbed.Requests, 0) })
		}
		bed.Unlock(t, h)
	},
	"kept by servers that start again, and unlocked": func(t *testing.T, x *bed.Site, name string, h redlatch.Hold) {
		t.Helper()
		restart(t, x, testbed.Keep)
		refused(t, x.Beside(name))
		bed.Unlock(t, h)
	},
	"gone with servers that start again": func(t *testing.T, x *bed.Site, _ string, _ redlatch.Hold) { t.Helper(); restart(t, x, testbed.Empty) },
}

func restart(t *testing.T, x *bed.Site, data testbed.Data) {
	t.Helper()
	for _, s := range x.Servers {
		s.Restart(t, data)
	}
}

// Who waits is woken, whatever frees the lock, long before a lease would have ended, also where no message comes; who
// waits for a limited time waits that long.
func TestAWaiterIsWoken(t *testing.T) {
	t.Parallel()
	all := cases{
		"a wait ends when its time is over": func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			const wait = 200 * time.Millisecond
			began := time.Now()
			_, err := x.Lock(name).TryLock(t.Context(), wait, 0)
			if took := time.Since(began); took < wait || took > wait+slack {
				t.Errorf("a wait of %v took %v", wait, took)
			}
			busy, is := errors.AsType[*redlatch.NotAcquiredError](err)
			if !is || !errors.Is(err, redlatch.ErrNotAcquired) || busy.Holder == "" || busy.Remaining <= 0 {
				t.Errorf("TryLock: %+v", err)
			}
			bed.Unlock(t, before)
		},
		"it is unlocked before the subscription stands": func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			caught, release := stalled((*testbed.Proxy).StallRequest, func(name string) testbed.Match {
				return testbed.Contains("SUBSCRIBE", name)
			})(t, x, 0, name)
			got := bed.Async(t.Context(), x.Lock(name))
			bed.Eventually(t, "a subscription on its way", caught)
			bed.Unlock(t, before)
			release()
			bed.Unlock(t, allGot(t, []<-chan bed.Attempt{got})[0])
		},
	}
	for what, free := range wakes {
		for form, try := range map[string]func(l redlatch.Locker) (redlatch.Hold, error){
			"Lock":    func(l redlatch.Locker) (redlatch.Hold, error) { return l.Lock(t.Context()) },
			"TryLock": func(l redlatch.Locker) (redlatch.Hold, error) { return l.TryLock(t.Context(), time.Minute, 0) },
		} {
			all["it is "+what+", for "+form] = func(t *testing.T, x *bed.Site, name string) {
				if x.Kind.Servers > 2 && strings.Contains(what, "start again") {
					return // a quorum trusts no node that has just started
				}
				before := bed.Lock(t, t.Context(), x.Beside(name))
				asked := x.Asked(t, name)
				got := bed.Run(func() (redlatch.Hold, error) { return try(x.Lock(name)) })
				asked()
				free(t, x, name, before)
				a := bed.Get(t, got)
				if a.Err != nil {
					t.Fatalf("%s: %v", form, a.Err)
				}
				refused(t, x.Beside(name))
				bed.Unlock(t, a.Hold)
				_ = before.Unlock(t.Context()) // it is lost, or is unlocked
			}
		}
	}
	overKinds(t, nil, all)
}
