package promises

import (
	"context"
	"errors"
	"reflect"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
)

// Names may be anything but those of keys that hold something else, which is said at once, whatever their size, and
// leaves them alone.
func TestNamesMayBeAnything(t *testing.T) {
	t.Parallel()
	all := cases{}
	long := strings.Repeat("x", 1024)
	for _, name := range []string{
		"*", "*?[a]", "[a-z]?\\", "a\x00b", "\x00\xff\r\n\x80 \"'", "{", "}", "}{", "a{b}c", "a}b{c", "{}z", " ", "\r\n", "%s%d", "ü", "名前", ":",
		"a:b-c g=1", long,
	} {
		all[strconv.Quote(name)] = func(t *testing.T, x *bed.Site, _ string) {
			if x.Kind.Parts != nil {
				return // the endings of its names would make others of some
			}
			h := bed.Lock(t, t.Context(), x.Lock(name))
			if x.Kind.Servers == 1 && h.Name() != name {
				t.Errorf("the hold calls it %.40q", h.Name())
			}
			counted(t, x, name, 1)
			bed.Unlock(t, bed.Lock(t, h.Context(), x.Lock(name)))
			_, busy := x.Beside(name).TryLock(t.Context(), 0, 0)
			if want(t, "TryLock", busy, redlatch.ErrNotAcquired); busy != nil && len(busy.Error()) > 1000 {
				t.Errorf("the message has %d bytes", len(busy.Error()))
			}
			next := bed.Async(t.Context(), x.Beside(name))
			time.Sleep(2 * time.Millisecond) // waiting or not: it must get it
			bed.Unlock(t, h)
			a := entered(t, next)
			if st, err := x.Beside(name).(operated).State(t.Context()); err != nil || !st.Held || x.Kind.Servers == 1 && st.Name != name {
				t.Errorf("State: %+.200v, %v", st, err)
			}
			was, err := x.Beside(name).(operated).ForceUnlock(t.Context())
			if want(t, "ForceUnlock", err, nil); !was {
				t.Error("ForceUnlock found nobody")
			}
			want(t, "Unlock", a.Hold.Unlock(t.Context()), redlatch.ErrLeaseLost)
		}
	}
	for _, name := range []string{
		"", "{}", "{a}", "{a:b}", "redlatch_void:{a}", "redlatch_new:a", "redisson_lock_queue:{a}", "redisson_rwlock:a", "{a}:x:rwlock_timeout:1", long + "x",
	} {
		all["it can't be "+strconv.Quote(name)] = func(t *testing.T, x *bed.Site, _ string) {
			if x.Kind.Parts != nil {
				return
			}
			l := x.Lock(name)
			_, locked := l.Lock(t.Context())
			_, tried := l.TryLock(t.Context(), 0, 0)
			_, looked := l.(operated).State(t.Context())
			_, forced := l.(operated).ForceUnlock(t.Context())
			_, shown := x.Direct[0].Inspect(t.Context(), name)
			_, freed := x.Direct[0].ForceUnlock(t.Context(), name)
			done := redlatch.Do(t.Context(), l, func(context.Context) error { t.Error("it ran"); return nil })
			for what, err := range map[string]error{
				"Lock": locked, "TryLock": tried, "State": looked, "ForceUnlock": forced, "Do": done, "Client.Inspect": shown, "Client.ForceUnlock": freed,
			} {
				want(t, what, err, redlatch.ErrInvalidName)
			}
		}
	}
	many := []string{"HSET"}
	for i := range 20_000 {
		many = append(many, "field"+strconv.Itoa(i), "1")
	}
	for what, set := range map[string][]string{"a large hash": many, "a text": {"SET", "x"}, "a field": {"HSET", "name", "1"}} {
		all["no data of the application: "+what] = func(t *testing.T, x *bed.Site, name string) {
			for _, key := range x.Kind.Names(name) {
				onAll(t, x, append([]string{set[0], key}, set[1:]...)...)
			}
			data := func() any {
				s, key := x.Servers[0], x.Kind.Names(name)[0]
				if set[0] == "HSET" {
					return s.Hash(t, "HGETALL", key)
				}
				return s.Text(t, "GET", key)
			}
			before := data()
			want(t, "Lock", bed.Get(t, bed.Async(t.Context(), x.Lock(name))).Err, redlatch.ErrInvalidName)
			_, err := x.Lock(name).TryLock(t.Context(), time.Minute, 0)
			want(t, "TryLock", err, redlatch.ErrInvalidName)
			if !reflect.DeepEqual(data(), before) {
				t.Error("it was touched")
			}
			onAll(t, x, append([]string{"DEL"}, x.Kind.Names(name)...)...)
		}
	}
	besideEachOther(t, nil, all)
}

// Whatever speaks of a lock calls it as the caller did, not by the key that Prefix and NameMapper made of it.
func TestEverythingNamesTheLockAsItsCallerDid(t *testing.T) {
	t.Parallel()
	mapped := func(c *redlatch.Config) {
		c.Prefix, c.NameMapper = "pre:", func(name string) string { return strings.TrimPrefix(strings.ToUpper(name), "NONE") }
	}
	overKinds(t, []func(*redlatch.Config){short, mapped}, cases{
		"errors, states and holds": func(t *testing.T, x *bed.Site, _ string) {
			if x.Kind.Servers > 1 || x.Kind.Parts != nil {
				return // its name is not one key's
			}
			l, s := x.Lock("name"), x.Servers[0]
			h := bed.Lock(t, t.Context(), l)
			if s.Int(t, "EXISTS", "pre:NAME") != 1 {
				t.Fatalf("keys %v", s.List(t, "KEYS", "*"))
			}
			bed.Unlock(t, bed.Lock(t, h.Context(), x.Lock("NAME"))) // one key, one lock
			_, none := x.Lock("none").TryLock(t.Context(), 0, 0)
			want(t, "a name that the mapper makes nothing of", none, redlatch.ErrInvalidName)
			st, err := l.(operated).State(t.Context())
			in, ierr := x.Through[0].Inspect(t.Context(), "name")
			_, busy := x.Beside("name").TryLock(t.Context(), 0, 0)
			refused, is := errors.AsType[*redlatch.NotAcquiredError](busy)
			if err != nil || ierr != nil || !is {
				t.Fatalf("%v, %v, %v", err, ierr, busy)
			}
			deleted(t, x, "pre:NAME")
			<-h.Context().Done()
			lost, is := errors.AsType[*redlatch.LeaseLostError](context.Cause(h.Context()))
			if !is {
				t.Fatalf("the hold ended with %v", context.Cause(h.Context()))
			}
			for what, got := range map[string]string{
				"Locker.Name": l.(interface{ Name() string }).Name(),
				"Hold.Name":   h.Name(), "State": st.Name, "Inspect": in.Name, "NotAcquiredError": refused.Name, "LeaseLostError": lost.Name,
			} {
				if got != "name" {
					t.Errorf("%s says %q", what, got)
				}
			}
			if in.Key != "pre:NAME" {
				t.Errorf("key %q", in.Key)
			}
			_ = h.Unlock(t.Context())
		},
	})
}
