package fair

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// serverEnd is when the lock's lease ends by the server's clock, as an instant
// of ours that is certainly not before it.
func serverEnd(t *testing.T, s *testbed.Server) time.Time {
	t.Helper()
	ttl := s.Int(t, "PTTL", name)
	// It was ttl, rounded to the nearest millisecond, at some moment before now, so
	// the end is not after this. (Counted from before the question it would be too
	// early by as long as the question was under way.)
	return time.Now().Add(time.Duration(ttl)*time.Millisecond + time.Millisecond)
}

// A handed-over hold begins with min(lease, skip time), its local deadline is
// before the end on the server at every moment, and it is confirmed up to its
// full lease without the holder's doing.
func TestAGrantIsConfirmedInTheBackground(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const skip = 5 * time.Second
	for _, tc := range []struct {
		name string
		opts []redlatch.AcquireOption
		full time.Duration
	}{
		{"watchdog", nil, 15 * time.Second},
		{"fixed", []redlatch.AcquireOption{redlatch.WithLease(20 * time.Second)}, 20 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := testbed.Standalone(t)
			c := dial(t, s.Addr(), redlatch.WithLeaseTime(15*time.Second))
			l := c.FairLock(name, fairlock.WithSkipAfter(skip))
			hold := lockIt(t, l)
			got := make(chan result, 1)
			wait(t.Context(), l, 1, got, tc.opts...)
			queued(t, s, 1)
			refreshed(t, s) // the next refresh is a second away
			before := s.CommandStats(t)
			busy, granted := newMeter(t), time.Now()
			bed.Unlock(t, hold)
			h := receive(t, got, time.Second).hold
			if n := s.CommandStats(t).Sub(before).Calls["evalsha"]; n != 1 {
				t.Errorf("%d scripts for the hand-over", n)
			}
			if ttl := s.Int(t, "PTTL", name); ttl > skip.Milliseconds() {
				t.Errorf("the grant lasts for %dms", ttl)
			}
			for time.Since(granted) < skip*6/10 { // it is confirmed at a quarter
				local, server := h.ValidUntil(), serverEnd(t, s)
				if local.After(server) {
					t.Fatalf("the local deadline is %v after the server's", local.Sub(server))
				}
				time.Sleep(time.Millisecond)
			}
			if left := time.Until(h.ValidUntil()); left < tc.full-skip || left > tc.full {
				t.Errorf("%v left %v after a grant of %v", left, skip*6/10, tc.full)
			}
			// A fixed lease counts from the grant, however late it is confirmed.
			if end := h.ValidUntil().Sub(granted); tc.opts != nil && end > tc.full+busy.slack() {
				t.Errorf("a fixed lease of %v ends after %v", tc.full, end)
			}
			if h.Context().Err() != nil {
				t.Error(context.Cause(h.Context()))
			}
			bed.Unlock(t, h)
			nothingLeft(t, s)
		})
	}
}

// Where little is left of what was granted, the hold is confirmed before Lock
// returns: a short lease begins whole, although the waiter's last sign of life
// is older than that.
func TestAGrantOfWhichLittleIsLeftIsConfirmedFirst(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const lease = 2 * time.Second
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(15*time.Second)) // a refresh every three seconds
	hold := lockIt(t, l)
	got := make(chan result, 2)
	wait(t.Context(), l, 1, got, redlatch.WithLease(lease))
	queued(t, s, 1)
	wait(t.Context(), l, 2, got)
	queued(t, s, 2)
	calm(t, s)
	refreshed(t, s)
	time.Sleep(lease + 300*time.Millisecond) // the refresh is older than the lease is long
	bed.Unlock(t, hold)
	r := inTurn(t, got, time.Second, 1)
	if left := r.hold.ValidUntil().Sub(r.at); left < lease*3/4 || left > lease {
		t.Errorf("%v left of a lease of %v", left, lease)
	}
	if local, server := r.hold.ValidUntil(), serverEnd(t, s); local.After(server) {
		t.Errorf("the local deadline is %v after the server's", local.Sub(server))
	}
	bed.Unlock(t, r.hold)
	bed.Unlock(t, receive(t, got, time.Second).hold)
	nothingLeft(t, s)
}

// The holder may not publish, so the grant's message is lost: the waiter finds
// by itself, at its next refresh, that it holds the lock.
func TestALostGrantIsFoundByTheWaiter(t *testing.T) {
	testbed.Needs(t, 6, 2, "users who may not publish on a channel")
	s := testbed.Standalone(t)
	s.SetUser(t, "mute", "on", ">pw", "+@all", "~*")
	mute := dial(t, s.Addr(), redlatch.WithConfig(func(c *redlatch.Config) {
		c.Redis.Username, c.Redis.Password = "mute", "pw"
	}))
	hold := lockIt(t, mute.FairLock(name))
	got := inLine(t, s, 1, dial(t, s.Addr()).FairLock(name))
	calm(t, s)
	busy, start := newMeter(t), time.Now()
	bed.Unlock(t, hold)
	r := receive(t, got, 5*time.Second)
	if took := r.at.Sub(start); r.err != nil || took > time.Second+busy.slack() {
		t.Errorf("after %v, %v", took, r.err)
	}
	if left := time.Until(r.hold.ValidUntil()); left < 20*time.Second {
		t.Errorf("only %v left", left)
	}
	bed.Unlock(t, r.hold)
	nothingLeft(t, s)
}

// The subscription breaks while the lock is handed over: the waiter asks as soon
// as it stands again.
func TestAGrantDuringAReconnectIsFoundAtOnce(t *testing.T) {
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name, fairlock.WithSkipAfter(time.Minute)) // refreshes every 12s
	hold := lockIt(t, l)
	got := inLine(t, s, 1, l)
	calm(t, s)
	// In one go: the lock becomes free, and whoever listens is gone.
	s.Do(t, "MULTI")
	s.Do(t, "DEL", name)
	s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	s.Do(t, "EXEC")
	r := entered(t, got, 2*time.Second)
	_ = hold.Unlock(t.Context())
	bed.Unlock(t, r.hold)
}

// An old grant that arrives late must not be taken for one of the place that the
// waiter has now.
func TestAGrantOfAnEarlierPlaceIsIgnored(t *testing.T) {
	s := testbed.Standalone(t)
	c := dial(t, s.Addr())
	l := c.FairLock(name)
	hold := lockIt(t, l)
	got := inLine(t, s, 1, l)
	calm(t, s)
	field := s.List(t, "LRANGE", queueKey, "0", "0")[0]
	id := field[len(field)-1-indexFromEnd(field):]
	nonce := strings.Fields(s.Text(t, "HGET", wantsKey, field))[5]
	asked := s.CommandStats(t).Calls["evalsha"]
	s.Do(t, "PUBLISH", "redlatch_grant:{"+name+"}:"+c.ID(), id+" 1700000000000000 "+nonce+" 7")
	eventually(t, 5*time.Second, "it has heard the message, and asks", func() bool {
		return s.CommandStats(t).Calls["evalsha"] > asked
	})
	calm(t, s)
	select {
	case r := <-got:
		t.Fatalf("%v, %v", r.hold, r.err)
	default:
	}
	bed.Unlock(t, hold)
	bed.Unlock(t, receive(t, got, 5*time.Second).hold)
	nothingLeft(t, s)
}

// indexFromEnd is how many bytes stand behind the last '-' of a field, less one.
func indexFromEnd(field string) int {
	n := 0
	for field[len(field)-1-n] != '-' {
		n++
	}
	return n - 1
}

// An acquisition that was given up while its command was under way: the command
// arrives late and neither acquires nor queues up.
func TestALateAcquireMakesNoPlace(t *testing.T) {
	s := testbed.Standalone(t)
	proxy := testbed.NewProxy(t, s.Addr())
	l := dial(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	c := dial(t, proxy.Addr())
	trap := proxy.DropRequest(testbed.Contains("EVALSHA", queueKey))
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan result, 1)
	wait(ctx, c.FairLock(name), 1, got)
	trap.Wait(t)
	queued(t, s, 1) // its retry
	cancel()
	if r := receive(t, got, time.Second); !errors.Is(r.err, context.Canceled) {
		t.Fatal(r.err)
	}
	queued(t, s, 0)
	if reply := trap.Deliver(t); reply != "*1\r\n:-1\r\n" {
		t.Errorf("the late command was answered with %q", reply)
	}
	bed.Unlock(t, hold)
	if n := s.Int(t, "EXISTS", name, queueKey, scoresKey, wantsKey); n != 0 {
		t.Errorf("%d keys are left", n)
	}
}

// The server is out of memory: an unlock still hands over, a newcomer is refused
// and leaves nothing behind.
func TestOutOfMemory(t *testing.T) {
	s := testbed.Standalone(t)
	l := dial(t, s.Addr()).FairLock(name)
	hold := lockIt(t, l)
	got := inLine(t, s, 1, l)
	calm(t, s)
	s.Do(t, "CONFIG", "SET", "maxmemory", "1")
	if _, err := l.Lock(t.Context()); err == nil {
		t.Error("a newcomer queued up in a full server")
	}
	if n := s.Int(t, "LLEN", queueKey); n != 1 {
		t.Errorf("queue of %d", n)
	}
	bed.Unlock(t, hold)
	r := entered(t, got, time.Second)
	if ttl := s.Int(t, "PTTL", name); ttl <= 0 {
		t.Errorf("PTTL %d: a lock without a lease", ttl)
	}
	bed.Unlock(t, r.hold)
	nothingLeft(t, s)
}

// The next waiter's fencing token is refused: that is no failure of the unlock, which has freed the lock. The waiter is
// told what the server says.
func TestUnlockThoughTheNextOnesTokenIsRefused(t *testing.T) {
	s := testbed.Standalone(t)
	hold := lockIt(t, dial(t, s.Addr()).FairLock(name))
	got := inLine(t, s, 1, dial(t, s.Addr()).FairLock(name, redlatch.Fenced()))
	s.Do(t, "SET", "redisson_lock_token:{"+name+"}", "no number")
	bed.Unlock(t, hold)
	if n := s.Int(t, "EXISTS", name); n != 0 {
		t.Error("the lock is held")
	}
	var refused *redlatch.ServerError
	if r := receive(t, got, 10*time.Second); !errors.As(r.err, &refused) {
		t.Errorf("the waiter: %v", r.err)
	}
	s.Do(t, "DEL", "redisson_lock_token:{"+name+"}")
	nothingLeft(t, s)
}

// With ReplicaAcks a grant counts only once the replicas have it: it is confirmed
// before Lock returns, and passed on when too few answer.
func TestReplicaAcksOfAGrant(t *testing.T) {
	set := testbed.Replicas(t, 1)
	set.AwaitSync(t)
	s := set.Master()
	// A replica that has just come does not acknowledge anything for a while.
	eventually(t, 10*time.Second, "an acknowledgement", func() bool {
		s.Do(t, "SET", "warm", "1", "PX", "1")
		return s.Int(t, "WAIT", "1", "100") == 1
	})
	acked := dial(t, s.Addr(), redlatch.WithReplicaAcks(1, 2*time.Second)).FairLock(name)
	plain := dial(t, s.Addr()).FairLock(name)
	hold := lockIt(t, plain)
	got := make(chan result, 2)
	wait(t.Context(), acked, 1, got)
	queued(t, s, 1)
	bed.Unlock(t, hold)
	r := entered(t, got, 20*time.Second)
	if left := time.Until(r.hold.ValidUntil()); left < 20*time.Second {
		t.Errorf("not confirmed: %v left", left)
	}
	wait(t.Context(), acked, 2, got)
	queued(t, s, 1)
	wait(t.Context(), plain, 3, got)
	queued(t, s, 2)
	set.Replicas()[0].Freeze(t)
	bed.Unlock(t, r.hold)
	var acks *redlatch.ReplicaAcksError
	a := receive(t, got, 20*time.Second)
	b := receive(t, got, 20*time.Second)
	if a.id == 3 {
		a, b = b, a
	}
	if a.id != 2 || !errors.As(a.err, &acks) {
		t.Errorf("waiter %d: %v", a.id, a.err)
	}
	if b.id != 3 || b.err != nil {
		t.Fatalf("waiter %d: %v", b.id, b.err)
	}
	set.Replicas()[0].Thaw(t)
	bed.Unlock(t, b.hold)
}

// The server comes back with an older life of the place: it ends sooner than the waiter's last refresh says, of which
// that server knows nothing. Until a refresh has been answered since the connection broke, the message of a grant is a
// call to ask, and the hold never outlives the lease on the server.
func TestAGrantOfAnOlderLifeOfThePlaceIsConfirmed(t *testing.T) {
	const skip = 6 * time.Second
	s := testbed.Standalone(t)
	proxy := testbed.NewProxy(t, s.Addr())
	hold := lockIt(t, dial(t, s.Addr()).FairLock(name))
	got := inLine(t, s, 1, dial(t, proxy.Addr()).FairLock(name, fairlock.WithSkipAfter(skip)))
	refreshed(t, s)
	trap := proxy.StallRequest(testbed.Contains("EVALSHA", luascript.FairRefresh.SHA))
	proxy.Cut()
	trap.Wait(t) // the first refresh since, as soon as the waiter hears messages again
	s.Do(t, "EVAL", `
local clock, field = redis.call('TIME'), redis.call('LINDEX', KEYS[1], 0)
local alive = string.format('%.0f', clock[1] * 1000 + math.floor(clock[2] / 1000) + ARGV[1])
redis.call('HSET', KEYS[2], field, alive .. string.sub(redis.call('HGET', KEYS[2], field), 14))`,
		"2", queueKey, wantsKey, strconv.FormatInt(skip.Milliseconds()/3, 10))
	bed.Unlock(t, hold)
	if n := s.Int(t, "EXISTS", name); n != 1 {
		t.Fatal("the lock was not handed over")
	}
	select {
	case r := <-got:
		if local, server := r.hold.ValidUntil(), serverEnd(t, s); local.After(server) {
			t.Errorf("the local deadline is %v after the server's", local.Sub(server))
		}
		trap.Release()
		bed.Unlock(t, r.hold)
	case <-time.After(500 * time.Millisecond): // a lower bound: longer can't fail it
		trap.Release()
		r := entered(t, got, 10*time.Second)
		if local, server := r.hold.ValidUntil(), serverEnd(t, s); local.After(server) {
			t.Errorf("confirmed, the local deadline is %v after the server's", local.Sub(server))
		}
		bed.Unlock(t, r.hold)
	}
	nothingLeft(t, s)
}
