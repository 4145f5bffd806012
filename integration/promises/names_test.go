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
	for _, name := range []string{"*", "[a-z]?\\", "a\x00b", "{", "}{", "{}z", " ", "\r\n", "%s%d", "ü", "a:b-c g=1"} {
		all[strconv.Quote(name)] = func(t *testing.T, x *bed.Site, _ string) {
			if x.Kind.Parts != nil {
				return // the endings of its names would make others of some
			}
			h := bed.Lock(t, t.Context(), x.Lock(name))
			next := bed.Async(t.Context(), x.Beside(name))
			time.Sleep(2 * time.Millisecond) // waiting or not: it must get it
			bed.Unlock(t, h)
			bed.Unlock(t, bed.Hold(t, next))
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
			for _, key := range x.Kind.Names(name) {
				onAll(t, x, "DEL", key)
			}
		}
	}
	besideEachOther(t, nil, all)
}

// Whatever speaks of a lock calls it as the caller did, not by the key that Prefix and NameMapper made of it.
func TestEverythingNamesTheLockAsItsCallerDid(t *testing.T) {
	t.Parallel()
	mapped := func(c *redlatch.Config) { c.Prefix, c.NameMapper = "pre:", strings.ToUpper }
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
				"Hold.Name": h.Name(), "State": st.Name, "Inspect": in.Name, "NotAcquiredError": refused.Name, "LeaseLostError": lost.Name,
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
