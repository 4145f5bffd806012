package integration

import (
	"context"
	"fmt"
	"maps"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// crowdStands is how long a free lock is left lying at most while somebody waits: a look, and what a
// busy machine adds.
const crowdStands = 1250*time.Millisecond + crowdSoon

// crowdSoon is how long it takes at most to be called, on a busy machine: less than until anybody looks.
const crowdSoon = 600 * time.Millisecond

// crowdStranger is a client id that is nobody's.
const crowdStranger = "00000000-0000-4000-8000-000000000001"

// Many processes wait with one waiter each: a release costs about three commands, whatever their number. It would cost
// one of each process if all of them were woken.
func TestCrowdAReleaseCallsOneClient(t *testing.T) {
	for name, opts := range map[string][]redlatch.Option{"plain": nil, "fenced": {redlatch.Fenced()}} {
		t.Run(name, func(t *testing.T) {
			const clients, turns = 20, 10
			s := bed.Server(t)
			rlLoad(t, s)
			ctx := t.Context()
			h := bed.Lock(t, ctx, rlClient(t, s.Addr()).RLock("l", opts...))
			var all sync.WaitGroup
			inside := 0 // by the lock
			for range clients {
				l := rlClient(t, s.Addr()).RLock("l", opts...)
				all.Go(func() {
					for range turns {
						h, err := l.Lock(ctx)
						if err != nil {
							t.Error(err)
							return
						}
						inside++
						if err := h.Unlock(ctx); err != nil {
							t.Error(err)
						}
					}
				})
			}
			bed.Eventually(t, "all wait", func() bool { return s.Int(t, "ZCARD", luascript.WaitKey("l")) == clients })
			before := s.CommandStats(t)
			bed.Unlock(t, h)
			all.Wait()
			if inside != clients*turns {
				t.Errorf("%d turns", inside)
			}
			calls := s.CommandStats(t).Sub(before).Calls["evalsha"]
			if each := float64(calls) / (clients * turns); each > 4 {
				t.Errorf("%.1f commands a turn, with %d clients", each, clients)
			}
		})
	}
}

// Nobody waits: what the list costs an acquisition and its release is one read, and no write. (The server counts the
// commands of scripts, too.)
func TestCrowdNobodyWaitsAndNothingIsWritten(t *testing.T) {
	pair := map[string]int64{"evalsha": 2, "exists": 2, "hset": 1, "pexpire": 1, "hdel": 1, "publish": 1}
	for name, opts := range map[string][]redlatch.Option{"plain": nil, "fenced": {redlatch.Fenced()}} {
		t.Run(name, func(t *testing.T) {
			s := bed.Server(t)
			rlLoad(t, s)
			l := rlClient(t, s.Addr()).RLock("l", opts...)
			want := maps.Clone(pair)
			if opts != nil {
				want["get"], want["time"], want["set"] = 1, 1, 1
			}
			before := s.CommandStats(t)
			bed.Unlock(t, bed.Lock(t, t.Context(), l))
			calls := s.CommandStats(t).Sub(before).Calls
			maps.DeleteFunc(calls, func(_ string, n int64) bool { return n == 0 })
			if !maps.Equal(calls, want) {
				t.Errorf("%v, not %v", calls, want)
			}
		})
	}
}

// crowdTrouble is what stands between a release and the one who waits.
type crowdTrouble struct {
	name string
	make func(t *testing.T, s *testbed.Server, list string) // while it waits
	soon bool                                               // it is called all the same
}

// listenAs listens to the calls of a client and does nothing: a process that stands still.
func listenAs(t *testing.T, s *testbed.Server, client string) {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	dc, release := c.Dedicate()
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	if err := dc.Do(t.Context(), dc.B().Subscribe().Channel(rlCalls("l")+client).Build()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dc.Close(); release(); c.Close() })
}

var crowdTroubles = []crowdTrouble{
	{"nothing", func(*testing.T, *testbed.Server, string) {}, true},
	{"the first is dead", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		s.Do(t, "ZADD", list, "1", crowdStranger)
	}, true},
	{"40 are dead", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		for i := range 40 {
			s.Do(t, "ZADD", list, strconv.Itoa(i), fmt.Sprintf("00000000-0000-4000-8000-%012d", i))
		}
	}, true},
	{"the first stands still", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		listenAs(t, s, crowdStranger)
		s.Do(t, "ZADD", list, "1", crowdStranger)
	}, false},
	{"one that had lost stands still", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		listenAs(t, s, crowdStranger)
		s.Do(t, "ZADD", list, "-2000000000000000", crowdStranger)
	}, false},
	{"subscriptions end", func(t *testing.T, s *testbed.Server, _ string) {
		t.Helper()
		s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	}, false},
	{"the list is gone", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		s.Do(t, "DEL", list)
	}, false},
	{"the list is something else", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		s.Do(t, "DEL", list)
		s.Do(t, "SET", list, "x")
	}, false},
	{"a million others are on the list", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		for i := range 100 {
			s.Do(t, "EVAL", "for i = 1, 10000 do redis.call('ZADD', KEYS[1], i, ARGV[1] .. i) end", "1", list, strconv.Itoa(i)+":")
		}
	}, false},
	{"a long name and an endless place stand in front", func(t *testing.T, s *testbed.Server, list string) {
		t.Helper()
		s.Do(t, "ZADD", list, "-inf", strings.Repeat("x", 1<<20))
	}, true},
}

// Whatever is wrong with the list or with whom it names, a free lock is not left lying for more than a second while
// somebody waits, and at once it is taken by whoever can be called.
func TestCrowdTrouble(t *testing.T) {
	for _, trouble := range crowdTroubles {
		t.Run(trouble.name, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			list := luascript.WaitKey("l")
			h := bed.Lock(t, t.Context(), rlClient(t, s.Addr()).RLock("l"))
			waiter := bed.Async(t.Context(), rlClient(t, s.Addr()).RLock("l"))
			bed.Eventually(t, "it waits", func() bool { return s.Int(t, "EXISTS", list) == 1 })
			rlSubscribed(t, s, "l", 1)
			trouble.make(t, s, list)
			began := time.Now()
			bed.Unlock(t, h)
			if took := time.Since(began); took > crowdSoon {
				t.Errorf("Unlock took %v", took)
			}
			r := bed.Get(t, waiter)
			if r.Err != nil {
				t.Fatal(r.Err)
			}
			took := r.At.Sub(began)
			if limit := crowdStands; took > limit || trouble.soon && took > crowdSoon {
				t.Errorf("it got the lock after %v", took)
			}
			bed.Unlock(t, r.Hold)
			s.Do(t, "DEL", list) // what does not belong there
		})
	}
}

// The first on the list leaves just when it is called, or is closed: the next one gets the lock.
func TestCrowdTheFirstLeavesWhenItIsCalled(t *testing.T) {
	for name, leave := range map[string]func(cancel func(), c *redlatch.Client){
		"its wait ends": func(cancel func(), _ *redlatch.Client) { cancel() },
		"it is closed":  func(_ func(), c *redlatch.Client) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			list := luascript.WaitKey("l")
			holder, next := rlClient(t, s.Addr()), rlClient(t, s.Addr())
			for i := range 30 {
				h := bed.Lock(t, t.Context(), holder.RLock("l"))
				c := rlClient(t, s.Addr())
				ctx, cancel := context.WithCancel(t.Context())
				first := bed.Async(ctx, c.RLock("l"))
				bed.Eventually(t, "the first waits", func() bool { return s.Int(t, "ZCARD", list) == 1 })
				second := bed.Async(t.Context(), next.RLock("l"))
				bed.Eventually(t, "the second waits", func() bool { return s.Int(t, "ZCARD", list) == 2 })
				var both sync.WaitGroup
				both.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Microsecond)
					leave(cancel, c)
				})
				bed.Unlock(t, h)
				began := time.Now()
				both.Wait()
				if r := bed.Get(t, first); r.Err == nil {
					// What is closed leaves its key to the lease; so it is freed here.
					if err := r.Hold.Unlock(t.Context()); err != nil {
						if _, err := holder.RLock("l").ForceUnlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
				r := bed.Get(t, second)
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if took := r.At.Sub(began); took > crowdSoon {
					t.Errorf("turn %d: the second got the lock after %v", i, took)
				}
				bed.Unlock(t, r.Hold)
				c.Close()
				cancel()
			}
			bed.Eventually(t, "nobody is on the list", func() bool { return s.Int(t, "EXISTS", list) == 0 })
		})
	}
}

// Who has the right to publish can make a client ask, once for each message, and no more.
func TestCrowdAForgedCall(t *testing.T) {
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	h := bed.Lock(t, t.Context(), rlClient(t, s.Addr()).RLock("l"))
	waiter := bed.Async(t.Context(), c.RLock("l"))
	rlSubscribed(t, s, "l", 1)
	rlQuiet(t, s)
	before := s.CommandStats(t)
	const forged = 10
	for _, place := range []string{"0", "1", "x", "-1", "1700000000000000", "99999999999999999999", "", "nan", "1e3", "s"} {
		s.Do(t, "PUBLISH", rlCalls("l")+c.ID(), place)
		time.Sleep(20 * time.Millisecond)
	}
	rlBlocked(t, waiter)
	if n := s.CommandStats(t).Sub(before).Calls["evalsha"]; n > forged+3 {
		t.Errorf("%d commands for %d forged calls", n, forged)
	}
	bed.Unlock(t, h)
	r := bed.Get(t, waiter)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	bed.Unlock(t, r.Hold)
}
