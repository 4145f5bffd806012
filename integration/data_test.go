package integration

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// inLookalikes puts an application's hashes on the server that have a field "mode", as read-write locks do, or one
// field with a number, as plain ones do.
func inLookalikes(t *testing.T, s *testbed.Server) map[string]map[string]string {
	t.Helper()
	hashes := map[string]map[string]string{
		"config":   {"mode": "read", "path": "/x"},
		"export":   {"mode": "write", "n": "1"},
		"file":     {"mode": "read"},
		"counters": {"visits": "12"},
	}
	for key, fields := range hashes {
		for f, v := range fields {
			s.Do(t, "HSET", key, f, v)
		}
		t.Cleanup(func() { s.Do(t, "DEL", key) })
	}
	return hashes
}

// An application's hash is no lock for any call of any kind, whatever its fields are called: nobody waits for it, and
// it stays as it is.
func TestDataWithAModeIsNoLock(t *testing.T) {
	s := rlServer(t)
	c := rlClient(t, s.Addr())
	for key, fields := range inLookalikes(t, s) {
		rw := c.ReadWriteLock(key)
		for kind, l := range map[string]interface {
			redlatch.Locker
			State(context.Context) (redlatch.State, error)
			ForceUnlock(context.Context) (bool, error)
		}{"plain": c.RLock(key), "fair": c.FairLock(key), "read": rw.ReadLock(), "write": rw.WriteLock()} {
			if h, err := l.TryLock(t.Context(), 0, 0); h != nil || !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%s: TryLock of a %s lock: %v", key, kind, err)
			}
			if h, err := l.TryLock(t.Context(), rlPatience, 0); h != nil || !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%s: waiting for a %s lock: %v", key, kind, err)
			}
			if st, err := l.State(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%s: State of a %s lock: %+v, %v", key, kind, st, err)
			}
			if was, err := l.ForceUnlock(t.Context()); was || !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("%s: ForceUnlock of a %s lock: %v, %v", key, kind, was, err)
			}
		}
		if h, err := redlatch.MultiLock(c.RLock(key), c.RLock(key+"2")).TryLock(t.Context(), 0, 0); h != nil || !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("%s: TryLock of a MultiLock: %v", key, err)
		}
		if in, err := c.Inspect(t.Context(), key); !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("%s: Inspect: %+v, %v", key, in, err)
		}
		if after := s.Hash(t, "HGETALL", key); !maps.Equal(after, fields) || s.Int(t, "PTTL", key) != -1 {
			t.Errorf("%s became %v", key, after)
		}
	}
	for in, err := range c.Locks(t.Context(), "") {
		t.Errorf("listed: %+v, %v", in, err)
	}
	for _, key := range s.List(t, "KEYS", "*:*") {
		t.Errorf("left behind: %s", key)
	}
}

// A large hash is refused by a look at a few entries: nothing of it is read as a whole, by no call of any kind.
func TestALargeHashIsNotReadAsAWhole(t *testing.T) {
	s := rlServer(t)
	c, ctx := rlClient(t, s.Addr()), t.Context()
	fields := []string{"HSET", "large", "mode", "read"}
	for i := range 20000 {
		fields = append(fields, fmt.Sprintf("f%d", i), "1")
	}
	s.Do(t, fields...)
	t.Cleanup(func() { s.Do(t, "DEL", "large") })
	s.Do(t, "CONFIG", "RESETSTAT")
	rw := c.ReadWriteLock("large")
	for kind, l := range map[string]redlatch.Locker{
		"plain": c.RLock("large"), "fair": c.FairLock("large"), "read": rw.ReadLock(), "write": rw.WriteLock(),
	} {
		if _, err := l.TryLock(ctx, 0, 0); !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("TryLock of a %s lock: %v", kind, err)
		}
	}
	for kind, state := range map[string]func(context.Context) (redlatch.State, error){
		"plain": c.RLock("large").State, "fair": c.FairLock("large").State, "read-write": rw.State,
	} {
		if st, err := state(ctx); !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("State of a %s lock: %+v, %v", kind, st, err)
		}
	}
	stats := inText(t, s.Do(t, "INFO", "commandstats"))
	if strings.Contains(stats, "cmdstat_hgetall") || strings.Contains(stats, "cmdstat_hkeys") {
		t.Errorf("the whole hash was read:\n%s", stats)
	}
}
