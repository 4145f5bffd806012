package promises

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// An operator takes a lock of whatever kind away from the owner that he was shown, and from no other: its holder is
// told, its own client's at once, and who waits gets in long before a lease could end.
func TestOperatorsTakeALockAway(t *testing.T) {
	t.Parallel()
	all := cases{
		"an eviction ends the owner that was shown, and no other": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Kind.New(x.Direct, name))
			got := waits(t, x, name)
			shown := map[string]string{}
			ops := x.Fresh(t)
			eachPart(x, name, ops, func(op *redlatch.Client, part, key string) {
				in, err := op.Inspect(t.Context(), key)
				if err != nil || in.HolderCount == 0 && !quorum(x) {
					t.Fatalf("%+v, %v", in, err)
				} else if in.HolderCount == 0 {
					return // a copy that came too late
				}
				owner := in.Holders[0].Owner
				was, err := op.ForceUnlock(t.Context(), key, redlatch.IfOwner(owner+"x"))
				if other, is := errors.AsType[*redlatch.OtherOwnerError](err); was || !is || other.Holder != owner || other.Name != key {
					t.Errorf("another owner: %v, %v", was, err)
				}
				if in, err := op.Inspect(t.Context(), key); err != nil || in.HolderCount != 1 || in.Holders[0].Owner != owner {
					t.Errorf("after a refusal: %+v, %v", in, err)
				}
				if was, err := op.ForceUnlock(t.Context(), key, redlatch.IfOwner(owner)); !was || err != nil {
					t.Errorf("its owner: %v, %v", was, err)
				}
				shown[part] = owner
			})
			next := bed.Hold(t, got)
			again := func(err error) {
				eachPart(x, name, ops, func(op *redlatch.Client, part, key string) {
					if shown[part] == "" {
						return
					}
					was, got := op.ForceUnlock(t.Context(), key, redlatch.IfOwner(shown[part]))
					if was || !errors.Is(got, err) && (!quorum(x) || got != nil) {
						t.Errorf("once more: %v, %v, want %v", was, got, err)
					}
				})
			}
			again(redlatch.ErrOtherOwner) // it finds the next one, and leaves it
			want(t, "the evicted one's Unlock", h.Unlock(context.Background()), redlatch.ErrLeaseLost)
			bed.Unlock(t, next)
			again(nil)
		},
		"an owner without a name is nobody": func(t *testing.T, x *bed.Site, name string) {
			h := bed.Lock(t, t.Context(), x.Lock(name))
			eachPart(x, name, x.Through, func(op *redlatch.Client, _, key string) {
				was, err := op.ForceUnlock(t.Context(), key, redlatch.IfOwner(""))
				if bad, is := errors.AsType[*redlatch.InvalidOptionError](err); was || !is || bad.Option != "IfOwner" {
					t.Errorf("ForceUnlock: %v, %v", was, err)
				}
			})
			bed.Unlock(t, h)
		},
		"the object of another kind takes nothing away": func(t *testing.T, x *bed.Site, name string) {
			if parted(x) || x.Kind.Parts != nil {
				return // a MultiLock's members are of any kind
			}
			h := bed.Lock(t, t.Context(), x.Lock(name))
			got := waits(t, x, name)
			c, key := x.Direct[0], name
			others := []operated{c.RLock(key), c.FairLock(key)}
			if x.Kind.Other == nil && x.Kind.Name != "write" {
				rw := c.ReadWriteLock(key)
				others = []operated{rw, rw.ReadLock(), rw.WriteLock()}
			}
			for _, other := range others {
				was, err := other.ForceUnlock(t.Context())
				bad, is := errors.AsType[*redlatch.InvalidNameError](err)
				if was || !is || !strings.Contains(bad.Reason, "its key is held as a ") {
					t.Errorf("%T: %v, %v", other, was, err)
				}
			}
			refused(t, x.Beside(name))
			if len(got) > 0 {
				t.Error("who waits was let in")
			}
			bed.Unlock(t, h)
			bed.Unlock(t, bed.Hold(t, got))
		},
		"of a lock that somebody deleted: who waits is woken": func(t *testing.T, x *bed.Site, name string) {
			if parted(x) || x.Kind.Parts != nil {
				return // who waits comes in with one of them
			}
			h := bed.Lock(t, t.Context(), x.Kind.New(x.Direct, name), redlatch.WithLease(10*time.Minute))
			got := waits(t, x, name)
			look := x.Proxies[0].StallReply(bed.Of(name)) // the next one comes in a second
			look.Wait(t)
			look.Release()
			own := x.Proxies[0].StallRequest(bed.Of(name)).Times(-1) // what it asks by itself comes afterwards
			began := time.Now()
			deleted(t, x, name)
			if was, err := x.Direct[0].ForceUnlock(t.Context(), name); was || err != nil {
				t.Errorf("%v, %v", was, err)
			}
			own.Release()
			inside(t, h, got, began, atOnce)
		},
		"from a holder of the same client whom the grant reaches later": func(t *testing.T, x *bed.Site, name string) {
			if parted(x) {
				return
			}
			apart := commandsApart(t, x)
			granted := x.Proxies[0].StallReply(bed.Of(name))
			got := bed.Async(t.Context(), x.Kind.New(apart, name))
			granted.Wait(t)
			eachPart(x, name, apart, func(op *redlatch.Client, _, key string) {
				if was, err := op.ForceUnlock(t.Context(), key); !was || err != nil {
					t.Fatalf("ForceUnlock: %v, %v", was, err)
				}
			})
			next := bed.Lock(t, t.Context(), x.Beside(name))
			granted.Release()
			lost(t, entered(t, got).Hold, redlatch.LossGone)
			bed.Alive(t, next)
			bed.Unlock(t, next)
		},
		"by hand, as docs/OPERATIONS.md says": func(t *testing.T, x *bed.Site, name string) {
			if parted(x) || x.Kind.Parts != nil {
				return
			}
			h := bed.Lock(t, t.Context(), x.Kind.New(x.Direct, name), redlatch.WithLease(10*time.Minute))
			got := waits(t, x, name)
			began := time.Now()
			onAll(t, x, "DEL", name, luascript.RWLeasesKey(name))
			inside(t, h, got, began, looks)
		},
	}
	for _, by := range []string{"the lock", "the client"} {
		all["by "+by+" of its holder, who is told at once"] = func(t *testing.T, x *bed.Site, name string) {
			elsewhere, l := bed.Lock(t, t.Context(), x.Lock(name+"elsewhere")), x.Lock(name)
			holds := []redlatch.Hold{bed.Lock(t, t.Context(), l)}
			for x.Kind.Shared && len(holds) < 20 { // more than an answer names
				holds = append(holds, bed.Lock(t, t.Context(), l))
			}
			next := bed.Async(t.Context(), x.Kind.Excluded(x.Through, name))
			if by == "the lock" {
				if was, err := l.(operated).ForceUnlock(t.Context()); !was || err != nil {
					t.Fatalf("ForceUnlock: %v, %v", was, err)
				}
			} else {
				eachPart(x, name, x.Through, func(op *redlatch.Client, _, key string) {
					if was, err := op.ForceUnlock(t.Context(), key); !was && !quorum(x) || err != nil {
						t.Fatalf("ForceUnlock: %v, %v", was, err)
					}
				})
			}
			for _, h := range holds {
				lost(t, h, redlatch.LossGone)
			}
			h := bed.Hold(t, next)
			bed.Alive(t, h)
			bed.Alive(t, elsewhere)
			bed.Unlock(t, h)
			bed.Unlock(t, elsewhere)
		}
	}
	overKinds(t, []func(*redlatch.Config){func(c *redlatch.Config) { c.LeaseTime = time.Hour }}, all) // no check comes meanwhile
}

// inside waits until who waited is inside, soon after the lock that h had was free.
func inside(t *testing.T, h redlatch.Hold, got <-chan bed.Attempt, since time.Time, soon time.Duration) {
	t.Helper()
	a := entered(t, got)
	if took := a.At.Sub(since); took > soon {
		t.Errorf("it is inside after %v", took)
	}
	want(t, "Unlock of what was taken away", h.Unlock(context.Background()), redlatch.ErrLeaseLost)
	bed.Unlock(t, a.Hold)
}

// commandsApart are clients behind the proxies each of whose commands has a connection of its own: an answer that is late
// holds up no other.
func commandsApart(t *testing.T, x *bed.Site) (clients []*redlatch.Client) {
	t.Helper()
	for _, p := range x.Proxies {
		apart, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{p.Addr()}, DisableAutoPipelining: true, DisableCache: true})
		testbed.Must(t, err)
		t.Cleanup(apart.Close)
		c, err := redlatch.NewWithClient(apart, redlatch.Config{LeaseTime: time.Hour, Logger: slog.New(slog.DiscardHandler)})
		testbed.Must(t, err)
		t.Cleanup(c.Close)
		clients = append(clients, c)
	}
	return clients
}

// eachPart does something with each lock that the lock consists of, by a client of its server.
func eachPart(x *bed.Site, name string, clients []*redlatch.Client, do func(c *redlatch.Client, part, key string)) {
	for i, c := range clients {
		for _, key := range x.Kind.Names(name) {
			do(c, strings.Repeat("'", i)+key, key)
		}
	}
}
