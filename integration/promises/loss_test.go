package promises

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// shortLease makes leases that end, and renewals that come, while a test looks.
const shortLease = 6 * time.Second

func short(c *redlatch.Config) { c.LeaseTime = shortLease }

// What takes a lock away from its holder on one of its servers.
var losses = map[string]func(t *testing.T, x *bed.Site, s *testbed.Server, name string){
	"is deleted":             remove,
	"is gone with all there": func(t *testing.T, _ *bed.Site, s *testbed.Server, _ string) { s.Do(t, "FLUSHALL") },
	"is dropped for memory": func(t *testing.T, _ *bed.Site, s *testbed.Server, name string) {
		s.Do(t, "CONFIG", "SET", "maxmemory-policy", "allkeys-random")
		s.Do(t, "CONFIG", "SET", "maxmemory", "1")
		bed.Eventually(t, "the drop", func() bool { return len(s.List(t, "KEYS", name+"*")) == 0 })
		s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	},
	"is gone with a restart": func(t *testing.T, _ *bed.Site, s *testbed.Server, _ string) { s.Restart(t, testbed.Empty) },
	"loses its fields": func(t *testing.T, x *bed.Site, s *testbed.Server, name string) {
		for _, key := range x.Kind.Names(name) {
			for _, field := range s.List(t, "HKEYS", key) {
				if field != "mode" {
					s.Do(t, "HDEL", key, field)
				}
			}
			s.Do(t, "PERSIST", key) // what a renewal would change
		}
	},
	"has another owner": func(t *testing.T, x *bed.Site, s *testbed.Server, name string) {
		const stranger = "00000000-0000-0000-0000-000000000000:1"
		remove(t, x, s, name)
		for _, key := range x.Kind.Names(name) {
			if slices.Contains([]string{"read", "write"}, x.Kind.Name) {
				s.Do(t, "HSET", key, "mode", "write", stranger+":write", "1")
			} else {
				s.Do(t, "HSET", key, stranger, "1")
			}
		}
	},
	"is something else": func(t *testing.T, x *bed.Site, s *testbed.Server, name string) {
		remove(t, x, s, name)
		for _, key := range x.Kind.Names(name) {
			s.Do(t, "SET", key, "data")
		}
	},
}

func remove(t *testing.T, _ *bed.Site, s *testbed.Server, name string) {
	t.Helper()
	for _, key := range s.List(t, "KEYS", "*"+name+"*") {
		s.Do(t, "DEL", key)
	}
}

// What a holder does next, and hears of the loss. inner is a hold inside, where that says so.
var finds = map[string]func(h, inner redlatch.Hold, l redlatch.Locker) error{
	"Unlock": func(h, _ redlatch.Hold, _ redlatch.Locker) error { return h.Unlock(context.Background()) },
	"Extend": func(h, _ redlatch.Hold, _ redlatch.Locker) error {
		return h.Extend(context.Background(), 2*time.Second)
	},
	"a re-entry": func(h, _ redlatch.Hold, l redlatch.Locker) error {
		_, err := l.TryLock(h.Context(), 0, 0)
		return err
	},
	"the release of an inner hold": func(_, inner redlatch.Hold, _ redlatch.Locker) error { return inner.Unlock(context.Background()) },
}

// A lock that is lost is told: the hold's context ends with ErrLeaseLost, found by a check before the lease would have
// ended, or by the next thing that its holder does; Unlock returns it; nothing is created, renewed or changed by it.
func TestALostLockIsTold(t *testing.T) {
	t.Parallel()
	all := cases{
		"it is forced open": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			until := h.ValidUntil()
			forceOpen(t, x, name)
			lost(t, h, redlatch.LossGone)
			checked(t, until)
		},
	}
	for what, take := range losses {
		all["it "+what+", and is renewed or fixed"] = func(t *testing.T, x *bed.Site, name string) {
			type pair struct {
				outer, inner redlatch.Hold
				taken        taken
			}
			pairs := map[string]*pair{}
			for mode, opts := range map[string][]redlatch.AcquireOption{"renewed": nil, "fixed": {redlatch.WithLease(time.Minute)}} {
				outer := bed.Lock(t, t.Context(), x.Lock(name+mode), opts...)
				pairs[name+mode] = &pair{outer: outer, inner: bed.Lock(t, outer.Context(), x.Lock(name+mode), opts...)}
			}
			at := time.Now()
			for name, p := range pairs {
				p.taken = takeAway(t, x, take, name)
			}
			for _, p := range pairs {
				lost(t, p.outer, redlatch.LossGone)
				checked(t, at.Add(shortLease/3+slack))
				lost(t, p.inner, redlatch.LossGone)
				p.taken.untouched(t)
			}
			for name := range pairs {
				bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock(name)))
			}
		}
		for found, call := range finds {
			if what == "is gone with a restart" {
				continue // the client may be on its way to the server still
			}
			all["it "+what+", and "+found+" finds it"] = func(t *testing.T, x *bed.Site, name string) {
				if found == "a re-entry" && quorum(x) && what != "is something else" {
					return // a copy that came late is free, and is taken until it is known that most are lost
				}
				h := bed.Lock(t, t.Context(), x.Lock(name))
				inner := h
				if strings.Contains(found, "inner") {
					inner = bed.Lock(t, h.Context(), x.Lock(name))
				}
				taken := takeAway(t, x, take, name)
				want(t, found, call(h, inner, x.Lock(name)), redlatch.ErrLeaseLost)
				if found == "Unlock" {
					ended(t, h, redlatch.ErrUnlocked)
				} else {
					lost(t, h, redlatch.LossGone)
				}
				taken.untouched(t)
			}
		}
	}
	overKinds(t, []func(*redlatch.Config){short}, all)
}

// taken is a lock that was taken away, and what stood on the servers then.
type taken struct {
	x     *bed.Site
	name  string
	stood string
}

func takeAway(t *testing.T, x *bed.Site, take func(t *testing.T, x *bed.Site, s *testbed.Server, name string), name string) taken {
	t.Helper()
	for _, s := range x.Servers {
		if len(x.Keys(t, name)) == 0 {
			break // it went with another one
		}
		take(t, x, s, name)
	}
	return taken{x, name, content(t, x, name)}
}

// untouched fails if something else stands there now, and removes it.
func (k taken) untouched(t *testing.T) {
	t.Helper()
	testbed.Equal(t, content(t, k.x, k.name), k.stood, "what stands there now")
	for _, s := range k.x.Servers {
		remove(t, k.x, s, k.name)
	}
}

func content(t *testing.T, x *bed.Site, name string) string {
	t.Helper()
	var all []string
	for _, s := range x.Servers {
		for _, key := range x.Kind.Names(name) {
			all = append(all, fmt.Sprintf("%s: %q", key, s.Text(t, "EVAL",
				"return redis.call('EXISTS', KEYS[1]) == 1 and redis.call('DUMP', KEYS[1]) .. redis.call('PTTL', KEYS[1]) or 'nothing'", "1", key)))
		}
	}
	return strings.Join(all, ", ")
}

// Who can't renew is told before the next one can be inside, and not earlier than need be.
func TestALeaseThatEndsIsTold(t *testing.T) {
	t.Parallel()
	all := cases{
		"its fixed lease ends": func(t *testing.T, x *bed.Site, name string) {
			const lease = 4 * time.Second // of a watchdog that would renew twice within it, if it did
			began := time.Now()
			h := bed.Lock(t, t.Context(), x.Lock(name), redlatch.WithLease(lease))
			until := h.ValidUntil()
			if least := began.Add(lease - lease/50); until.Before(least) {
				t.Errorf("it is valid until %v before the end of its lease", least.Sub(until))
			}
			_, last := x.Left(t, name)
			latest := time.Now().Add(last + slack)
			next := succeeds(t, x, name, h)
			if now := time.Now(); now.Before(until) || now.After(latest) {
				t.Errorf("the next one is inside at %v, the deadline was %v, the lease ended before %v", now, until, latest)
			}
			lost(t, h, redlatch.LossExpired)
			untouched(t, x, name, next)
			bed.Unlock(t, next)
		},
		"its servers are out of reach": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			for _, p := range x.Proxies {
				p.Pause(testbed.Requests)
				p.Pause(testbed.Replies)
			}
			next := succeeds(t, x, name, h)
			for _, p := range x.Proxies {
				p.Resume(testbed.Requests)
				p.Resume(testbed.Replies)
			}
			lost(t, h, redlatch.LossExpired)
			bed.Unlock(t, next)
		},
	}
	for what, outage := range outages {
		all[what] = func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			valid := h.ValidUntil()
			bed.Eventually(t, "a renewal", func() bool { return h.ValidUntil().After(valid) })
			for i, s := range x.Servers {
				outage.cut(t, s, x.Proxies[i])
			}
			cut := time.Now()
			valid = h.ValidUntil() // no renewal moves it on any more, but one whose answer has come
			ended(t, h, redlatch.ErrLeaseLost)
			at := time.Now()
			if at.Before(valid) && h.ValidUntil().Equal(valid) {
				t.Errorf("the hold ended %v before its deadline", valid.Sub(at))
			}
			testbed.AtMost(t, at.Sub(cut.Add(shortLease)), slack, "the hold ended later than a lease after the cut, by")
			one := x.Kind.Servers == 1 && x.Kind.Parts == nil
			if one { // what is left of several is asked for once more
				lost(t, h, redlatch.LossExpired)
			}
			for i, s := range x.Servers {
				outage.mend(t, s, x.Proxies[i])
			}
			if !one {
				lost(t, h, redlatch.LossExpired)
			}
			bed.Unlock(t, bed.Lock(t, t.Context(), x.Lock(name))) // nothing renews what is left there
		}
	}
	overKinds(t, []func(*redlatch.Config){short}, all)
}

// What keeps a client from its server.
var outages = map[string]struct {
	cut, mend func(t *testing.T, s *testbed.Server, p *testbed.Proxy)
}{
	"its servers take no writes": { // scripts wait, while the connection looks healthy
		func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) {
			s.Do(t, "CLIENT", "PAUSE", "60000", "WRITE")
		},
		func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) { s.Do(t, "CLIENT", "UNPAUSE") },
	},
	"its servers stand still": {
		func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) { s.Freeze(t) },
		func(t *testing.T, s *testbed.Server, _ *testbed.Proxy) { s.Thaw(t) },
	},
	"requests are swallowed": {
		func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) { p.Pause(testbed.Requests) },
		func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) { p.Cut(); p.Resume(testbed.Requests) },
	},
	"replies are swallowed": {
		func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) { p.Pause(testbed.Replies) },
		func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) { p.Cut(); p.Resume(testbed.Replies) },
	},
	"it is cut off": {
		func(_ *testing.T, _ *testbed.Server, p *testbed.Proxy) { p.Refuse(); p.Cut() },
		func(t *testing.T, _ *testbed.Server, p *testbed.Proxy) { p.Admit(t) },
	},
}

// checked fails if a loss was found no earlier than the lease would have ended.
func checked(t *testing.T, until time.Time) {
	t.Helper()
	testbed.AtMost(t, time.Since(until), 0, "no check found it: told after the end of the lease by")
}

// succeeds waits until the next one is inside, and checks that the hold before had ended.
func succeeds(t *testing.T, x *bed.Site, name string, before redlatch.Hold) redlatch.Hold {
	t.Helper()
	got := bed.Run(func() (redlatch.Hold, error) {
		h, err := x.Beside(name).Lock(t.Context())
		if err == nil && before.Context().Err() == nil {
			t.Error("two are inside with live contexts")
		}
		return h, err
	})
	a := entered(t, got)
	return a.Hold
}

// forceOpen frees the lock as an operator does.
func forceOpen(t *testing.T, x *bed.Site, name string) {
	t.Helper()
	forced(t, x, name, func(int, string) []redlatch.ForceOption { return nil })
}

// evict ends what the clients hold, and nobody else's holds: others may come in between.
func evict(t *testing.T, x *bed.Site, name string, clients []*redlatch.Client) {
	t.Helper()
	forced(t, x, name, func(i int, key string) []redlatch.ForceOption {
		found, err := x.Direct[i].Inspect(t.Context(), key)
		if err != nil {
			t.Fatalf("Inspect(%s): %v", key, err)
		}
		var theirs []string
		for _, h := range found.Holders {
			if strings.HasPrefix(h.Owner, clients[i].ID()) {
				theirs = append(theirs, h.Owner)
			}
		}
		return []redlatch.ForceOption{redlatch.IfOwners(theirs...)}
	})
}

func forced(t *testing.T, x *bed.Site, name string, whose func(server int, key string) []redlatch.ForceOption) {
	t.Helper()
	for i, s := range x.Servers {
		for _, key := range s.List(t, "KEYS", name+"*") {
			_, err := x.Direct[i].ForceUnlock(t.Context(), key, whose(i, key)...)
			if err != nil && !errors.Is(err, redlatch.ErrOtherOwner) {
				t.Fatalf("ForceUnlock(%s): %v", key, err)
			}
		}
	}
}

// lost waits until the hold's context has ended for a loss, which Unlock tells as well, once. Of several locks as one
// either tells of a member.
func lost(t *testing.T, h redlatch.Hold, reason redlatch.LossReason) {
	t.Helper()
	ended(t, h, redlatch.ErrLeaseLost)
	err := h.Unlock(context.Background())
	detail, is := errors.AsType[*redlatch.LeaseLostError](err)
	if !is || detail.Name == "" || detail.Owner == "" || detail.Name == h.Name() && detail.Reason != reason && detail.Reason != redlatch.LossMember {
		t.Errorf("Unlock of a lost hold: %v, want a loss because it is %s", err, reason)
	}
	wantNot(t, "Unlock of a lost hold", err, redlatch.ErrNotHeld, redlatch.ErrClosed)
	want(t, "a second Unlock of a lost hold", h.Unlock(context.Background()), redlatch.ErrNotHeld)
}
