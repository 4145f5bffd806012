package redlatchtest_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

// A Client warns once of a TryLock whose wait and lease look swapped, and of no other.
func TestSwappedWaitAndLeaseAreToldOnce(t *testing.T) {
	for name, tc := range map[string]struct {
		wait, lease time.Duration
		told        int
	}{
		"swapped":               {30 * time.Second, 2 * time.Second, 1},
		"the watchdog":          {30 * time.Second, 0, 0},
		"one attempt":           {0, 2 * time.Second, 0},
		"a lease of some use":   {time.Minute, 10 * time.Second, 0},
		"a wait of that length": {5 * time.Second, 2 * time.Second, 0},
	} {
		var log bytes.Buffer
		client := redlatchtest.New(t, redlatch.WithLogger(slog.New(slog.NewTextHandler(&log, nil))))
		for range 2 {
			hold, err := client.RLock("l").TryLock(t.Context(), tc.wait, tc.lease)
			testbed.Must(t, err)
			mustUnlock(t, hold)
		}
		client.Close() // everything has been logged
		testbed.Equal(t, strings.Count(log.String(), "swapped"), tc.told, name, "warnings in", &log)
	}
}

// DoFenced runs a section with a token that rises, and runs none under a lock that has no tokens.
func TestDoFenced(t *testing.T) {
	client, second, third := redlatchtest.New(t), redlatchtest.New(t), redlatchtest.New(t)
	for name, lock := range map[string]func(opts ...redlatch.Option) redlatch.Locker{
		"MultiLock": func(opts ...redlatch.Option) redlatch.Locker {
			return redlatch.MultiLock(client.RLock("one", opts...), second.RLock("two", opts...))
		},
		"QuorumLock": func(opts ...redlatch.Option) redlatch.Locker {
			return redlatch.QuorumLock(client.RLock("q", opts...), second.RLock("q", opts...), third.RLock("q", opts...))
		},
		"RLock":     func(opts ...redlatch.Option) redlatch.Locker { return client.RLock("plain", opts...) },
		"FairLock":  func(opts ...redlatch.Option) redlatch.Locker { return client.FairLock("fair", opts...) },
		"WriteLock": func(opts ...redlatch.Option) redlatch.Locker { return client.ReadWriteLock("rw", opts...).WriteLock() },
		"Locker":    func(opts ...redlatch.Option) redlatch.Locker { return redlatchtest.NewLocker("own", opts...) },
	} {
		last, runs := uint64(0), 0
		write := func(_ context.Context, token uint64) error {
			if runs++; token <= last {
				t.Errorf("%s: the token %d after %d", name, token, last)
			}
			last = token
			return nil
		}
		fenced := lock(redlatch.Fenced())
		for range 2 {
			wants(t, redlatch.DoFenced(t.Context(), fenced, write), nil)
		}
		testbed.Equal(t, runs, 2, name, "runs")
		untold(t, lock(), "Fenced")
		passes(t, lock()) // the refusal has left nothing
	}
}

// untold checks that DoFenced runs no section under a lock without a token, and says why there is none.
func untold(t *testing.T, l redlatch.Locker, why string) {
	t.Helper()
	err := redlatch.DoFenced(t.Context(), l, func(context.Context, uint64) error { t.Error("it ran"); return nil })
	if !errors.Is(err, redlatch.ErrInvalidOption) || !strings.Contains(err.Error(), why) {
		t.Errorf("%T: %v, want %q", l, err, why)
	}
}

// DoFenced tells a lock that was made without tokens from a read lock whose first writer has not come yet.
func TestDoFencedSaysWhyThereIsNoToken(t *testing.T) {
	client := redlatchtest.New(t)
	read, fenced := client.ReadWriteLock("b").ReadLock(), client.ReadWriteLock("c", redlatch.Fenced()).ReadLock()
	untold(t, read, "made without it")
	untold(t, redlatch.MultiLock(client.RLock("a"), read), "made without it")
	untold(t, fenced, "its first writer")
	other := client.RLock("a", redlatch.Fenced())
	untold(t, redlatch.MultiLock(other, fenced), `member "c": a read lock has no token before its first writer`)
	untold(t, redlatch.MultiLock(other, client.RLock("d")), `member "d": the lock was made without it`)
	untold(t, redlatch.MultiLock(client.RLock("d"), other), `member "d": the lock was made without it`)
}
