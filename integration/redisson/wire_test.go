//go:build unix

package redisson

import (
	"fmt"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// These tests pin what Redisson itself does, so that the tests of both together
// rest on facts: when a new version of it changes one, the test that turns red here
// says which. docs/REDISSON.md describes them in full.

// An RLock of Redisson's is the hash, the lease and the messages that we take it for.
func TestWireRLock(t *testing.T) {
	plays(t, "rlock", `
		listen redisson_lock__channel:{$n}
		java.a lock
		java.a lock
		redis HGETALL $n -> map[${java.a}:2]
		ttl n 25s..30s
		java.a lock 20s
		ttl n 15s..20s   # a shorter re-entry
		java.a unlock
		java.a unlock
		java.a unlock
		heard 0
		java.a force -> false
		java.a lock
		java.c force -> true
		heard 0`)
}

// A 4.x client removes its unlock latch; 3.x removes a wrong name and leaves it to
// its TTL. Checks that nothing is left behind must know it.
func TestWireUnlockLatch(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := sharedBed(t, v).scene(t, "rlock")
		s.run(`
			java.a lock
			java.a unlock
			[4.7.0] soon redis KEYS redisson_unlock_latch:{$n}:* -> []`)
		if v == V4 {
			return
		}
		// The removal of the wrong name comes after the answer: give it time to come.
		time.Sleep(200 * time.Millisecond)
		left := s.server.List(t, "KEYS", s.expand("redisson_unlock_latch:{$n}:*"))
		if len(left) != 1 {
			t.Fatalf("latches %v, want one", left)
		}
		between(t, "life of the latch", s.pttl(t, left[0]), 10*time.Second, 20*time.Second)
	})
}

// Redisson respects a holder that it does not know, and wakes at its message.
func TestWireForeignHolder(t *testing.T) {
	// Integers that mean nothing are ignored. Text must never be sent: Redisson fails to
	// decode it, and messages that follow it closely are lost with it, of any lock whose
	// channel shares the connection.
	plays(t, "rlock", `
		redis HSET $n 00000000-0000-4000-8000-000000000000:g1 1
		redis PEXPIRE $n 60000
		java.a trylock -> false
		w = java.a lock
		w waits`+"\n"+times(10, "redis PUBLISH redisson_lock__channel:{$n} 7")+`
		w waits
		redis DEL $n
		redis PUBLISH redisson_lock__channel:{$n} 0
		w enters   # its TTL would have woken it after a minute
		java.a unlock`)
}

// A fair lock of Redisson's has the queue, the scores and the messages that we take it for.
func TestWireFair(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := sharedBed(t, v).scene(t, "fair")
		s.run(`
			redis EXISTS ${java.0} ${java.1} ${java.2} -> 0
			java.a lock
			w0 = java.0 lock
			w0 waits
			w1 = java.1 trylock 50s
			w1 waits
			w2 = java.2 lock
			w2 waits
			redis LRANGE redisson_lock_queue:{$n} 0 -1 -> [${java.0} ${java.1} ${java.2}]
			redis PUBSUB NUMSUB redisson_lock__channel:{$n}:${java.1} -> [redisson_lock__channel:{$n}:${java.1} 1]`)
		last := s.score(2)
		// Each score is the predecessor's plus the waiter's own wait; the first one's is now + TTL + wait.
		between(t, "first score", time.Until(s.score(0)), 320*time.Second, 330*time.Second)
		testbed.Equal(t, s.score(1).Sub(s.score(0)), 50*time.Second, "second score after the first")
		testbed.Equal(t, last.Sub(s.score(1)), 300*time.Second, "third score after the second")
		// An acquisition takes its own wait out of every score behind it.
		s.run(`
			java.a unlock
			w0 enters`)
		testbed.Equal(t, s.score(1).Sub(last), -300*time.Second, "moved by the first acquisition")
		s.run(`
			java.0 unlock
			w1 enters`)
		testbed.Equal(t, s.score(0).Sub(last), -350*time.Second, "moved by two acquisitions")
		s.run(`
			java.1 unlock
			w2 enters
			java.2 unlock
			redis EXISTS $n redisson_lock_queue:{$n} redisson_lock_timeout:{$n} -> 0`)
	})
}

// Only the head of the queue may take a free lock; a stale head is dropped by the
// next call, and until then whoever waits behind it asks again and again.
func TestWireFairStaleHead(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		s := sharedBed(t, v).scene(t, "fair")
		stale := time.Now().Add(3 * time.Second).Truncate(time.Millisecond)
		s.run(fmt.Sprintf(`
			redis RPUSH redisson_lock_queue:{$n} dead
			redis ZADD redisson_lock_timeout:{$n} %d dead`, stale.UnixMilli()))
		before := s.server.CommandStats(t)
		s.run(`w = java.a lock`)
		s.since = stale
		s.run(`w enters`)
		calls := s.server.CommandStats(t).Sub(before).Calls["evalsha"]
		testbed.AtLeast(t, calls, 100, "attempts: does it not spin any more? docs/REDISSON.md says it does")
		s.run(`java.a unlock`)
	})
}

// A read-write lock of Redisson's is the hash, the keys and the messages that we take it for.
func TestWireReadWrite(t *testing.T) {
	plays(t, "read", `
		listen redisson_rwlock:{$n}
		java.a lock 20s
		java.a lock 10s
		redis HGETALL $n -> map[${java.a}:2 mode:read]
		redis PTTL {$n}:${java.a}:rwlock_timeout:1 -> 15s..20s
		redis PTTL {$n}:${java.a}:rwlock_timeout:2 -> 5s..10s
		ttl n 15s..20s
		java.a unlock
		redis KEYS *{$n}:${java.a}:rwlock_timeout:* -> [{$n}:${java.a}:rwlock_timeout:1]
		java.a unlock
		heard 0
		java.a lock write 20s
		java.a lock write 20s
		redis HGETALL $n -> map[${java.a}:write:2 mode:write]
		ttl n 35s..40s   # the sum
		java.a unlock write
		java.a lock 20s
		java.a unlock write
		redis HGET $n mode -> read
		heard nothing   # of a downgrade
		java.a unlock
		heard 0
		java.a lock write
		java.a unlock write
		heard 1`)
}

// What the renewal of a read hold does to readers of other clients differs: 4.x
// leaves their keys alone and lowers the TTL of the hash, 3.x sets everybody's key.
func TestWireReadRenewal(t *testing.T) {
	const foreign = "00000000-0000-4000-8000-000000000000:g1"
	eachVersion(t, func(t *testing.T, v Version) {
		s := shortBed(t, v).scene(t, "read")
		s.run(`
			java.a lock
			redis HSET $n ` + foreign + ` 1
			redis SET {$n}:` + foreign + `:rwlock_timeout:1 1 PX 60000
			redis PEXPIRE $n 60000`)
		eventually(t, "a renewal", func() bool { return s.pttl(t, s.name("n")) <= shortLease })
		s.run(`
			[4.7.0] redis PTTL {$n}:` + foreign + `:rwlock_timeout:1 -> 45s..60s
			[3.52.0] redis PTTL {$n}:` + foreign + `:rwlock_timeout:1 -> 0s..3s
			java.a unlock
			redis DEL $n {$n}:` + foreign + `:rwlock_timeout:1`)
	})
}

// Redisson's fencing tokens are a counter that goes on from whatever stands there.
func TestWireFenced(t *testing.T) {
	plays(t, "fenced", `
		java.a token -> 1
		java.a token -> 2   # a re-entry's
		redis PTTL redisson_lock_token:{$n} -> -1
		java.a unlock
		java.a unlock
		redis SET redisson_lock_token:{$n} 1700000000000000
		java.a trytoken 1s 5s -> 1700000000000001
		java.c trytoken -> null
		java.c lasttoken -> 1700000000000001
		java.a unlock`)
}

// Redisson's fenced lock reads a lock key without a TTL as "acquired, token -1".
func TestWireFencedMisreadsLockWithoutTTL(t *testing.T) {
	plays(t, "fenced", `
		redis HSET $n 00000000-0000-4000-8000-000000000000:g1 1
		java.a token -> -1
		redis DEL $n`)
}
