package integration

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Tests of readers that share a hold.

// rwShareClient's holds admit readers for tenure.
func rwShareClient(t testing.TB, s *testbed.Server, tenure time.Duration) *redlatch.Client {
	t.Helper()
	return rwShareOpen(t, s.Addr(), 30*time.Second, tenure)
}

func rwShareOpen(t testing.TB, addr string, lease, tenure time.Duration) *redlatch.Client {
	t.Helper()
	c, err := rwPatient(func() (*redlatch.Client, error) {
		return redlatch.Open("redis://"+addr, redlatch.WithLeaseTime(lease), redlatch.WithTenure(tenure))
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// rwScripts is how many scripts the server ran for f.
func rwScripts(t testing.TB, s *testbed.Server, f func()) int64 {
	t.Helper()
	before := s.CommandStats(t)
	f()
	return s.CommandStats(t).Sub(before).Calls["evalsha"]
}

// TestRWShareIsOneHold: readers that come while another one is inside cost no command,
// and the server keeps the lock until the last of them leaves, whoever that is.
func TestRWShareIsOneHold(t *testing.T) {
	s := rwServer(t)
	l := rwShareClient(t, s, 9*time.Second).ReadWriteLock("n", redlatch.ShareReads())
	other := rwClient(t, s, 0).ReadWriteLock("n")
	rwUnlock(t, rwLock(t, l.ReadLock(), t.Context()), rwLock(t, other.ReadLock(), t.Context())) // loads the scripts
	holds := make([]redlatch.Hold, 0, 20)
	if n := rwScripts(t, s, func() {
		for range cap(holds) {
			holds = append(holds, rwLock(t, l.ReadLock(), t.Context()))
		}
		again := rwLock(t, l.ReadLock(), holds[7].Context())
		rwUnlock(t, again, holds[0], holds[5]) // the first one, too
	}); n != 2 { // the first reader's, and the re-entry
		t.Errorf("%d commands", n)
	}
	rwBusy(t, other.WriteLock(), t.Context())
	if errors.Is(holds[0].Unlock(t.Context()), redlatch.ErrNotHeld) != true {
		t.Error("a second unlock")
	}
	if holds[1].Context().Err() != nil || !errors.Is(context.Cause(holds[5].Context()), redlatch.ErrUnlocked) {
		t.Error("contexts", holds[1].Context().Err(), context.Cause(holds[5].Context()))
	}
	left := slices.Concat(holds[1:5], holds[6:])
	if n := rwScripts(t, s, func() { rwUnlock(t, left[:len(left)-1]...) }); n != 0 {
		t.Errorf("%d commands to leave while one stays", n)
	}
	rwBusy(t, other.WriteLock(), t.Context())
	rwUnlock(t, left[len(left)-1])
	w, err := other.WriteLock().TryLock(t.Context(), 0, 0)
	if err != nil {
		t.Fatal("not free after the last reader:", err)
	}
	rwUnlock(t, w)
	rwEmpty(t, s)
}

// TestRWShareWhoComesTogether: readers that come at once cost one acquisition, and those
// whose wait ends leave nothing behind.
func TestRWShareWhoComesTogether(t *testing.T) {
	s := rwServer(t)
	proxy := testbed.NewProxy(t, s.Addr())
	c := rwShareOpen(t, proxy.Addr(), 30*time.Second, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	rwUnlock(t, rwLock(t, l, t.Context()))
	for _, leader := range []bool{true, false} {
		lead, leave := context.WithCancel(t.Context())
		var all sync.WaitGroup
		holds := make(chan redlatch.Hold, 64)
		lock := func(ctx context.Context) {
			h, err := l.Lock(ctx)
			if err != nil && (ctx != lead || !errors.Is(err, redlatch.ErrNotAcquired)) {
				t.Error(err)
			}
			if h != nil {
				holds <- h
			}
		}
		n := rwScripts(t, s, func() {
			trap := proxy.StallReply(testbed.Contains("EVALSHA"))
			all.Go(func() { lock(lead) })
			trap.Wait(t)
			for i := range 40 {
				ctx := t.Context()
				if i%2 == 0 {
					ctx = lead
				}
				all.Go(func() { lock(ctx) })
			}
			rwInLine(t, 40)
			if leader {
				leave()
				rwInLine(t, 19) // of the 20 that stay one asks
			}
			trap.Release()
			all.Wait()
		})
		leave()
		close(holds)
		for h := range holds {
			rwUnlock(t, h)
		}
		t.Logf("leader left: %v; %d commands", leader, n)
		if !leader && n != 1 {
			t.Errorf("%d commands for 41 readers", n)
		}
		rwEventually(t, "nothing is left", func() bool { return s.Int(t, "EXISTS", "n") == 0 })
	}
}

// TestRWShareEndsForWriters: readers enter beside others for as long as the tenure, and
// then stand back behind a writer elsewhere; a writer of their own process they see at
// once.
func TestRWShareEndsForWriters(t *testing.T) {
	s := rwServer(t)
	const tenure = 100 * time.Millisecond
	c := rwShareClient(t, s, tenure)
	l := c.ReadWriteLock("n", redlatch.ShareReads())
	other := rwClient(t, s, 0).ReadWriteLock("n")
	for name, writer := range map[string]redlatch.Locker{"elsewhere": other.WriteLock(), "here": l.WriteLock()} {
		first := rwLock(t, l.ReadLock(), t.Context())
		w := rwAsync(t, writer, t.Context())
		rwWaiting(t, s, "writers", 1)
		if name == "here" {
			rwEventually(t, "the writer stands in line", func() bool {
				h, err := l.ReadLock().TryLock(t.Context(), 0, 0)
				if err == nil {
					rwUnlock(t, h)
				}
				return errors.Is(err, redlatch.ErrNotAcquired)
			})
		} else {
			time.Sleep(tenure)
		}
		rwBusy(t, l.ReadLock(), t.Context())
		rwUnlock(t, rwLock(t, l.ReadLock(), first.Context()), first)
		rwUnlock(t, rwGot(t, w, 10*time.Second))
	}
	rwEmpty(t, s)
}

// TestRWShareNobodyReadsBesideAWriter: a writer that also reads admits nobody, and a
// reader that joined is refused as a writer.
func TestRWShareNobodyReadsBesideAWriter(t *testing.T) {
	s := rwServer(t)
	l := rwShareClient(t, s, 9*time.Second).ReadWriteLock("n", redlatch.ShareReads())
	w := rwLock(t, l.WriteLock(), t.Context())
	r := rwLock(t, l.ReadLock(), w.Context())
	rwBusy(t, l.ReadLock(), t.Context())
	rwUnlock(t, w) // downgrades
	in := rwLock(t, l.ReadLock(), t.Context())
	joined := rwLock(t, l.ReadLock(), t.Context())
	if _, err := l.WriteLock().TryLock(joined.Context(), 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Error(err)
	}
	rwUnlock(t, in, joined, r)
	rwEmpty(t, s)

	// A writer's read hold that it takes while others share one is its own.
	first := rwLock(t, l.ReadLock(), t.Context())
	rwBusy(t, l.WriteLock(), t.Context())
	rwUnlock(t, first)
	rwUnlock(t, rwLock(t, l.WriteLock(), t.Context()))
	rwEmpty(t, s)
}

// TestRWShareWhoDoesNot: fixed leases, readers of another wish, and locks without the
// option have fields of their own.
func TestRWShareWhoDoesNot(t *testing.T) {
	s := rwServer(t)
	c := rwShareClient(t, s, 9*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	prefer := c.ReadWriteLock("n", redlatch.ShareReads(), redlatch.PreferReaders()).ReadLock()
	holds := []redlatch.Hold{
		rwLock(t, l, t.Context()), rwLock(t, l, t.Context(), redlatch.WithLease(time.Minute)), rwLock(t, prefer, t.Context()),
		rwLock(t, c.ReadWriteLock("n").ReadLock(), t.Context()), rwLock(t, l, t.Context()), rwLock(t, prefer, t.Context()),
	}
	if n := s.Int(t, "HLEN", "n"); n != 5 { // mode, and four fields
		t.Errorf("%d fields", n)
	}
	rwUnlock(t, holds...)
	rwEmpty(t, s)
	if _, err := c.RLock("x", redlatch.ShareReads()).Lock(t.Context()); !errors.Is(err, redlatch.ErrInvalidOption) {
		t.Error(err)
	}
}

// TestRWShareIsLostTogether: all who share a hold are told that it is lost.
func TestRWShareIsLostTogether(t *testing.T) {
	s := rwServer(t)
	c := rwShareOpen(t, s.Addr(), 9*time.Second, 3*time.Second)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	first := rwLock(t, l, t.Context())
	second := rwLock(t, l, redlatch.WithOwner(t.Context(), "named"))
	rwUnlock(t, first)
	third := rwLock(t, l, second.Context())
	s.Do(t, "DEL", "n")
	for _, h := range []redlatch.Hold{second, third} {
		select {
		case <-h.Context().Done():
		case <-time.After(10 * time.Second):
			t.Fatal("not told")
		}
		if err := context.Cause(h.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Error(err)
		}
		if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
			t.Error(err)
		}
	}
	rwUnlock(t, rwLock(t, l, redlatch.WithOwner(t.Context(), "named")))
}
