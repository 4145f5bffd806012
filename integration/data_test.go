package integration

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// stater is what all single locks have besides being Lockers.
type stater interface {
	redlatch.Locker
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// inForeign puts an application's data on the server that looks a little like locks, and returns the names: hashes
// with a field "mode", as read-write locks have one, or with one number, as plain locks, and large ones.
func inForeign(t *testing.T, s *testbed.Server) []string {
	t.Helper()
	const field = "343714c0-1111-4222-8333-444455556666:g1-1"
	big := []string{"HSET", "d:big", "mode", "read"}
	for i := range 20000 {
		big = append(big, fmt.Sprintf("f%d", i), "1")
	}
	var names []string
	for _, set := range [][]string{
		{"SET", "d:string", "1"}, {"HSET", "d:user", "name", "ada"}, {"HSET", "d:two", field, "1", "other", "2"},
		{"HSET", "d:numbers", "a", "1", "b", "2"}, {"HSET", "d:visits", "visits", "12"}, {"HSET", "d:count", field, "many"},
		{"HSET", "d:mode", "mode", "read", "title", "x"}, {"HSET", "d:mode2", "mode", "write", field, "text"}, {"HSET", "d:dark", "mode", "dark"},
		{"HSET", "d:file", "mode", "read"}, {"HSET", "d:export", "mode", "write", "n", "1"}, {"HSET", "d:config", "mode", "read", "customer", "42"},
		{"HSET", "d:mixed", "mode", "read", field, "1", "n", "1"}, {"HSET", "d:text", "mode", "write", field + ":write", "x"},
		{"HSET", "d:word", field, "x"}, {"RPUSH", "d:list", field}, big,
	} {
		s.Do(t, set...)
		names = append(names, set[1])
		t.Cleanup(func() { s.Do(t, "DEL", set[1]) })
	}
	return names
}

// An application's data is no lock for any call of any kind, whatever its fields are called: nobody waits for it, and
// it stays as it is, at a cost that does not depend on its size.
func TestDataIsNoLock(t *testing.T) {
	s := bed.Server(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	names := inForeign(t, s)
	dump := func(name string) string {
		if name == "d:big" { // a big table is rehashed on the way
			return fmt.Sprint(s.Int(t, "HLEN", name))
		}
		return s.Text(t, "DUMP", name) + fmt.Sprint(s.Int(t, "PTTL", name))
	}
	for _, name := range names {
		before, stats, rw := dump(name), s.CommandStats(t), c.ReadWriteLock(name)
		calls := map[string]func() error{
			"Inspect":     func() error { _, err := c.Inspect(ctx, name); return err },
			"ForceUnlock": func() error { _, err := c.ForceUnlock(ctx, name); return err },
			"MultiLock": func() error {
				_, err := redlatch.MultiLock(c.RLock(name), c.RLock(name+"2")).TryLock(ctx, 0, 0)
				return err
			},
			"rw.State": func() error { _, err := rw.State(ctx); return err },
		}
		for kind, l := range map[string]stater{"plain": c.RLock(name), "fair": c.FairLock(name), "read": rw.ReadLock(), "write": rw.WriteLock()} {
			calls[kind+".Lock"] = func() error { _, err := l.Lock(ctx); return err }
			calls[kind+".TryLock"] = func() error { _, err := l.TryLock(ctx, 0, 0); return err }
			calls[kind+" that waits"] = func() error { _, err := l.TryLock(ctx, bed.Patience, 0); return err }
			calls[kind+".State"] = func() error { _, err := l.State(ctx); return err }
			calls[kind+".ForceUnlock"] = func() error { _, err := l.ForceUnlock(ctx); return err }
		}
		for what, call := range calls {
			if err := call(); !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%s of %s: %v", what, name, err)
			}
			testbed.Equal(t, dump(name), before, what, "of", name)
		}
		if calls := s.CommandStats(t).Sub(stats).Calls; name == "d:big" && calls["hgetall"]+calls["hkeys"] > 0 {
			t.Errorf("the whole hash was read: %v", calls)
		}
	}
	for _, pattern := range []string{"", "*"} {
		for in, err := range c.Locks(ctx, pattern) {
			t.Errorf("listed: %+v, %v", in, err)
		}
	}
	for _, key := range s.List(t, "KEYS", "*") {
		if !strings.HasPrefix(key, "d:") {
			t.Errorf("left behind: %s", key)
		}
	}
}
