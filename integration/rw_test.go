package integration

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// rwClient makes a client for the time of a test.
func rwClient(t testing.TB, s *testbed.Server, lease time.Duration) *redlatch.Client {
	t.Helper()
	c, err := rwOpen(s.Addr(), lease)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

func rwOpen(addr string, lease time.Duration) (*redlatch.Client, error) {
	return rwPatient(func() (*redlatch.Client, error) {
		return redlatch.New(redlatch.Config{
			Redis: rueidis.ClientOption{InitAddress: []string{addr}}, LeaseTime: lease,
			Logger: slog.New(slog.NewTextHandler(io.Discard, nil)),
		})
	})
}

// rwPatient opens a client. A short lease makes the limits of a connection short, too: a busy
// machine's server may give its first answer too late for them.
func rwPatient(open func() (*redlatch.Client, error)) (*redlatch.Client, error) {
	for end := time.Now().Add(bed.Patience); ; time.Sleep(2 * time.Millisecond) {
		c, err := open()
		if err == nil || !errors.Is(err, redlatch.ErrUnavailable) || time.Now().After(end) {
			return c, err
		}
	}
}

// rwServer is a server that must be left empty.
func rwServer(t testing.TB) *testbed.Server {
	t.Helper()
	s := testbed.Standalone(t)
	testbed.LeakCheck(t, s, testbed.AllowKeys("redisson_lock_token", "redlatch_void"))
	// A trap for EVALSHA shall catch a command that runs, not one that a server
	// answers with NOSCRIPT.
	for _, script := range []*luascript.Script{
		luascript.RWRead, luascript.RWWrite, luascript.RWReenter, luascript.RWRenew, luascript.RWRefresh,
		luascript.RWReadRelease, luascript.RWWriteRelease,
	} {
		s.Do(t, "SCRIPT", "LOAD", script.Body)
	}
	return s
}

func rwLock(t testing.TB, l redlatch.Locker, ctx context.Context, opts ...redlatch.AcquireOption) redlatch.Hold { //nolint:revive // the test first
	t.Helper()
	h, err := l.Lock(ctx, opts...)
	if err != nil {
		t.Fatalf("lock: %v", err)
	}
	return h
}

func rwUnlock(t testing.TB, holds ...redlatch.Hold) {
	t.Helper()
	for _, h := range holds {
		if err := h.Unlock(context.Background()); err != nil {
			t.Fatalf("unlock: %v", err)
		}
	}
}

func rwBusy(t testing.TB, l redlatch.Locker, ctx context.Context) { //nolint:revive // the test first
	t.Helper()
	h, err := l.TryLock(ctx, 0, 0)
	if err == nil {
		_ = h.Unlock(ctx)
		t.Fatal("acquired, want busy")
	}
	if !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Fatalf("%v, want ErrNotAcquired", err)
	}
}

// rwAsync locks in the background; the channel gets the hold.
func rwAsync(t testing.TB, l redlatch.Locker, ctx context.Context) <-chan redlatch.Hold { //nolint:revive // the test first
	t.Helper()
	ch := make(chan redlatch.Hold, 1)
	go func() {
		h, err := l.Lock(ctx)
		if err != nil && ctx.Err() == nil { // else the test has ended
			t.Errorf("lock in the background: %v", err)
		}
		if err != nil {
			close(ch)
			return
		}
		ch <- h
	}()
	return ch
}

// rwGot waits for a hold that must come within the time given. It tells one that comes later
// from one that does not.
func rwGot(t testing.TB, ch <-chan redlatch.Hold, within time.Duration) redlatch.Hold {
	t.Helper()
	select {
	case h, ok := <-ch:
		if !ok {
			t.FailNow()
		}
		return h
	case <-time.After(within):
	}
	began := time.Now()
	select {
	case <-ch:
		t.Fatalf("acquired %v later than within %v", time.Since(began), within)
	case <-time.After(bed.Patience):
		t.Fatalf("not acquired within %v, nor %v later", within, bed.Patience)
	}
	return nil
}

// rwEventually polls what the server shows until it is so.
func rwEventually(t testing.TB, what string, cond func() bool) {
	t.Helper()
	deadline := time.Now().Add(10 * time.Second)
	for !cond() {
		if time.Now().After(deadline) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

func rwWaiting(t testing.TB, s *testbed.Server, kind string, n int64) {
	t.Helper()
	rwEventually(t, kind+" wait", func() bool { return s.Int(t, "ZCARD", "redlatch_rw_"+kind+":{n}") == n })
}

// rwSpawn starts a process whose holds have this lease.
func rwSpawn(t *testing.T, s *testbed.Server, lease time.Duration) *bed.Worker {
	t.Helper()
	return bed.Spawn(t, bed.Setup{Addrs: []string{s.Addr()}, Lease: lease})
}

// rwAsk asks for the lock in such a process.
func rwAsk(mode string, skip time.Duration) bed.Command {
	return bed.Command{Do: "lock", Kind: mode, Name: "n", Skip: skip}
}

// Readers share the lock, and a writer excludes readers and writers.
func TestRWReadersShareAndAWriterExcludes(t *testing.T) {
	s := rwServer(t)
	c1, c2 := rwClient(t, s, 5*time.Second), rwClient(t, s, 5*time.Second)
	ctx := t.Context()
	l1, l2 := c1.ReadWriteLock("n"), c2.ReadWriteLock("n")

	r1, r2 := rwLock(t, l1.ReadLock(), ctx), rwLock(t, l2.ReadLock(), ctx)
	rwBusy(t, l1.WriteLock(), ctx)
	rwBusy(t, l2.WriteLock(), ctx)
	if got := s.Text(t, "HGET", "n", "mode"); got != "read" {
		t.Errorf("mode %q", got)
	}
	rwUnlock(t, r1)
	rwBusy(t, l2.WriteLock(), ctx)
	rwUnlock(t, r2)
	w := rwLock(t, l2.WriteLock(), ctx)
	rwBusy(t, l1.ReadLock(), ctx)
	rwBusy(t, l2.ReadLock(), ctx)
	rwBusy(t, l1.WriteLock(), ctx)
	rwUnlock(t, w)
}

// Re-entries are counted per mode, and raise the lease to the longest.
func TestRWReentryIsCountedPerMode(t *testing.T) {
	s := rwServer(t)
	c := rwClient(t, s, 10*time.Second)
	l := c.ReadWriteLock("n")
	w1 := rwLock(t, l.WriteLock(), t.Context())
	w2 := rwLock(t, l.WriteLock(), w1.Context(), redlatch.WithLease(time.Minute))
	r1 := rwLock(t, l.ReadLock(), w2.Context())
	r2 := rwLock(t, l.ReadLock(), w2.Context())
	st, err := l.State(t.Context())
	if err != nil || st.Mode != redlatch.ModeWrite || len(st.Owners) != 2 {
		t.Fatalf("%+v, %v", st, err)
	}
	for _, o := range st.Owners {
		if o.Count != 2 {
			t.Errorf("%+v: want 2 holds", o)
		}
	}
	// Re-entry raises to the longer lease; it does not add up.
	if ttl := s.Int(t, "PTTL", "n"); ttl < 40000 || ttl > 60000 {
		t.Errorf("TTL %d ms, want that of the longer lease", ttl)
	}
	rwUnlock(t, w2)
	// An inner unlock lowers nothing; the lock's end is that of those who are left when
	// one leaves wholly.
	if ttl := s.Int(t, "PTTL", "n"); ttl < 30000 || ttl > 60000 {
		t.Errorf("TTL %d ms after an inner unlock, want what was asked for", ttl)
	}
	rwBusy(t, l.ReadLock(), t.Context())
	rwUnlock(t, w1)
	if ttl := s.Int(t, "PTTL", "n"); ttl > 10000 {
		t.Errorf("TTL %d ms, want that of the holds left", ttl)
	}
	// downgraded
	r3 := rwLock(t, l.ReadLock(), t.Context())
	rwBusy(t, l.WriteLock(), t.Context())
	rwUnlock(t, r3, r1)
	rwBusy(t, l.WriteLock(), t.Context())
	rwUnlock(t, r2)
	if n := s.Int(t, "DBSIZE"); n != 0 {
		t.Errorf("%d keys left: %v", n, s.List(t, "KEYS", "*"))
	}
}

// A reader that asks for the write lock is refused at once, with ErrUpgrade, whoever else waits.
func TestRWUpgradeIsRefusedAtOnce(t *testing.T) {
	s := rwServer(t)
	c := rwClient(t, s, 0)
	l := c.ReadWriteLock("n")
	r := rwLock(t, l.ReadLock(), t.Context())
	start := time.Now()
	for _, try := range []func() error{
		func() error { _, err := l.WriteLock().Lock(r.Context()); return err },
		func() error { _, err := l.WriteLock().TryLock(r.Context(), time.Hour, 0); return err },
		func() error { _, err := l.WriteLock().TryLock(r.Context(), 0, 0); return err },
	} {
		if err := try(); !errors.Is(err, redlatch.ErrUpgrade) {
			t.Errorf("%v, want ErrUpgrade", err)
		}
	}
	// Also while another writer of this process stands in line.
	other := rwAsync(t, l.WriteLock(), t.Context())
	rwWaiting(t, s, "writers", 1)
	rwQuiet(t, s)
	behind := time.Now()
	if _, err := l.WriteLock().TryLock(r.Context(), 30*time.Second, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Errorf("behind a writer: %v, want ErrUpgrade", err)
	}
	if took := time.Since(behind); took > 5*time.Second {
		t.Errorf("behind a writer ErrUpgrade came after %v", took)
	}
	// Also when the owner's read comes while its write waits.
	octx := redlatch.WithOwner(t.Context(), "job")
	errs := make(chan error, 1)
	if err := r.Unlock(t.Context()); err != nil {
		t.Fatal(err)
	}
	w := rwGot(t, other, 5*time.Second)
	go func() { _, err := l.WriteLock().Lock(octx); errs <- err }()
	rwWaiting(t, s, "writers", 1)
	blocked := rwAsync(t, l.ReadLock(), octx)
	rwWaiting(t, s, "readers", 1)
	rwUnlock(t, w) // the readers' turn
	rr := rwGot(t, blocked, 5*time.Second)
	select {
	case err := <-errs:
		if !errors.Is(err, redlatch.ErrUpgrade) {
			t.Errorf("a writer whose owner reads now: %v, want ErrUpgrade", err)
		}
	case <-time.After(10 * time.Second):
		t.Error("a writer whose owner reads now waits on")
	}
	rwUnlock(t, rr)
	if took := time.Since(start); took > 30*time.Second {
		t.Errorf("took %v", took)
	}
	if !strings.Contains(redlatch.ErrUpgrade.Error(), "upgrade") {
		t.Error("the error does not say what is wrong")
	}
}

// A writer that reads and unlocks the write lock lets readers in at that moment.
func TestRWDowngradeLetsReadersInAtThatMoment(t *testing.T) {
	s := rwServer(t)
	c1, c2 := rwClient(t, s, 30*time.Second), rwClient(t, s, 30*time.Second)
	l1, l2 := c1.ReadWriteLock("n"), c2.ReadWriteLock("n", rwTold())
	w := rwLock(t, l1.WriteLock(), t.Context())
	r := rwLock(t, l1.ReadLock(), w.Context())
	blocked := rwAsync(t, l2.ReadLock(), t.Context())
	rwWaiting(t, s, "readers", 1)
	start := time.Now()
	rwUnlock(t, w)
	got := rwGot(t, blocked, 5*time.Second)
	if took := time.Since(start); took > rwSoon {
		t.Errorf("the blocked reader entered %v after the downgrade", took)
	}
	rwBusy(t, l2.WriteLock(), t.Context())
	rwUnlock(t, got, r)
}
