package fair

import (
	"context"
	"strconv"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// believed fails if the hold counts for longer than the lock has a lease on the server.
func believed(t *testing.T, s *testbed.Server, h redlatch.Hold) {
	t.Helper()
	local, ttl := h.ValidUntil(), s.Int(t, "PTTL", name)
	// It was ttl, rounded to the nearest millisecond, at some moment before now, so
	// the end is not after this. (Counted from before the question it would be too
	// early by as long as the question was under way.)
	if over := local.Sub(time.Now().Add(time.Duration(ttl+1) * time.Millisecond)); over > 0 {
		t.Fatalf("the local deadline is %v after the server's", over)
	}
}

// handed takes a fair lock by being handed it; by then the one before it has unlocked.
func handed(t *testing.T, s *testbed.Server, l redlatch.Locker, opts ...redlatch.AcquireOption) (h redlatch.Hold, by time.Time) {
	t.Helper()
	first := lockIt(t, patient(t, s.Addr()))
	got := inLine(t, s, 1, l, opts...)
	s.AwaitQuiet(t)
	bed.Unlock(t, first)
	by = time.Now()
	return inTurn(t, got, 0), by
}

// A handed-over hold begins with min(lease, skip time), its local deadline is
// before the end on the server at every moment, and it is confirmed up to its
// full lease without the holder's doing.
func TestAGrantIsConfirmedInTheBackground(t *testing.T) {
	const lease = 20 * time.Second
	for what, opts := range map[string][]redlatch.AcquireOption{"watchdog": nil, "fixed": {redlatch.WithLease(lease)}} {
		t.Run(what, func(t *testing.T) {
			t.Parallel() // it waits, for the most part
			s := bed.Server(t)
			h, by := handed(t, s, bed.Client(t, s.Addr(), redlatch.WithLeaseTime(lease)).FairLock(name), opts...)
			testbed.AtMost(t, s.Int(t, "PTTL", name), skip.Milliseconds(), "the milliseconds that the grant lasts for")
			for time.Since(by) < skip*6/10 { // it is confirmed at a quarter
				believed(t, s, h)
				time.Sleep(time.Millisecond)
			}
			testbed.Between(t, time.Until(h.ValidUntil()), lease-skip, lease, "left of it, some time after the grant")
			// A fixed lease counts from the grant, however late it is confirmed.
			if over := h.ValidUntil().Sub(by.Add(lease)); opts != nil && over > 0 {
				t.Errorf("a fixed lease of %v ends %v too late", lease, over)
			}
			bed.Unlock(t, h)
		})
	}
}

// A grant that is confirmed up to its lease does not lengthen a shorter fixed lease that re-entered it.
func TestConfirmationLeavesReentriesAlone(t *testing.T) {
	t.Parallel() // it waits, for the most part
	s := bed.Server(t)
	l := bed.Client(t, s.Addr()).FairLock(name)
	outer, _ := handed(t, s, l)
	inner := bed.Lock(t, outer.Context(), l, redlatch.WithLease(3*time.Second))
	ends := inner.ValidUntil()
	bed.Eventually(t, "the confirmation", func() bool { return time.Until(outer.ValidUntil()) > 10*time.Second })
	testbed.AtMost(t, inner.ValidUntil().Sub(ends), 0, "the inner hold's lease became longer by")
	_ = inner.Unlock(context.Background())
	bed.Unlock(t, outer)
}

// A hold that was handed over, which only the watchdog confirms, lasts for as long as it was asked for while its owner
// re-enters without a pause.
func TestReenteringInALoopKeepsAGrant(t *testing.T) {
	for what, opts := range map[string][]redlatch.AcquireOption{"fixed": {redlatch.WithLease(time.Minute)}, "renewed": nil} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t)
			l := bed.Client(t, s.Addr()).FairLock(name)
			h, by := handed(t, s, l, opts...)
			for end := by.Add(skip + skip/2); time.Now().Before(end); {
				again := bed.Lock(t, h.Context(), l, redlatch.WithLease(100*time.Millisecond))
				_ = again.Unlock(context.Background()) // on a busy machine its own short lease may be over
			}
			bed.Alive(t, h)
			bed.Unlock(t, h)
		})
	}
}

// mute is a client that may not publish.
func mute(t *testing.T, s *testbed.Server) *redlatch.Client {
	t.Helper()
	testbed.Needs(t, 6, 2, "users who may not publish on a channel")
	s.SetUser(t, "mute", "on", ">pw", "+@all", "~*")
	return bed.Client(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password = "mute", "pw" })
}

// Where little is left of what was granted, the hold is confirmed before Lock
// returns: a short lease begins whole, although the waiter's last sign of life
// is older than that.
func TestAGrantOfWhichLittleIsLeftIsConfirmedFirst(t *testing.T) {
	t.Parallel() // it waits, for the most part
	const lease = 2 * time.Second
	s := bed.Server(t)
	l := patient(t, s.Addr())
	hold := lockIt(t, l)
	got := inLine(t, s, 1, l, redlatch.WithLease(lease))
	s.AwaitQuiet(t)
	time.Sleep(lease) // its last sign of life is older than the lease is long
	bed.Unlock(t, hold)
	r := entered(t, got, bed.Patience)
	testbed.Between(t, r.hold.ValidUntil().Sub(r.at), lease*3/4, lease, "left of a lease of", lease)
	believed(t, s, r.hold)
	bed.Unlock(t, r.hold)
}

// A waiter that does not hear of its grant finds it by itself: at its next refresh if its holder may not publish, as soon
// as its subscription stands again if that broke.
func TestALostGrantIsFoundByTheWaiter(t *testing.T) {
	t.Run("the holder may not publish", func(t *testing.T) {
		s := bed.Server(t)
		hold := lockIt(t, mute(t, s).FairLock(name))
		got := inLine(t, s, 1, bed.Client(t, s.Addr()).FairLock(name))
		s.AwaitQuiet(t)
		bed.Unlock(t, hold)
		h := entered(t, got, skip/5+slack).hold
		testbed.AtLeast(t, time.Until(h.ValidUntil()), 20*time.Second, "left of it")
		bed.Unlock(t, h)
	})
	t.Run("its subscription breaks", func(t *testing.T) {
		s := bed.Server(t)
		l := patient(t, s.Addr())
		hold := lockIt(t, l)
		got := inLine(t, s, 1, l)
		s.AwaitQuiet(t)
		// In one go: the lock becomes free, and whoever listens is gone.
		s.Do(t, "MULTI")
		s.Do(t, "DEL", name)
		s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
		s.Do(t, "EXEC")
		h := inTurn(t, got, 0)
		_ = hold.Unlock(t.Context())
		bed.Unlock(t, h)
	})
}

// While the server has no memory, a newcomer is refused and leaves nothing behind, and whoever waits already is handed the
// lock, when it is unlocked or its lease ends: that takes no more memory than the place did, and the hold is one like any
// other.
func TestOutOfMemory(t *testing.T) {
	for _, unlocked := range []bool{true, false} {
		t.Run(map[bool]string{true: "it is unlocked", false: "its lease ends"}[unlocked], func(t *testing.T) {
			t.Parallel() // it waits, for the most part
			s := bed.Server(t)
			l := bed.Client(t, s.Addr(), redlatch.WithLeaseTime(3*time.Second)).FairLock(name)
			hold := lockIt(t, bed.Client(t, s.Addr()).FairLock(name), redlatch.WithLease(5*time.Second))
			got := inLine(t, s, 1, l)
			s.AwaitQuiet(t)
			s.Do(t, "CONFIG", "SET", "maxmemory", "1")
			defer s.Do(t, "CONFIG", "SET", "maxmemory", "0")
			if _, err := l.Lock(t.Context()); err == nil {
				t.Error("a newcomer queued up in a full server")
			}
			testbed.Equal(t, s.Int(t, "LLEN", queueKey), 1, "the queue")
			if unlocked {
				bed.Unlock(t, hold)
			}
			h := inTurn(t, got, 0)
			until := h.ValidUntil()
			bed.Eventually(t, "a renewal", func() bool { return h.ValidUntil().After(until) || h.Context().Err() != nil })
			believed(t, s, h)
			bed.Unlock(t, bed.Lock(t, h.Context(), l))
			bed.Unlock(t, h)
		})
	}
}

// The next waiter's fencing token is refused: that is no failure of the unlock, which has freed the lock. The waiter is
// told what the server says.
func TestUnlockThoughTheNextOnesTokenIsRefused(t *testing.T) {
	s := bed.Server(t)
	hold := lockIt(t, patient(t, s.Addr()))
	got := inLine(t, s, 1, patient(t, s.Addr(), redlatch.Fenced()))
	s.Do(t, "SET", luascript.TokenKey(name), "no number")
	bed.Unlock(t, hold)
	testbed.Equal(t, s.Int(t, "EXISTS", name), 0, "whether the lock is held")
	_ = bed.As[*redlatch.ServerError](t, bed.Receive(t, bed.Patience, got).err)
}

// With ReplicaAcks a grant counts only once the replicas have it: it is confirmed
// before Lock returns, and passed on when too few answer.
func TestReplicaAcksOfAGrant(t *testing.T) {
	set := testbed.Replicas(t, 1)
	set.AwaitSync(t)
	s, replica := set.Master(), set.Replicas()[0]
	// A replica that has just come does not acknowledge anything for a while.
	bed.Eventually(t, "an acknowledgement", func() bool {
		s.Do(t, "SET", "warm", "1", "PX", "1")
		return s.Int(t, "WAIT", "1", "100") == 1
	})
	acked := bed.Client(t, s.Addr(), redlatch.WithReplicaAcks(1, 2*time.Second)).FairLock(name)
	plain := bed.Client(t, s.Addr()).FairLock(name)
	hold := lockIt(t, plain)
	got := inLine(t, s, 1, acked)
	bed.Unlock(t, hold)
	hold = inTurn(t, got, 0)
	testbed.AtLeast(t, time.Until(hold.ValidUntil()), 20*time.Second, "it is not confirmed: left of it")
	refused, next := inLine(t, s, 1, acked), make(chan result, 1)
	wait(t.Context(), plain, 0, next)
	queued(t, s, 2)
	replica.Freeze(t)
	bed.Unlock(t, hold)
	bed.Want(t, bed.Receive(t, bed.Patience, refused).err, redlatch.ErrReplicaAcks)
	h := inTurn(t, next, 0)
	replica.Thaw(t)
	bed.Unlock(t, h)
}

// The server comes back with an older life of the place: it ends sooner than the waiter's last refresh says, of which
// that server knows nothing. Until a refresh has been answered since the connection broke, the message of a grant is a
// call to ask, and the hold never outlives the lease on the server.
func TestAGrantOfAnOlderLifeOfThePlaceIsConfirmed(t *testing.T) {
	s := bed.Server(t)
	proxy := testbed.NewProxy(t, s.Addr())
	hold := lockIt(t, bed.Client(t, s.Addr()).FairLock(name))
	got := inLine(t, s, 1, bed.Client(t, proxy.Addr()).FairLock(name))
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
	testbed.Equal(t, s.Int(t, "EXISTS", name), 1, "whether the lock was handed over")
	for end := time.Now().Add(500 * time.Millisecond); len(got) == 0 && time.Now().Before(end); { // longer can't fail it
		time.Sleep(5 * time.Millisecond)
	}
	if len(got) == 0 {
		trap.Release()
	}
	h := inTurn(t, got, 0)
	believed(t, s, h)
	trap.Release()
	bed.Unlock(t, h)
}
