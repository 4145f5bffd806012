//go:build unix

package redisson

import (
	"fmt"
	"strconv"
	"testing"
	"time"
)

// These tests pin what Redisson itself does, so that the tests of both together
// rest on facts: when a new version of it changes one, the test that turns red here
// says which. docs/REDISSON.md describes them in full.

func goField(owner string) string { return "00000000-0000-4000-8000-000000000000:g" + owner }

// A plain lock of Redisson's is the hash, the lease and the messages that we take it for.
func TestWireRLock(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		channel := "redisson_lock__channel:{" + n + "}"
		messages := b.messages(t, channel)
		a := b.java.Owner("a")
		l := a.RLock(n)
		l.Lock(t, 0)
		l.Lock(t, 0)
		if h := b.server.Hash(t, "HGETALL", n); len(h) != 1 || h[a.Field(t)] != "2" {
			t.Fatalf("hash %v", h)
		}
		between(t, "watchdog lease", b.pttl(t, n), 25*time.Second, 30*time.Second)
		l.Lock(t, 20*time.Second)
		between(t, "lease after a shorter re-entry", b.pttl(t, n), 15*time.Second, 20*time.Second)
		for range 3 {
			l.Unlock(t)
		}
		if m := next(messages); m != "0" {
			t.Fatalf("message %q after the last unlock, want 0", m)
		}
		if l.ForceUnlock(t) {
			t.Fatal("forced an unlock of nothing")
		}
		l.Lock(t, 0)
		if !b.java.Owner("c").RLock(n).ForceUnlock(t) {
			t.Fatal("forced unlock failed")
		}
		if m := next(messages); m != "0" {
			t.Fatalf("message %q after a forced unlock, want 0", m)
		}
	})
}

// A 4.x client removes its unlock latch; 3.x removes a wrong name and leaves it to
// its TTL. Checks that nothing is left behind must know it.
func TestWireUnlockLatch(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		l := b.java.Owner("a").RLock(n)
		l.Lock(t, 0)
		l.Unlock(t)
		latches := func() []string { return b.server.List(t, "KEYS", "redisson_unlock_latch:{"+n+"}:*") }
		if b.version == V4 {
			eventually(t, "the latch goes", func() bool { return len(latches()) == 0 })
			return
		}
		// The removal of the wrong name comes after the answer: give it time to come.
		time.Sleep(200 * time.Millisecond)
		left := latches()
		if len(left) != 1 {
			t.Fatalf("latches %v, want one", left)
		}
		between(t, "life of the latch", b.pttl(t, left[0]), 10*time.Second, 20*time.Second)
	})
}

// Redisson respects a holder that it does not know, and wakes at its message.
func TestWireForeignHolder(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		channel := "redisson_lock__channel:{" + n + "}"
		b.server.Do(t, "HSET", n, goField("1"), "1")
		b.server.Do(t, "PEXPIRE", n, "60000")
		l := b.java.Owner("a").RLock(n)
		if l.TryLock(t, -1, 0) {
			t.Fatal("took a held lock")
		}
		waits := l.GoLock(0)
		b.waitingOn(t, channel)
		// Integers that mean nothing are ignored. Text must never be sent: Redisson fails to
		// decode it, and messages that follow it closely are lost with it, of any lock whose
		// channel shares the connection.
		for range 10 {
			b.server.Do(t, "PUBLISH", channel, "7")
		}
		b.server.Do(t, "DEL", n)
		before := time.Now()
		b.server.Do(t, "PUBLISH", channel, "0")
		// Its TTL would have woken it after a minute.
		between(t, "wake-up", waits.Wait(t).At.Sub(before), 0, soon)
		l.Unlock(t)
	})
}

// A fair lock of Redisson's has the queue, the scores and the messages that we take it for.
func TestWireFair(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		queue, timeout := "redisson_lock_queue:{"+n+"}", "redisson_lock_timeout:{"+n+"}"
		score := func(field string) time.Time {
			ms, err := strconv.ParseFloat(b.server.Text(t, "ZSCORE", timeout, field), 64)
			if err != nil {
				t.Fatalf("score of %s: %v", field, err)
			}
			return time.UnixMilli(int64(ms))
		}
		a := b.java.Owner("a").Fair(n)
		a.Lock(t, 0)
		var waits [3]*Call
		var fields [3]string
		for i, wait := range []time.Duration{300 * time.Second, 50 * time.Second, 300 * time.Second} {
			o := b.java.Owner("fair" + strconv.Itoa(i))
			fields[i] = o.Field(t)
			messages := "redisson_lock__channel:{" + n + "}:" + fields[i]
			if i == 1 {
				waits[i] = o.Fair(n).GoTryLock(wait, 0)
			} else {
				waits[i] = o.Fair(n).GoLock(0)
			}
			b.waitingOn(t, messages)
		}
		if q := b.server.List(t, "LRANGE", queue, "0", "-1"); fmt.Sprint(q) != fmt.Sprint(fields) {
			t.Fatalf("queue %v, want %v", q, fields)
		}
		// Each score is the predecessor's plus the waiter's own wait; the first one's is now + TTL + wait.
		between(t, "first score", time.Until(score(fields[0])), 320*time.Second, 330*time.Second)
		if d := score(fields[1]).Sub(score(fields[0])); d != 50*time.Second {
			t.Fatalf("second score is %v after the first", d)
		}
		if d := score(fields[2]).Sub(score(fields[1])); d != 300*time.Second {
			t.Fatalf("third score is %v after the second", d)
		}
		// An acquisition takes its own wait out of every score behind it.
		before := score(fields[2])
		a.Unlock(t)
		waits[0].Wait(t)
		if d := score(fields[2]).Sub(before); d != -300*time.Second {
			t.Fatalf("the first acquisition moved the last score by %v", d)
		}
		b.java.Owner("fair0").Fair(n).Unlock(t)
		waits[1].Wait(t)
		if d := score(fields[2]).Sub(before); d != -350*time.Second {
			t.Fatalf("two acquisitions moved the last score by %v", d)
		}
		b.java.Owner("fair1").Fair(n).Unlock(t)
		waits[2].Wait(t)
		b.java.Owner("fair2").Fair(n).Unlock(t)
		if left := b.server.Int(t, "EXISTS", n, queue, timeout); left != 0 {
			t.Fatalf("%d keys left", left)
		}
	})
}

// Only the head of the queue may take a free lock; a stale head is dropped by the
// next call, and until then whoever waits behind it asks again and again.
func TestWireFairStaleHead(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		dead := goField("dead")
		stale := time.Now().Add(3 * time.Second)
		b.server.Do(t, "RPUSH", "redisson_lock_queue:{"+n+"}", dead)
		b.server.Do(t, "ZADD", "redisson_lock_timeout:{"+n+"}", strconv.FormatInt(stale.UnixMilli(), 10), dead)
		before := b.server.CommandStats(t)
		l := b.java.Owner("a").Fair(n)
		at := l.Lock(t, 0).At
		between(t, "entered after the head went stale by", at.Sub(stale), -time.Millisecond, soon)
		if calls := b.server.CommandStats(t).Sub(before).Calls["evalsha"]; calls < 100 {
			t.Errorf("%d attempts: it does not spin any more, docs/REDISSON.md says it does", calls)
		}
		l.Unlock(t)
	})
}

// A read-write lock of Redisson's is the hash, the keys and the messages that we take it for.
func TestWireReadWrite(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		channel := "redisson_rwlock:{" + n + "}"
		messages := b.messages(t, channel)
		a := b.java.Owner("a")
		f := a.Field(t)
		timeoutKey := func(i int) string { return fmt.Sprintf("{%s}:%s:rwlock_timeout:%d", n, f, i) }

		a.Read(n).Lock(t, 20*time.Second)
		a.Read(n).Lock(t, 10*time.Second)
		if h := b.server.Hash(t, "HGETALL", n); len(h) != 2 || h["mode"] != "read" || h[f] != "2" {
			t.Fatalf("hash %v", h)
		}
		between(t, "lease of the first read", b.pttl(t, timeoutKey(1)), 15*time.Second, 20*time.Second)
		between(t, "lease of the second read", b.pttl(t, timeoutKey(2)), 5*time.Second, 10*time.Second)
		between(t, "lease of the lock", b.pttl(t, n), 15*time.Second, 20*time.Second)
		a.Read(n).Unlock(t)
		if b.server.Int(t, "EXISTS", timeoutKey(2)) != 0 || b.server.Int(t, "EXISTS", timeoutKey(1)) != 1 {
			t.Fatal("an unlock removes the highest read hold")
		}
		a.Read(n).Unlock(t)
		if m := next(messages); m != "0" {
			t.Fatalf("message %q after the last read unlock, want 0", m)
		}

		a.Write(n).Lock(t, 20*time.Second)
		a.Write(n).Lock(t, 20*time.Second)
		if h := b.server.Hash(t, "HGETALL", n); len(h) != 2 || h["mode"] != "write" || h[f+":write"] != "2" {
			t.Fatalf("hash %v", h)
		}
		between(t, "lease after a write re-entry: the sum", b.pttl(t, n), 35*time.Second, 40*time.Second)
		a.Write(n).Unlock(t)
		a.Read(n).Lock(t, 20*time.Second)
		a.Write(n).Unlock(t)
		if h := b.server.Hash(t, "HGETALL", n); h["mode"] != "read" {
			t.Fatalf("hash after the downgrade %v", h)
		}
		if m := within(messages, time.Second); m != "" {
			t.Fatalf("message %q after a downgrade; Redisson used to send none", m)
		}
		a.Read(n).Unlock(t)
		if m := next(messages); m != "0" {
			t.Fatalf("message %q after the last read unlock, want 0", m)
		}
		a.Write(n).Lock(t, 0)
		a.Write(n).Unlock(t)
		if m := next(messages); m != "1" {
			t.Fatalf("message %q after a write unlock, want 1", m)
		}
	})
}

// What the renewal of a read hold does to readers of other clients differs: 4.x
// leaves their keys alone and lowers the TTL of the hash, 3.x sets everybody's key.
func TestWireReadRenewal(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := ownBed(t, v, Options{Watchdog: shortLease})
		n := name(t)
		foreign := goField("reader")
		key := "{" + n + "}:" + foreign + ":rwlock_timeout:1"
		b.java.Owner("a").Read(n).Lock(t, 0)
		b.server.Do(t, "HSET", n, foreign, "1")
		b.server.Do(t, "SET", key, "1", "PX", "60000")
		b.server.Do(t, "PEXPIRE", n, "60000")
		eventually(t, "a renewal", func() bool { return b.pttl(t, n) <= shortLease })
		if v == V4 {
			between(t, "the foreign reader's lease", b.pttl(t, key), 45*time.Second, 60*time.Second)
		} else {
			between(t, "the foreign reader's lease", b.pttl(t, key), 0, shortLease)
		}
		b.java.Owner("a").Read(n).Unlock(t)
	})
}

// Redisson's fencing tokens are a counter that goes on from whatever stands there.
func TestWireFenced(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		counter := "redisson_lock_token:{" + n + "}"
		l := b.java.Owner("a").Fenced(n)
		if tok := l.Token(t); tok != 1 {
			t.Fatalf("first token %d", tok)
		}
		if tok := l.Token(t); tok != 2 {
			t.Fatalf("token of the re-entry %d", tok)
		}
		if ttl := b.server.Int(t, "PTTL", counter); ttl != -1 {
			t.Fatalf("TTL of the counter %d", ttl)
		}
		l.Unlock(t)
		l.Unlock(t)
		b.server.Do(t, "SET", counter, "1700000000000000")
		if tok := l.TryToken(t, time.Second, 5*time.Second); tok != 1700000000000001 {
			t.Fatalf("token %d after a counter in microseconds", tok)
		}
		if tok := b.java.Owner("c").Fenced(n).TryToken(t, 0, 0); tok != 0 {
			t.Fatalf("token %d of a busy lock", tok)
		}
		if tok := b.java.Owner("c").Fenced(n).LastToken(t); tok != 1700000000000001 {
			t.Fatalf("current token %d", tok)
		}
		l.Unlock(t)
	})
}

// Redisson's fenced lock reads a lock key without a TTL as "acquired, token -1".
func TestWireFencedMisreadsLockWithoutTTL(t *testing.T) {
	eachVersion(t, func(t *testing.T, v Version) {
		b := sharedBed(t, v)
		n := name(t)
		b.server.Do(t, "HSET", n, goField("1"), "1")
		if v := b.java.Owner("a").Fenced(n).GoToken().Wait(t).Value; v != "-1" {
			t.Fatalf("token %s, Redisson used to answer -1", v)
		}
		b.server.Do(t, "DEL", n)
	})
}
