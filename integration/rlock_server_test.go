package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Servers in a bad state, and names that are unusual.

// While the server loads its data it refuses everything; that passes, so Lock
// waits for it.
func TestRLockServerIsLoading(t *testing.T) {
	t.Parallel()
	testbed.Needs(t, 7, 0, "a setting that lets a server answer while it loads little data")
	// For 20 seconds, unless it is told to hurry: it loads still when TryLock asks, however slow the machine is.
	s := rlServer(t, "--key-load-delay", "10000", "--loading-process-events-interval-bytes", "1024")
	for i := range 2000 {
		s.Do(t, "SET", fmt.Sprintf("k%d", i), strings.Repeat("x", 20))
	}
	c := rlClient(t, s.Addr(), rlLease(10*time.Minute))
	h := bed.Lock(t, t.Context(), c.RLock("l"))
	s.Restart(t, testbed.Keep)
	_, err := s.Try("GET", "k1")
	if err == nil || !strings.Contains(err.Error(), "LOADING") {
		t.Fatalf("the server does not load slowly: %v", err)
	}
	_, err = c.RLock("y").TryLock(t.Context(), 0, 0)
	rlWant(t, err, redlatch.ErrUnavailable)
	waits := bed.Async(t.Context(), c.RLock("x"))
	rlBlocked(t, waits)
	s.Do(t, "CONFIG", "SET", "key-load-delay", "0")
	got := bed.Get(t, waits)
	if got.Err != nil {
		t.Fatal(got.Err)
	}
	bed.Unlock(t, got.Hold)
	bed.Unlock(t, h) // it was kept
	s.Do(t, "FLUSHALL")
}

// rlACL is the smallest set of rules under which everything works, for locks
// whose names begin with "app:". docs/ACL.md shows the same.
var rlACL = struct{ keys, channels, lock, state, force, fence, void []string }{
	keys: []string{
		"~app:*", "~redisson_lock_token:{app:*", "~redlatch_void:{app:*", "~redlatch_trace:{app:*", "~redlatch_wait:{app:*",
		// of ForceUnlock, which takes away whatever stands there
		"~redisson_lock_queue:{app:*", "~redisson_lock_timeout:{app:*", "~redlatch_fair:{app:*", "~redlatch_rw_*:{app:*",
	},
	channels: []string{"&redisson_lock__channel:{app:*", "&redisson_rwlock:{app:*", "&redlatch_grant:{app:*", "&redlatch_wake:{app:*"},
	lock: []string{
		"+hello", "+ping", "+eval", "+evalsha", "+subscribe", "+unsubscribe", "+publish",
		"+exists", "+hset", "+pexpire", "+hexists", "+hget", "+hlen", "+hgetall", "+pttl", "+hdel",
		"+time", "+zadd", "+zpopmin", "+zrem", // the list of those that wait
	},
	void:  []string{"+sadd", "+sismember"}, // where an acquisition was given up
	fence: []string{"+get", "+set"},
	state: []string{"+type"},
	force: []string{"+del", "+llen"},
}

func rlUser(t *testing.T, s *testbed.Server, rules ...string) func(*redlatch.Config) {
	t.Helper()
	s.SetUser(t, "app", append([]string{"on", ">secret"}, rules...)...)
	return func(c *redlatch.Config) {
		c.Redis.Username, c.Redis.Password = "app", "secret"
		c.LeaseTime = 5 * time.Second
	}
}

func rlAllRules() []string {
	return slices.Concat(rlACL.keys, rlACL.channels, rlACL.lock, rlACL.void, rlACL.fence, rlACL.state, rlACL.force)
}

// The minimal ACL of docs/ACL.md is enough for everything.
func TestRLockMinimalACL(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	rlUseAll(t, s, rlClient(t, s.Addr(), rlUser(t, s, rlAllRules()...)))
	for _, denied := range s.DeniedCommands(t) {
		t.Errorf("denied: %s", denied)
	}
	// Nothing outside its names.
	c := rlClient(t, s.Addr(), rlUser(t, s, rlAllRules()...))
	_, err := c.RLock("other").Lock(t.Context())
	rlServerError(t, err)
}

// rlUseAll uses every operation once; it reports the first error.
func rlUseAll(t *testing.T, s *testbed.Server, c *redlatch.Client) {
	t.Helper()
	if err := rlTryAll(t, s, c); err != nil {
		t.Fatal(err)
	}
}

func rlTryAll(t *testing.T, _ *testbed.Server, c *redlatch.Client) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
	defer cancel()
	for _, opts := range [][]redlatch.Option{nil, {redlatch.Fenced()}} {
		l := c.RLock("app:l", opts...)
		h, err := l.Lock(ctx)
		if err != nil {
			return err
		}
		nested, err := l.Lock(h.Context())
		if err != nil {
			return errors.Join(err, h.Unlock(ctx))
		}
		if err := h.Extend(ctx, 2*time.Second); err != nil {
			return err
		}
		got := bed.Async(ctx, l)
		select {
		case r := <-got:
			return errors.Join(r.Err, nested.Unlock(ctx), h.Unlock(ctx))
		case <-time.After(50 * time.Millisecond):
		}
		if _, err := l.TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
			return err
		}
		if err := nested.Unlock(ctx); err != nil {
			return err
		}
		before := h.ValidUntil()
		for !h.ValidUntil().After(before) && h.Context().Err() == nil {
			time.Sleep(10 * time.Millisecond)
		}
		if err := h.Unlock(ctx); err != nil {
			return err
		}
		r := bed.Get(t, got)
		if r.Err != nil {
			return r.Err
		}
		if _, err := l.State(ctx); err != nil {
			return err
		}
		if _, err := l.ForceUnlock(ctx); err != nil {
			return err
		}
		if err := r.Hold.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
			return fmt.Errorf("unlock after force unlock: %w", err)
		}
	}
	return nil
}

// docs/ACL.md shows the rules that are tested here.
func TestRLockACLDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/ACL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, rule := range rlAllRules() {
		if !strings.Contains(string(doc), rule) {
			t.Errorf("docs/ACL.md does not name %s", rule)
		}
	}
}

// Each command of the minimal ACL is needed: without it something fails with the
// server's refusal, and nothing is taken for busy, for unavailable, or acquired
// without a lease.
func TestRLockDeniedCommands(t *testing.T) {
	for _, denied := range slices.Concat(rlACL.lock, rlACL.fence, rlACL.state, rlACL.force) {
		switch denied {
		case "+hello", "+ping", "+unsubscribe":
			continue // the connection's own; see docs/ACL.md
		}
		t.Run(denied[1:], func(t *testing.T) {
			t.Parallel()
			s := bed.Server(t) // +eval is needed only where a script is not loaded yet
			rules := append(rlAllRules(), "-"+denied[1:])
			c := rlClient(t, s.Addr(), rlUser(t, s, rules...), rlUnlockTimeout(3*time.Second))
			err := rlTryAll(t, s, c)
			switch denied {
			case "+publish", "+zpopmin", "+zrem":
				// Released all the same; waiters go on at their next look.
				if err != nil {
					t.Errorf("without %s: %v", denied, err)
				}
			default:
				var answer *redlatch.ServerError
				if !errors.As(err, &answer) || answer.ErrorType() != "noperm" {
					t.Errorf("without %s: %v", denied[1:], err)
				}
				rlServerError(t, err)
			}
			c.Close()
			if n := s.Int(t, "EXISTS", "app:l"); n == 1 && s.Int(t, "PTTL", "app:l") < 0 {
				t.Errorf("a lock without a lease stays")
			}
			s.Do(t, "DEL", "app:l")
		})
	}
}
