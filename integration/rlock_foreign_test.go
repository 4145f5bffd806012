package integration

import (
	"context"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A client of another library, as far as the server sees it: the hash, the channel and the
// message of PROTOCOL.md, written down once more.
const (
	rlForeignLock = `
if redis.call('EXISTS', KEYS[1]) == 0 or redis.call('HEXISTS', KEYS[1], ARGV[2]) == 1 then
  redis.call('HINCRBY', KEYS[1], ARGV[2], 1)
  redis.call('PEXPIRE', KEYS[1], ARGV[1])
  return -1
end
return redis.call('PTTL', KEYS[1])`

	rlForeignUnlock = `
if redis.call('HEXISTS', KEYS[1], ARGV[1]) == 0 then return -1 end
local left = redis.call('HINCRBY', KEYS[1], ARGV[1], -1)
if left > 0 then return left end
redis.call('DEL', KEYS[1])
redis.call('PUBLISH', KEYS[2], '0')
return 0`
)

// rlForeign takes and frees one lock as the threads of another library do: a number as owner,
// re-entry by count, and no look at the lock but at the beginning and after a message.
type rlForeign struct {
	c        rueidis.Client
	name     string
	messages chan struct{}
}

func rlNewForeign(t *testing.T, s *testbed.Server, name string) *rlForeign {
	t.Helper()
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	f := &rlForeign{c, name, make(chan struct{}, 1)}
	before := rlSubscriptions(t, s, name)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan struct{})
	go func() { // ends with the test
		defer close(ended)
		_ = c.Receive(ctx, c.B().Subscribe().Channel(rlChannel(name)).Build(), func(rueidis.PubSubMessage) {
			select {
			case f.messages <- struct{}{}:
			default:
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		<-ended
		c.Close()
	})
	bed.Eventually(t, "the foreign subscription", func() bool { return rlSubscriptions(t, s, name) > before })
	return f
}

func (f *rlForeign) run(ctx context.Context, script string, keys []string, args ...string) (int64, error) {
	return f.c.Do(ctx, f.c.B().Eval().Script(script).Numkeys(int64(len(keys))).Key(keys...).Arg(args...).Build()).AsInt64()
}

func (f *rlForeign) lock(ctx context.Context, owner string) error {
	for {
		left, err := f.run(ctx, rlForeignLock, []string{f.name}, strconv.Itoa(3600_000), owner)
		if err != nil || left < 0 {
			return err
		}
		select {
		case <-f.messages:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (f *rlForeign) unlock(ctx context.Context, owner string) (int64, error) {
	return f.run(ctx, rlForeignUnlock, []string{f.name, rlChannel(f.name)}, owner)
}

// A client that knows the wire format and nothing of redlatch shares a lock with it: one of
// both sides is inside, counts of re-entries are kept apart, and each unlock wakes the other
// side. All leases last an hour, so that nothing but a message wakes anybody.
func TestRLockIsSharedWithAForeignClient(t *testing.T) {
	s := bed.Server(t)
	const name, turns = "shared", 60
	ctx, cancel := context.WithTimeout(t.Context(), 2*bed.Patience)
	defer cancel()
	var inside atomic.Int32
	total := 0 // guarded by the lock alone
	section := func(who string) {
		if inside.Add(1) != 1 {
			t.Errorf("%s is not alone", who)
		}
		total++
		time.Sleep(200 * time.Microsecond)
		inside.Add(-1)
	}
	// Before others subscribe: who began without its own subscription could miss the last message.
	foreign := []*rlForeign{rlNewForeign(t, s, name), rlNewForeign(t, s, name)}
	var all sync.WaitGroup
	lease := func(c *redlatch.Config) { c.LeaseTime = time.Hour }
	for _, c := range []*redlatch.Client{rlClient(t, s.Addr(), lease), rlClient(t, s.Addr(), lease)} {
		for range 2 {
			all.Go(func() {
				for range turns {
					err := c.RLock(name).Do(ctx, func(ctx context.Context) error {
						return c.RLock(name).Do(ctx, func(context.Context) error {
							section("redlatch")
							return nil
						})
					})
					if err != nil {
						t.Errorf("redlatch: %v", err)
						return
					}
				}
			})
		}
	}
	for i, f := range foreign {
		owner := "8743c9c0-0795-4907-87fd-6c719a6b458" + strconv.Itoa(i) + ":42"
		all.Go(func() {
			for range turns {
				for range 2 { // and once more, by count
					if err := f.lock(ctx, owner); err != nil {
						t.Errorf("foreign: %v", err)
						return
					}
				}
				section("the foreign client")
				for want := int64(1); want >= 0; want-- {
					if left, err := f.unlock(ctx, owner); left != want || err != nil {
						t.Errorf("foreign unlock: %d holds left, %v, want %d", left, err, want)
						return
					}
				}
			}
		})
	}
	all.Wait()
	if want := 6 * turns; total != want {
		t.Errorf("%d sections, want %d", total, want)
	}
}
