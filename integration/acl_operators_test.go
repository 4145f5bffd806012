package integration

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The smallest sets of rules for the operators' calls on locks whose names begin with
// "app:"; docs/ACL.md shows the same, and which commands of redlatch need which.
var (
	aclConnect = strings.Fields(`+hello +ping`)
	aclInspect = strings.Fields(`
		~app:* ~redisson_lock_token:{app:* ~redlatch_void:{app:* ~redlatch_trace:{app:* ~redlatch_wait:{app:*
		~redisson_lock_queue:{app:* ~redisson_lock_timeout:{app:* ~redlatch_fair:{app:* ~redlatch_rw_*:{app:* ~{app:*
		+eval +evalsha +time +type +exists +get +hget +hlen +hgetall +hscan +pttl
		+llen +lrange +zscore +zcount +zrange +zrangebyscore`)
	aclCount  = strings.Fields(`+pubsub|numsub +zcard`)
	aclNames  = strings.Fields(`+client|list`)
	aclLocks  = strings.Fields(`+scan`)
	aclForced = strings.Fields(`
		&redisson_lock__channel:{app:* &redisson_rwlock:{app:* &redlatch_grant:{app:* &redlatch_wake:{app:*
		+publish +del +hdel +hset +hexists +pexpire +set +rename +zrem +zadd +zpopmin
		+lindex +lpop`)
)

func aclOperator(t *testing.T, s *testbed.Server, sets ...[]string) (*redlatch.Client, *redlatch.Client) {
	t.Helper()
	rules := append([]string{"on", ">secret"}, aclConnect...)
	for _, set := range sets {
		rules = append(rules, set...)
	}
	s.SetUser(t, "ops", rules...)
	op := rlClient(t, s.Addr(), func(c *redlatch.Config) { c.Redis.Username, c.Redis.Password, c.Prefix = "ops", "secret", "app:" })
	app := rlClient(t, s.Addr(), inName("app/1"), func(c *redlatch.Config) { c.Prefix = "app:" })
	return op, app
}

// aclHolds takes a lock of each kind, with a waiter each.
func aclHolds(t *testing.T, app *redlatch.Client) (names []string, done func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	var ends []func()
	add := func(name string, hold, wait redlatch.Locker) {
		h := bed.Lock(t, t.Context(), hold)
		got := bed.Async(ctx, wait)
		inUntil(t, app, name, func(in redlatch.Inspection) bool { return in.Processes > 0 })
		names = append(names, name)
		ends = append(ends, func() {
			if err := h.Unlock(t.Context()); err != nil && !errors.Is(err, redlatch.ErrLeaseLost) {
				t.Error(err)
			}
			if r := bed.Get(t, got); r.Err == nil {
				_ = r.Hold.Unlock(t.Context())
			}
		})
	}
	add("plain", app.RLock("plain"), app.RLock("plain"))
	add("fair", app.FairLock("fair", redlatch.Fenced()), app.FairLock("fair"))
	add("read", app.ReadWriteLock("read").ReadLock(), app.ReadWriteLock("read").WriteLock())
	add("write", app.ReadWriteLock("write").WriteLock(), app.ReadWriteLock("write").ReadLock())
	return names, func() {
		cancel() // who was not told would wait for the lease
		for _, end := range ends {
			end()
		}
	}
}

// The rules of docs/ACL.md are enough to look, to list and to free.
func TestOperatorsACL(t *testing.T) {
	op, app := aclOperator(t, bed.Server(t), aclInspect, aclCount, aclNames, aclLocks, aclForced)
	names, done := aclHolds(t, app)
	defer done()
	n := 0
	for in, err := range op.Locks(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if n++; in.Holders[0].Client != "app/1" || in.Processes < 1 {
			t.Errorf("%+v", in)
		}
	}
	if n != len(names) {
		t.Errorf("%d of %d locks", n, len(names))
	}
	for _, name := range names {
		in := inLook(t, op, name)
		if was, err := op.ForceUnlock(t.Context(), name, redlatch.IfOwner(in.Holders[0].Owner)); !was || err != nil {
			t.Errorf("%s: %v, %v", name, was, err)
		}
	}
}

// To look needs no right to change anything; without those for names and numbers they are
// not known, and the rest is.
func TestOperatorsACLToLook(t *testing.T) {
	op, app := aclOperator(t, bed.Server(t), aclInspect)
	names, done := aclHolds(t, app)
	defer done()
	for _, name := range names {
		in := inLook(t, op, name)
		if !in.Held() || in.Holders[0].Client != "" || in.Holders[0].ClientID != app.ID() || in.Kind != redlatch.KindFair && in.Processes != -1 {
			t.Errorf("%+v", in)
		}
		var se *redlatch.ServerError
		if was, err := op.ForceUnlock(t.Context(), name); was || !errors.As(err, &se) {
			t.Errorf("forced without the right: %v, %v", was, err)
		}
		if after := inLook(t, op, name); !after.Held() || after.Holders[0].Owner != in.Holders[0].Owner {
			t.Errorf("%+v became %+v", in, after)
		}
	}
	for _, err := range op.Locks(t.Context(), "") {
		var se *redlatch.ServerError
		if !errors.As(err, &se) {
			t.Errorf("listed without +scan: %v", err)
		}
	}
}

// docs/ACL.md gives operators no command that nothing needs.
func TestOperatorsACLNoMore(t *testing.T) {
	t.Parallel()
	all := [][]string{aclInspect, aclForced}
	for i, set := range all {
		for _, rule := range set {
			if rule[0] != '+' || rule == "+eval" || rule == "+evalsha" || rule == "+zadd" || rule == "+zpopmin" || rule == "+set" || rule == "+hexists" || rule == "+hset" {
				continue // needed by scripts that are not loaded, hand-overs of other shapes, downgrades, to call who would look
			}
			t.Run(rule[1:], func(t *testing.T) {
				op, app := aclOperator(t, testbed.Standalone(t), aclInspect, aclForced, []string{"-" + rule[1:]})
				names, done := aclHolds(t, app)
				defer done()
				bad := ""
				for _, name := range names {
					in, err := op.Inspect(t.Context(), name)
					if err != nil {
						bad += fmt.Sprintln(err)
						continue
					}
					complete := in.Held() && (name == "plain" || in.QueueLength > 0) && (name != "fair" || in.Token > 0)
					if !complete {
						bad += fmt.Sprintf("%+v\n", in)
					}
					if i == 1 {
						if _, err := op.ForceUnlock(t.Context(), name); err != nil {
							bad += fmt.Sprintln(err)
						}
						if after := inLook(t, app, name); after.Held() && after.Holders[0].Owner == in.Holders[0].Owner {
							bad += "not freed\n"
						} else if rule == "+rename" {
							bad += "freed, but the readers' turn is not kept\n"
						}
					}
				}
				if bad == "" {
					t.Errorf("%s is not needed", rule)
				}
			})
		}
	}
}

// docs/ACL.md shows the rules that are tested here; in a table Markdown writes | as \|.
func TestOperatorsACLDocument(t *testing.T) {
	doc, err := os.ReadFile("../docs/ACL.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(doc), `\|`, "|")
	for _, set := range [][]string{aclInspect, aclCount, aclNames, aclLocks, aclForced} {
		for _, rule := range set {
			if !strings.Contains(text, rule) {
				t.Errorf("docs/ACL.md does not name %s", rule)
			}
		}
	}
}
