package promises

import (
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// What happens to a lock that somebody waits for; the waiter is inside then, whoever the holder was.
var wakes = map[string]func(t *testing.T, x *bed.Site, name string, h redlatch.Hold){
	"unlocked":    func(t *testing.T, _ *bed.Site, _ string, h redlatch.Hold) { bed.Unlock(t, h) },
	"forced open": func(t *testing.T, x *bed.Site, name string, _ redlatch.Hold) { forceOpen(t, x, name) },
	"deleted by hand": func(t *testing.T, x *bed.Site, name string, _ redlatch.Hold) {
		onAll(t, x, append([]string{"DEL"}, x.Kind.Names(name)...)...)
	},
	"unlocked, and the message is lost": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		for i, s := range x.Servers {
			x.Proxies[i].Refuse() // nobody listens before it is unlocked
			s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		}
		bed.Unlock(t, h)
		admit(t, x)
	},
	"unlocked while the waiter has no connection": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		cutOff(x)
		bed.Unlock(t, h)
		admit(t, x)
	},
	"unlocked while the scripts are gone": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		onAll(t, x, "SCRIPT", "FLUSH")
		bed.Unlock(t, h)
	},
	"unlocked while answers are slow": func(t *testing.T, x *bed.Site, _ string, h redlatch.Hold) {
		for _, d := range []testbed.Direction{testbed.Replies, testbed.Requests} {
			slowed(x, d, 60*time.Millisecond)
			t.Cleanup(func() { slowed(x, d, 0) })
		}
		bed.Unlock(t, h)
	},
	"kept by servers that start again, and unlocked": func(t *testing.T, x *bed.Site, name string, h redlatch.Hold) {
		restart(t, x, testbed.Keep)
		refused(t, x.Beside(name))
		bed.Unlock(t, h)
	},
	"gone with servers that start again": func(t *testing.T, x *bed.Site, _ string, _ redlatch.Hold) { restart(t, x, testbed.Empty) },
}

func restart(t *testing.T, x *bed.Site, data testbed.Data) {
	t.Helper()
	for _, s := range x.Servers {
		s.Restart(t, data)
	}
}

// Who waits is woken, whatever frees the lock, long before a lease would have ended, also where no message comes.
func TestAWaiterIsWoken(t *testing.T) {
	t.Parallel()
	all := cases{
		"it is unlocked before the subscription stands": func(t *testing.T, x *bed.Site, name string) {
			before := bed.Lock(t, t.Context(), x.Beside(name))
			caught, release := stalled((*testbed.Proxy).StallRequest, func(name string) testbed.Match {
				return testbed.Contains("SUBSCRIBE", name)
			})(t, x, 0, name)
			got := bed.Async(t.Context(), x.Lock(name))
			bed.Eventually(t, "a subscription on its way", caught)
			bed.Unlock(t, before)
			release()
			bed.Unlock(t, bed.Hold(t, got))
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
				a := entered(t, got)
				refused(t, x.Beside(name))
				bed.Unlock(t, a.Hold)
				_ = before.Unlock(t.Context()) // it is lost, or is unlocked
			}
		}
	}
	overKinds(t, nil, all)
}
