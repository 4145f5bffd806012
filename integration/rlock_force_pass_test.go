package integration

import (
	"context"
	"testing"

	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestRLockTakenByForceIsNotPassedOn: who has taken a lock away by force passes it on to
// nobody of its own process, who would believe to hold it until the next check.
func TestRLockTakenByForceIsNotPassedOn(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	c := rlClient(t, s.Addr())
	l := c.RLock("l")
	force := map[string]func() (bool, error){
		"of the lock":   func() (bool, error) { return l.ForceUnlock(t.Context()) },
		"of the client": func() (bool, error) { return c.ForceUnlock(t.Context(), "l") },
	}
	for name, take := range force {
		for range 100 {
			h := bed.Lock(t, t.Context(), l)
			held := make(chan bool, 1)
			next := func() {
				g, err := l.Lock(t.Context())
				if err != nil {
					t.Error(err)
					held <- true
					return
				}
				exists := s.Int(t, "EXISTS", "l") == 1
				_ = g.Unlock(context.Background()) // lost, if it was passed on
				held <- exists
			}
			testbed.Mark(t.Name(), func() { go next() }) // ends once h is unlocked
			rlMarked(t, "(*acquisition).sleep")
			if _, err := take(); err != nil {
				t.Fatal(err)
			}
			_ = h.Unlock(context.Background())
			if !<-held {
				t.Fatalf("ForceUnlock %s: the next one of the process holds a lock that nobody has", name)
			}
		}
	}
}
