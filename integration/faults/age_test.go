package faults

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// TestNewMastersCountForEveryLease: a profile of a quorum begins with masters that count for the
// longest lease that its workers ask for, also after an acquisition for less. Else a worker would
// be told, rightly, that they are too young, and the checker would know of nothing that was wrong.
func TestNewMastersCountForEveryLease(t *testing.T) {
	t.Parallel()
	for i := range profiles {
		p := &profiles[i]
		if p.topology != "masters" {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			t.Parallel()
			quiet := *p
			quiet.workers = 0
			w := newWorld(t, &quiet, 1)
			var copies []redlatch.Locker
			for _, s := range w.servers {
				c, err := redlatch.New(redlatch.Config{
					Redis: rueidis.ClientOption{InitAddress: []string{s.Addr()}, ForceSingleClient: true}, LeaseTime: p.lease,
					Logger: slog.New(slog.DiscardHandler),
				})
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(c.Close)
				copies = append(copies, c.RLock("q"))
			}
			for _, lease := range []time.Duration{p.lease / 2, longest(p.lease)} {
				h, err := redlatch.QuorumLock(copies...).TryLock(t.Context(), 0, lease)
				// A busy machine may not answer at once; then what was asked for is undone.
				again := func() bool {
					return err != nil && (strings.Contains(err.Error(), "no answer") || strings.Contains(err.Error(), "held by"))
				}
				for end := time.Now().Add(patient); again() && time.Now().Before(end); {
					h, err = redlatch.QuorumLock(copies...).TryLock(t.Context(), 0, lease)
				}
				if err != nil {
					t.Fatalf("a lease of %v: %v", lease, err)
				}
				if err := h.Unlock(t.Context()); err != nil {
					t.Error(err)
				}
			}
		})
	}
}
