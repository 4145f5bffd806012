package integration

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/luascript"
)

// A reader enters at its next refresh, not when the lease of the writer that kept it out would have
// ended, when that one has gone without a message and another reader is inside.
func TestRWWriterGoneWithoutAMessage(t *testing.T) {
	for _, how := range []string{"released by one key while a cluster moved the slot", "deleted by hand"} {
		t.Run(how, func(t *testing.T) {
			s := rwServer(t)
			w := rwLock(t, rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), t.Context())
			l := rwClient(t, s, 0).ReadWriteLock("n")
			waits := rwAsync(t, rwClient(t, s, 0).ReadWriteLock("n").ReadLock(), t.Context())
			rwWaiting(t, s, "readers", 1)
			gone := []string{"DEL", "n"}
			if how != "deleted by hand" {
				gone = []string{"EVAL", luascript.RWFree.Body, "1", "n", s.List(t, "ZRANGE", rwLeases, "0", "0")[0]}
			}
			if n := s.Int(t, gone...); n != 1 {
				t.Fatalf("%d holds have gone", n)
			}
			r := rwLock(t, l.ReadLock(), t.Context())
			if err := w.Unlock(t.Context()); err == nil {
				t.Error("an Unlock of what was gone reports success")
			}
			rwUnlock(t, rwGot(t, waits, 5*time.Second), r)
		})
	}
}
