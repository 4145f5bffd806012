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
			if err != nil {
				t.Fatal(err)
			}
			mustUnlock(t, hold)
		}
		client.Close() // everything has been logged
		if got := strings.Count(log.String(), "swapped"); got != tc.told {
			t.Errorf("%s: %d warnings, want %d\n%s", name, got, tc.told, &log)
		}
	}
}

// DoFenced runs a section with a token that rises, and runs none under a lock that has no tokens.
func TestDoFenced(t *testing.T) {
	client := redlatchtest.New(t)
	for name, lock := range map[string]func(opts ...redlatch.Option) redlatch.Locker{
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
			if err := redlatch.DoFenced(t.Context(), fenced, write); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		if err := redlatch.DoFenced(t.Context(), lock(), write); !errors.Is(err, redlatch.ErrInvalidOption) || runs != 2 {
			t.Errorf("%s: without tokens: %v after %d runs", name, err, runs)
		}
		passes(t, lock()) // the refusal has left nothing
	}
}

// DoFenced tells a lock that was made without tokens from a read lock whose first writer has not come yet.
func TestDoFencedSaysWhyThereIsNoToken(t *testing.T) {
	client := redlatchtest.New(t)
	read := func(name string, opts ...redlatch.Option) *redlatch.ReadLock {
		return client.ReadWriteLock(name, opts...).ReadLock()
	}
	for want, locks := range map[string][]redlatch.Locker{
		"made without it":  {client.RLock("a"), read("b"), redlatch.MultiLock(client.RLock("a"), read("b"))},
		"its first writer": {read("c", redlatch.Fenced()), redlatch.MultiLock(client.RLock("a"), read("c", redlatch.Fenced()))},
	} {
		for _, l := range locks {
			err := redlatch.DoFenced(t.Context(), l, func(context.Context, uint64) error { return nil })
			if !errors.Is(err, redlatch.ErrInvalidOption) || !strings.Contains(err.Error(), want) {
				t.Errorf("%T: %v, want %q", l, err, want)
			}
		}
	}
}
