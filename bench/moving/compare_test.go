package moving

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bsm/redislock"
	"github.com/go-redsync/redsync/v4"
	"github.com/go-redsync/redsync/v4/redis/goredis/v9"

	"github.com/redlatch/redlatch/internal/testbed"
)

// The tests of this file hold what README's comparison says of other libraries. One that fails after an update means
// that the table is out of date.

// TestOthersReentry: none of them lets the holder in again.
func TestOthersReentry(t *testing.T) {
	b := newBed(t)
	for library, o := range b.olds {
		ctx, release, err := o.take(t.Context(), "again", often)
		testbed.Must(t, err)
		if _, inner, err := o.take(ctx, "again", once); err == nil {
			t.Errorf("%s lets its holder in again", library)
			_ = inner()
		}
		testbed.Must(t, release())
	}
}

// TestOthersRenewal: whose lock outlives its expiry while its holder lives.
func TestOthersRenewal(t *testing.T) {
	const expiry = 300 * time.Millisecond
	b := newBed(t)
	m := redsync.New(goredis.NewPool(b.raw)).NewMutex("renewed-redsync", redsync.WithExpiry(expiry))
	testbed.Must(t, m.Lock())
	l, err := redislock.New(b.raw).Obtain(t.Context(), "renewed-redislock", expiry, nil)
	testbed.Must(t, err)
	ctx, release, err := b.olds["rueidislock"].take(t.Context(), "renewed-rueidislock", often)
	testbed.Must(t, err)
	// A key with this TTL that was set later than theirs is gone: theirs are gone, too, unless somebody renewed them.
	b.waitForTheEnd(t, expiry)
	for _, name := range []string{"renewed-redsync", "renewed-redislock"} {
		if n, err := b.raw.Exists(t.Context(), name).Result(); err != nil || n != 0 {
			t.Errorf("%s is still there: it is renewed, %v", name, err)
		}
	}
	if ok, err := m.Unlock(); ok || err == nil {
		t.Errorf("redsync unlocks a lock that it has lost: %t, %v", ok, err)
	}
	if err := l.Release(t.Context()); err == nil {
		t.Error("redislock releases a lock that it has lost")
	}
	// A majority of its keys is enough for it.
	b.waitForRenewals(t, "rueidislock:0:renewed-rueidislock", "rueidislock:1:renewed-rueidislock")
	testbed.Must(t, ctx.Err()) // it has renewed its lock
	testbed.Must(t, release())
}

// waitForRenewals waits until the TTL of each key has risen.
func (b *bed) waitForRenewals(t *testing.T, keys ...string) {
	t.Helper()
	last, risen := map[string]time.Duration{}, map[string]bool{}
	for end := time.Now().Add(30 * time.Second); len(risen) < len(keys); time.Sleep(5 * time.Millisecond) {
		for _, key := range keys {
			ttl, err := b.raw.PTTL(t.Context(), key).Result()
			before, seen := last[key]
			testbed.Must(t, err)
			switch {
			case ttl <= 0:
				t.Fatalf("%s is gone: nobody renews it", key)
			case seen && ttl > before:
				risen[key] = true
			case time.Now().After(end):
				t.Fatalf("%s is not renewed, and does not end", key)
			}
			last[key] = ttl
		}
	}
}

// waitForTheEnd waits until a key that is set now with this TTL is gone.
func (b *bed) waitForTheEnd(t *testing.T, ttl time.Duration) {
	t.Helper()
	testbed.Must(t, b.raw.Set(t.Context(), "clock", 1, ttl).Err())
	for n := int64(1); n > 0; {
		var err error
		n, err = b.raw.Exists(t.Context(), "clock").Result()
		testbed.Must(t, err)
	}
}

// TestRueidislockRenewsAndTells: it renews, its context ends when a majority of its keys is gone, and the end of the
// caller's context frees the lock.
func TestRueidislockRenewsAndTells(t *testing.T) {
	b := newBed(t)
	o := b.olds["rueidislock"]

	ctx, release, err := o.take(t.Context(), "told", often)
	testbed.Must(t, err)
	testbed.Must(t, b.raw.Del(t.Context(), "rueidislock:0:told", "rueidislock:1:told", "rueidislock:2:told").Err())
	select {
	case <-ctx.Done():
	case <-time.After(30 * time.Second):
		t.Error("its keys are gone and its context lives")
	}
	_ = release()

	caller, cancel := context.WithCancel(t.Context())
	_, release, err = o.take(caller, "freed", often)
	testbed.Must(t, err)
	cancel() // the section may still run
	next, nextRelease, err := o.take(t.Context(), "freed", often)
	testbed.Must(t, errors.Join(err, next.Err())) // the end of the caller's context has freed the lock
	_ = nextRelease()
	_ = release()
}

// TestRedlatchKeepsTheLock is the same with redlatch: the end of the caller's context ends the section's, and frees
// nothing.
func TestRedlatchKeepsTheLock(t *testing.T) {
	b := newBed(t)
	caller, cancel := context.WithCancel(t.Context())
	hold, err := b.client.RLock("kept").Lock(caller)
	testbed.Must(t, err)
	cancel()
	<-hold.Context().Done()
	if _, err := b.client.RLock("kept").TryLock(t.Context(), 100*time.Millisecond, 0); err == nil {
		t.Error("the end of the caller's context has freed the lock")
	}
	testbed.Must(t, hold.Unlock(t.Context()))
}

// TestOneMutexOfRedsync: an object of redsync belongs to one goroutine at a time; a second lock through it takes the
// identity of the first away.
func TestOneMutexOfRedsync(t *testing.T) {
	const expiry = 2 * time.Second // a busy machine unlocks in time
	b := newBed(t)
	m := redsync.New(goredis.NewPool(b.raw)).NewMutex("object", redsync.WithExpiry(expiry), redsync.WithTries(1<<20), redsync.WithRetryDelay(5*time.Millisecond))
	testbed.Must(t, m.Lock())
	first := m.Value()
	testbed.Must(t, m.Lock()) // the first one's expiry has ended
	if m.Value() == first {
		t.Error("it kept the first holder's identity")
	}
	if ok, err := m.Unlock(); !ok { // the first holder's deferred Unlock
		t.Errorf("the first holder's Unlock was refused: %v", err)
	}
}
