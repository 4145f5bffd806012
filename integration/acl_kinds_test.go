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

// The permissions that the kinds need besides those of the plain lock; docs/ACL.md
// shows the same.
var aclKinds = map[string][]string{
	"FairLock": {
		"~redisson_lock_queue:{app:*", "~redisson_lock_timeout:{app:*", "~redlatch_fair:{app:*", "&redlatch_grant:{app:*",
		"+hget", "+linsert", "+lindex", "+llen", "+lpop", "+lpush", "+lrange", "+lrem", "+rpop", "+rpush",
		"+zadd", "+zcard", "+zcount", "+zrangebyscore", "+zrem", "+zscore", "+del",
	},
	"ReadWriteLock": {
		"~{app:*", "~redlatch_rw_*:{app:*", "&redisson_rwlock:{app:*",
		"+hget", "+hkeys", "+hmget", "+hgetall", "+hlen", "+hscan", "+del", "+rename", "+set",
		"+zadd", "+zcard", "+zcount", "+zrange", "+zrangebyscore", "+zrem", "+zscore",
	},
	"QuorumLock": {"+info"},
}

// stater is what all single locks have besides being Lockers.
type stater interface {
	redlatch.Locker
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// aclTry uses a lock in every way with a client that has only these rules, and
// returns the first error.
func aclTry(t *testing.T, l stater) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
	defer cancel()
	h, err := l.Lock(ctx)
	if err != nil {
		return fmt.Errorf("lock: %w", err)
	}
	nested, err := l.Lock(h.Context())
	if err != nil {
		return fmt.Errorf("nested: %w", err)
	}
	if err := h.Extend(ctx, 2*time.Second); err != nil {
		return fmt.Errorf("extend: %w", err)
	}
	if st, err := l.State(ctx); err != nil || !st.Held {
		return fmt.Errorf("state: %w", err)
	}
	valid := h.ValidUntil()
	for !h.ValidUntil().After(valid) && h.Context().Err() == nil {
		time.Sleep(10 * time.Millisecond)
	}
	if err := errors.Join(context.Cause(h.Context()), nested.Unlock(ctx), h.Unlock(ctx)); err != nil {
		return fmt.Errorf("renew and unlock: %w", err)
	}
	h, err = l.Lock(ctx)
	if err != nil {
		return err
	}
	if was, err := l.ForceUnlock(ctx); err != nil || !was {
		return fmt.Errorf("force unlock: %w", err)
	}
	if err := h.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
		return fmt.Errorf("unlock after force unlock: %w", err)
	}
	return nil
}

// aclWait lets one wait for the other; the second gives up, a third gets it.
func aclWait(t *testing.T, holds, waits redlatch.Locker) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), bed.Patience)
	defer cancel()
	h, err := holds.Lock(ctx)
	if err != nil {
		return err
	}
	if _, err := waits.TryLock(ctx, 50*time.Millisecond, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
		return fmt.Errorf("give up: %w", err)
	}
	var got <-chan bed.Attempt
	testbed.Mark(t.Name(), func() { got = bed.Async(ctx, waits) })
	bed.Eventually(t, "the third waits, or is refused", func() bool {
		return testbed.MarkedIn(t.Name(), "engine.(*acquisition).sleep") > 0 ||
			testbed.MarkedIn(t.Name(), "multilock.(*acquisition).sleepUntil") > 0 || len(got) > 0
	})
	if err := h.Unlock(ctx); err != nil {
		return err
	}
	r := bed.Get(t, got)
	if r.Err != nil {
		return fmt.Errorf("wait: %w", r.Err)
	}
	return r.Hold.Unlock(ctx)
}

// The rules that docs/ACL.md gives for a kind are enough to lock, to wait and to unlock.
func TestACLOfEveryKind(t *testing.T) {
	t.Parallel()
	s := testbed.Standalone(t)
	testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token:", "redlatch_void:", "redlatch_rw_turn:"))
	for kind, rules := range aclKinds {
		t.Run(kind, func(t *testing.T) {
			c := rlClient(t, s.Addr(), rlUser(t, s, slices.Concat(rlAllRules(), rules)...))
			var errs []error
			switch kind {
			case "FairLock":
				for _, l := range []stater{c.FairLock("app:f"), c.FairLock("app:f", redlatch.Fenced())} {
					errs = append(errs, aclTry(t, l), aclWait(t, l, l))
				}
			case "ReadWriteLock":
				for _, rw := range [][]redlatch.Option{nil, {redlatch.Fenced()}} {
					l := c.ReadWriteLock("app:rw", rw...)
					errs = append(errs, aclTry(t, l.ReadLock()), aclTry(t, l.WriteLock()),
						aclWait(t, l.ReadLock(), l.WriteLock()), aclWait(t, l.WriteLock(), l.ReadLock()))
				}
			case "QuorumLock":
				l := redlatch.QuorumLock(c.RLock("app:q"))
				errs = append(errs, aclWait(t, l, l))
			}
			m := redlatch.MultiLock(c.RLock("app:a"), c.RLock("app:b"))
			errs = append(errs, aclWait(t, m, m))
			if err := errors.Join(errs...); err != nil {
				t.Error(err)
			}
			for _, e := range s.DeniedCommands(t) {
				t.Errorf("denied: %s", e)
			}
		})
	}
}

// docs/ACL.md names every kind and each rule that it needs.
func TestACLDocumentNamesEveryKind(t *testing.T) {
	doc, err := os.ReadFile("../docs/ACL.md")
	if err != nil {
		t.Fatal(err)
	}
	for kind, rules := range aclKinds {
		for _, rule := range append(rules, kind) {
			if !strings.Contains(string(doc), rule) {
				t.Errorf("docs/ACL.md does not name %s", rule)
			}
		}
	}
}
