package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
)

// TestRWWhoIsRefusedForGoodLeavesNoMark: a writer whose key is no lock any more takes
// its mark along, behind which readers would stand back.
func TestRWWhoIsRefusedForGoodLeavesNoMark(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	c := rwClient(t, s, 0)
	l := c.ReadWriteLock("n", rwTold())
	read, err := l.ReadLock().Lock(t.Context(), redlatch.WithLease(5*time.Second)) // the writer tries at its end
	if err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() {
		_, err := l.WriteLock().Lock(t.Context())
		ended <- err
	}()
	rwWaiting(t, s, "writers", 1)
	s.Do(t, "SET", "n", "data")
	select {
	case err := <-ended:
		if !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("the writer: %v", err)
		}
	case <-time.After(bed.Patience):
		t.Fatal("the writer was not told that its key is no lock")
	}
	rwEventually(t, "the writer's mark is gone", func() bool {
		return s.Int(t, "EXISTS", luascript.RWMarksKey("n"), luascript.RWWritersKey("n")) == 0
	})
	if err := read.Unlock(context.Background()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Errorf("Unlock: %v", err)
	}
	s.Do(t, "DEL", "n", luascript.RWLeasesKey("n"))
}
