package pubsub_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// Of two processes one always came first; now it stops. The other one, which never had the
// lock and does not know how many there are, tries within what docs/DESIGN.md says: 16 ms, and up to twice that.
func TestTheLastUnlockOfAPairIsTaken(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		w := h.Join(herded())
		synctest.Wait()
		worst := time.Duration(0)
		for round := range 20 {
			for range 8 + round { // turns of the other one, 30 ms each
				time.Sleep(30 * time.Millisecond)
				s.publish("herd", "0")
				if tries(w) {
					w.Expect(time.Now().Add(time.Minute), pubsub.Holder{Owner: "another"})
				}
			}
			time.Sleep(30 * time.Millisecond)
			s.publish("herd", "0") // the last one of this burst: the lock is free
			free := time.Now()
			for !tries(w) {
				time.Sleep(time.Millisecond)
				synctest.Wait()
			}
			worst = max(worst, time.Since(free))
			w.Expect(time.Now().Add(time.Minute), pubsub.Holder{Owner: "another"})
		}
		if worst > 33*time.Millisecond {
			t.Errorf("the lock lay free for %v while somebody waited", worst)
		}
		leave(w)
	})
}
