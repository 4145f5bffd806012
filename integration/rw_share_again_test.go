package integration

import (
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A re-entry outlives its owner's only hold of a shared session, which ends while the re-entry is
// under way: it re-enters although a writer waits, and is refused the write lock.
func TestRWShareReentryOutlivesFixedHold(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 30*time.Second, 900*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads())
	writer := rwClient(t, s, 0).ReadWriteLock("n").WriteLock()
	rwUnlock(t, rwLock(t, l.ReadLock(), t.Context()))

	asB := redlatch.WithOwner(t.Context(), "b")
	a := rwLock(t, l.ReadLock(), t.Context())
	b := rwLock(t, l.ReadLock(), asB)                                        // joins
	short := rwLock(t, l.ReadLock(), asB, redlatch.WithLease(2*time.Second)) // far beyond the tenure
	rwUnlock(t, b)
	slow := proxy.StallReply(testbed.Contains("EVALSHA"))
	again := rwAsync(t, l.ReadLock(), asB)
	slow.Wait(t)
	<-short.Context().Done()
	slow.Release()
	h := rwGot(t, again, 10*time.Second)

	// Nobody joins the session any more.
	w := rwAsync(t, writer, t.Context())
	rwWaiting(t, s, "writers", 1)
	nested, err := l.ReadLock().TryLock(h.Context(), 10*time.Second, 0)
	if err != nil {
		t.Errorf("a reader that is inside waits for the writer that waits for it: %v", err)
	} else {
		rwUnlock(t, nested)
	}
	if _, err := l.WriteLock().TryLock(h.Context(), 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Errorf("a reader that asks to write: %v", err)
	}
	rwUnlock(t, h, a)
	rwUnlock(t, rwGot(t, w, 10*time.Second))
	rwEmpty(t, s)
}
