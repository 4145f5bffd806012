package redlatch_test

import (
	"bytes"
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
)

// warned opens a Client that watches how long its holds last, and gives the log's lines.
func warned(t *testing.T, after time.Duration) (*redlatch.Client, <-chan string) {
	t.Helper()
	lines := make(chan string, 100)
	client, err := redlatch.Open(redisURL, redlatch.WithConfig(func(c *redlatch.Config) {
		c.HoldWarning = after
		c.Logger = slog.New(slog.NewTextHandler(writer(func(line []byte) {
			if text := string(line); strings.Contains(text, "held for long") {
				lines <- text
			}
		}), nil))
	}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(client.Close)
	return client, lines
}

type writer func([]byte)

func (w writer) Write(p []byte) (int, error) {
	w(bytes.Clone(p))
	return len(p), nil
}

//go:noinline
func forgetful(ctx context.Context, l redlatch.Locker) (redlatch.Hold, error) { return l.Lock(ctx) }

// The place of each kind's acquisition is the caller's, also where goroutines of the
// library acquire: its own frames are left out.
func TestHeldSaysWhereALockWasAcquired(t *testing.T) {
	client, _ := warned(t, time.Hour)
	for _, kind := range []struct {
		name    string
		lock    redlatch.Locker
		members int
	}{
		{"plain", client.RLock("place:plain"), 1},
		{"fair", client.FairLock("place:fair"), 1},
		{"read", client.ReadWriteLock("place:rw").ReadLock(), 1},
		{"write", client.ReadWriteLock("place:rw").WriteLock(), 1},
		{"group", redlatch.MultiLock(client.RLock("place:1"), client.RLock("place:2")), 2},
		{"mixed", redlatch.MultiLock(client.RLock("place:1"), client.FairLock("place:2"), client.ReadWriteLock("place:3").WriteLock()), 3},
	} {
		hold, err := forgetful(t.Context(), kind.lock)
		if err != nil {
			t.Fatalf("%s: %v", kind.name, err)
		}
		held := client.Held()
		if len(held) != kind.members {
			t.Errorf("%s: %d locks are held", kind.name, len(held))
		}
		for _, l := range held {
			first, rest, _ := strings.Cut(l.AcquiredAt, "; ")
			if !strings.Contains(first, ".forgetful ") || !strings.Contains(first, "warning_test.go:") {
				t.Errorf("%s: the innermost frame is %q", kind.name, first)
			}
			if !strings.Contains(rest, ".TestHeldSaysWhereALockWasAcquired ") {
				t.Errorf("%s: the outer frames are %q", kind.name, rest)
			}
			for _, own := range []string{"/internal/", "/rlock.", "/multilock.", "/lock.", "redlatch.", "runtime."} {
				if strings.Contains(strings.ReplaceAll(l.AcquiredAt, "redlatch_test.", ""), own) {
					t.Errorf("%s: a frame of %s: %q", kind.name, own, l.AcquiredAt)
				}
			}
		}
		if err := hold.Unlock(t.Context()); err != nil {
			t.Errorf("%s: %v", kind.name, err)
		}
	}

	// Do, and inside it a re-entry: the place is that of the oldest hold.
	err := client.RLock("place:do").Do(t.Context(), func(ctx context.Context) error {
		inner, err := forgetful(ctx, client.RLock("place:do"))
		if err != nil {
			return err
		}
		if at := client.Held()[0].AcquiredAt; strings.Contains(at, ".forgetful ") || !strings.Contains(at, ".TestHeldSays") {
			t.Errorf("Do: %q", at)
		}
		return inner.Unlock(ctx)
	})
	if err != nil {
		t.Error(err)
	}
}

// Whoever got the lock from another goroutine of the process is the one who is told of.
func TestTheWarningNamesWhoHasTheLockNow(t *testing.T) {
	client, lines := warned(t, 3*time.Second) // the first one unlocks before
	first, err := client.RLock("place:passed").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan redlatch.Hold)
	go func() {
		hold, err := forgetful(context.WithoutCancel(t.Context()), client.RLock("place:passed"))
		if err != nil {
			t.Error(err)
		}
		got <- hold
	}()
	if err := first.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	second := <-got
	select {
	case line := <-lines:
		for _, want := range []string{"level=WARN", "lock=place:passed", "owner=" + client.ID(), "type=reentrant", "since=", "held=", ".forgetful "} {
			if !strings.Contains(line, want) {
				t.Errorf("no %q in %s", want, line)
			}
		}
	case <-time.After(20 * time.Second):
		t.Error("no warning")
	}
	if err := second.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	select {
	case line := <-lines:
		t.Errorf("one more: %s", line)
	default:
	}
}

// The hold of a MultiLock is one hold, however many members it has, and on how many clients.
func TestAMultiLockIsToldOfOnce(t *testing.T) {
	const after = time.Second
	client, lines := warned(t, after)
	other, others := warned(t, after)
	hold, err := forgetful(t.Context(), redlatch.MultiLock(
		client.RLock("told:1"), client.RLock("told:2"), client.FairLock("told:3"), other.RLock("told:4"),
	))
	if err != nil {
		t.Fatal(err)
	}
	last, err := forgetful(t.Context(), client.RLock("told:after"))
	if err != nil {
		t.Fatal(err)
	}
	lastToo, err := forgetful(t.Context(), other.RLock("told:after too"))
	if err != nil {
		t.Fatal(err)
	}
	var told []string
	for seen := 0; seen < 2; { // of each client: the one that comes last
		select {
		case line := <-lines:
			told = append(told, line)
		case line := <-others:
			told = append(told, line)
		case <-time.After(20 * time.Second):
			t.Fatalf("no warning; so far: %q", told)
		}
		if strings.Contains(told[len(told)-1], "told:after") {
			told = told[:len(told)-1]
			seen++
		}
	}
	if len(told) != 1 {
		t.Fatalf("%d warnings: %q", len(told), told)
	}
	for _, want := range []string{`lock="[told:1 told:2 told:3 told:4]"`, "type=multi", "owner=", "held=", ".forgetful "} {
		if !strings.Contains(told[0], want) {
			t.Errorf("no %q in %s", want, told[0])
		}
	}
	for _, h := range []redlatch.Hold{hold, last, lastToo} {
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
	}
}

// Who does not ask pays nothing: nothing is noted.
func TestWithoutHoldWarningNothingIsNoted(t *testing.T) {
	client, lines := warned(t, 0)
	hold, err := forgetful(t.Context(), client.RLock("place:off"))
	if err != nil {
		t.Fatal(err)
	}
	if at := client.Held()[0].AcquiredAt; at != "" {
		t.Errorf("acquired at %q", at)
	}
	if err := hold.Unlock(t.Context()); err != nil {
		t.Error(err)
	}
	if len(lines) > 0 {
		t.Error(<-lines)
	}
}
