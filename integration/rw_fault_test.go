package integration

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests of what goes wrong on the way: lost replies, callers that leave, a
// server without memory, keys that are something else.

// TestRWLostRefusal: the answer that refused a reader is lost, and it enters with
// its next try: its place must not keep writers waiting.
func TestRWLostRefusal(t *testing.T) {
	s := rwServer(t)
	proxy := testbed.NewProxy(t, s.Addr())
	c, err := rwOpen(proxy.Addr(), 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := rwClient(t, s, 0).ReadWriteLock("n")
	w := rwLock(t, l.WriteLock(), t.Context())
	trap := proxy.DropReply(testbed.Contains(luascript.RWRead.SHA))
	got := rwAsync(t, c.ReadWriteLock("n", rwlock.WithSkipAfter(time.Minute)).ReadLock(), t.Context())
	trap.Wait(t)
	proxy.Refuse() // it can't ask again before the unlock
	rwUnlock(t, w)
	proxy.Admit(t)
	rwUnlock(t, rwGot(t, got, 10*time.Second))
	if h, err := l.WriteLock().TryLock(t.Context(), 0, 0); err != nil {
		t.Errorf("a place was left behind: %v", err)
	} else {
		rwUnlock(t, h)
	}
}

// rwEmpty waits until nothing is left but counters and marks of late commands.
func rwEmpty(t testing.TB, s *testbed.Server) {
	t.Helper()
	rwEventually(t, "nothing is left", func() bool {
		for _, key := range s.List(t, "KEYS", "*") {
			if !strings.HasPrefix(key, "redisson_lock_token") && !strings.HasPrefix(key, "redlatch_void") {
				return false
			}
		}
		return true
	})
}

// An unlock works when the server refuses everything that takes memory.
func TestRWUnlockWorksWithoutMemory(t *testing.T) {
	s := rwServer(t)
	c := rwClient(t, s, 0)
	l := c.ReadWriteLock("n")
	job := redlatch.WithOwner(t.Context(), "job")
	full := func(on bool) {
		limit := "0"
		if on {
			limit = "1"
		}
		s.Do(t, "CONFIG", "SET", "maxmemory", limit)
	}
	w1, w2 := rwLock(t, l.WriteLock(), job), rwLock(t, l.WriteLock(), job)
	r1, r2 := rwLock(t, l.ReadLock(), job), rwLock(t, l.ReadLock(), job)
	full(true)
	if _, err := l.ReadLock().TryLock(t.Context(), 0, 0); err == nil {
		t.Error("a read lock beside a writer")
	}
	rwUnlock(t, w2, r2, w1)
	if got := s.Text(t, "HGET", "n", "mode"); got != "read" {
		t.Errorf("mode %q after a downgrade without memory", got)
	}
	if ttl := s.Int(t, "PTTL", "n"); ttl < 0 {
		t.Errorf("TTL %d", ttl)
	}
	rwUnlock(t, r1)
	rwEmpty(t, s)
	for _, locker := range []redlatch.Locker{l.ReadLock(), l.WriteLock()} {
		var se *redlatch.ServerError
		if _, err := locker.TryLock(t.Context(), 0, 0); !errors.As(err, &se) {
			t.Errorf("%v, want the server's refusal", err)
		}
		rwEmpty(t, s)
	}
	full(false)
	rwUnlock(t, rwLock(t, l.WriteLock(), t.Context()))
}

// A plain lock of the same name excludes both modes, and is no state of a read-write lock.
func TestRWPlainLockOfTheNameExcludes(t *testing.T) {
	s := rwServer(t)
	c := rwClient(t, s, 0)
	l := c.ReadWriteLock("n")
	plain := rwLock(t, c.RLock("n"), t.Context())
	rwBusy(t, l.ReadLock(), t.Context())
	rwBusy(t, l.WriteLock(), t.Context())
	if _, err := l.State(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Errorf("State: %v, want ErrInvalidName", err)
	}
	rwUnlock(t, plain)
}

// A forced unlock ends its own mode only: the next ones enter at once and the holder hears of it
// from a check, both before a lease could end.
func TestRWForceUnlockEndsItsOwnModeOnly(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	const (
		lease = 10 * time.Second
		soon  = lease * 3 / 5 // a hold was renewed within the last third of its lease
	)
	c := rwClient(t, s, lease)
	l, other := c.ReadWriteLock("n", rwTold()), rwClient(t, s, lease).ReadWriteLock("n", rwTold())
	force := func(f func(context.Context) (bool, error), want bool) {
		t.Helper()
		if got, err := f(t.Context()); err != nil || got != want {
			t.Errorf("ForceUnlock: %t, %v; want %t", got, err, want)
		}
	}
	lost := func(h redlatch.Hold) {
		t.Helper()
		select {
		case <-h.Context().Done():
		case <-time.After(bed.Patience):
			t.Fatal("the holder did not notice")
		}
		err := h.Unlock(t.Context())
		var detail *redlatch.LeaseLostError
		if !errors.Is(err, redlatch.ErrLeaseLost) || !errors.As(err, &detail) || detail.Reason != redlatch.LossGone {
			t.Errorf("Unlock: %v, want a loss that a check has found", err)
		}
	}
	force(l.ReadLock().ForceUnlock, false)
	force(l.WriteLock().ForceUnlock, false)

	r1, r2 := rwLock(t, l.ReadLock(), t.Context()), rwLock(t, l.ReadLock(), t.Context())
	force(l.WriteLock().ForceUnlock, false)
	next := rwAsync(t, other.WriteLock(), t.Context())
	rwWaiting(t, s, "writers", 1)
	force(l.ReadLock().ForceUnlock, true)
	w := rwGot(t, next, soon)
	lost(r1)
	lost(r2)
	force(l.ReadLock().ForceUnlock, false)
	reader := rwAsync(t, l.ReadLock(), t.Context())
	rwWaiting(t, s, "readers", 1)
	force(l.WriteLock().ForceUnlock, true)
	r := rwGot(t, reader, soon)
	lost(w)
	rwUnlock(t, r)

	// A writer that also reads: each mode by itself.
	job := redlatch.WithOwner(t.Context(), "job")
	w, r = rwLock(t, l.WriteLock(), job), rwLock(t, l.ReadLock(), job)
	force(l.WriteLock().ForceUnlock, true)
	rwUnlock(t, rwLock(t, l.ReadLock(), t.Context()))
	rwBusy(t, l.WriteLock(), t.Context())
	lost(w)
	rwUnlock(t, r)
	w, r = rwLock(t, l.WriteLock(), job), rwLock(t, l.ReadLock(), job)
	force(l.ReadLock().ForceUnlock, true)
	rwBusy(t, l.ReadLock(), t.Context())
	lost(r)
	rwUnlock(t, w)
	rwEmpty(t, s)
}

// State shows each holder, and the writers that wait.
func TestRWStateShowsHoldersAndWaitingWriters(t *testing.T) {
	s := rwServer(t)
	a, b := rwClient(t, s, time.Minute), rwClient(t, s, 30*time.Second)
	la, lb := a.ReadWriteLock("n", redlatch.Fenced(), rwTold()), b.ReadWriteLock("n", redlatch.Fenced(), rwTold())
	state := func() redlatch.State {
		t.Helper()
		st, err := la.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	if st := state(); st.Held || st.Mode != redlatch.ModeNone || st.QueueLength != 0 || st.Name != "n" {
		t.Errorf("free: %+v", st)
	}
	r1 := rwLock(t, la.ReadLock(), t.Context())
	r2 := rwLock(t, lb.ReadLock(), t.Context())
	r3 := rwLock(t, lb.ReadLock(), r2.Context())
	first := rwAsync(t, la.WriteLock(), t.Context())
	rwWaiting(t, s, "writers", 1)
	second := rwAsync(t, lb.WriteLock(), t.Context())
	rwWaiting(t, s, "writers", 2)
	st := state()
	if !st.Held || st.Mode != redlatch.ModeRead || len(st.Owners) != 2 || st.QueueLength != 2 || len(st.Queue) != 2 {
		t.Fatalf("%+v", st)
	}
	for _, o := range st.Owners {
		count, lease := 1, time.Minute
		if strings.HasPrefix(o.Owner, b.ID()) {
			count, lease = 2, 30*time.Second
		}
		if o.Mode != redlatch.ModeRead || o.Count != count || o.Remaining > lease || o.Remaining < lease-20*time.Second {
			t.Errorf("%+v: want %d holds and at most %v", o, count, lease)
		}
	}
	if !strings.HasPrefix(st.Queue[0].Owner, a.ID()) || !strings.HasPrefix(st.Queue[1].Owner, b.ID()) {
		t.Errorf("queue %+v: not in the order of arrival", st.Queue)
	}
	rwUnlock(t, r1, r2, r3)
	for range 2 {
		var w redlatch.Hold
		select {
		case w = <-first:
			first = nil
		case w = <-second:
			second = nil
		case <-time.After(rwSoon):
			t.Fatal("no writer")
		}
		if st := state(); st.Mode != redlatch.ModeWrite || len(st.Owners) != 1 || st.Owners[0].Mode != redlatch.ModeWrite ||
			st.Token != w.Token() || strings.Contains(st.Owners[0].Owner, ":write") {
			t.Errorf("a writer with token %d: %+v", w.Token(), st)
		}
		rwUnlock(t, w)
	}
}

// TestRWStateCountsReadersThatWait: whoever waits on the server counts, readers also in their
// turn, as for Client.Inspect; those whose places have ended do not, and no number is cut.
func TestRWStateCountsReadersThatWait(t *testing.T) {
	s := rwServer(t)
	a, b := rwClient(t, s, 10*time.Second), rwClient(t, s, 10*time.Second)
	l := a.ReadWriteLock("n", redlatch.Fenced())
	expect := func(what string, length, listed int) {
		t.Helper()
		st, err := l.State(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if st.QueueLength != length || len(st.Queue) != listed {
			t.Errorf("%s: %d wait, %d in the list; want %d and %d", what, st.QueueLength, len(st.Queue), length, listed)
		}
		if in := inLook(t, b, "n"); in.QueueLength != length {
			t.Errorf("%s: Inspect says %d, want %d", what, in.QueueLength, length)
		}
	}
	w := rwLock(t, l.WriteLock(), t.Context())
	expect("a writer alone", 0, 0)
	var got []<-chan redlatch.Hold
	for _, c := range []*redlatch.Client{a, b, b} {
		got = append(got, rwAsync(t, c.ReadWriteLock("n").ReadLock(), t.Context()))
	}
	rwWaiting(t, s, "readers", 3)
	expect("three readers", 3, 0)
	got = append(got, rwAsync(t, b.ReadWriteLock("n").WriteLock(), t.Context()))
	rwWaiting(t, s, "writers", 1)
	expect("three readers and a writer", 4, 1)
	rwUnlock(t, w)
	for i := range got {
		rwUnlock(t, rwGot(t, got[i], 10*time.Second))
	}
	expect("all served", 0, 0)

	now := s.List(t, "TIME")
	at, err := strconv.Atoi(now[0])
	if err != nil {
		t.Fatal(err)
	}
	late, over := strconv.Itoa((at+600)*1000), strconv.Itoa((at-1)*1000)
	put := func(key string, list ...string) {
		s.Do(t, append([]string{"ZADD", "redlatch_rw_" + key + ":{n}"}, list...)...)
		s.Do(t, "PEXPIRE", "redlatch_rw_"+key+":{n}", "60000")
	}
	put("turn", late, "c:r1", late, "c:r2", over, "c:r3")
	put("readers", late, "c:r4", over, "c:r5")
	expect("readers, some in their turn", 3, 0)
	var marks, writers []string
	for i := range 1200 {
		marks = append(marks, late, "c:w"+strconv.Itoa(i))
		writers = append(writers, strconv.Itoa(i), "c:w"+strconv.Itoa(i))
	}
	put("marks", append(marks, over, "c:w1200")...)
	put("writers", append(writers, "1200", "c:w1200")...)
	expect("a long queue", 1203, 1000)
	for _, key := range []string{"turn", "readers", "marks", "writers"} {
		s.Do(t, "DEL", "redlatch_rw_"+key+":{n}")
	}
	rwEmpty(t, s)
}

// Writers get new tokens, readers see the last writer's.
func TestRWTokens(t *testing.T) {
	s := rwServer(t)
	c := rwClient(t, s, 5*time.Second)
	l := c.ReadWriteLock("n", redlatch.Fenced())
	r := rwLock(t, l.ReadLock(), t.Context())
	if r.Token() != 0 {
		t.Errorf("a reader before any writer: token %d", r.Token())
	}
	rwUnlock(t, r)
	var last uint64
	for range 5 {
		w := rwLock(t, l.WriteLock(), t.Context())
		if w.Token() <= last {
			t.Errorf("token %d after %d", w.Token(), last)
		}
		last = w.Token()
		again := rwLock(t, l.WriteLock(), w.Context())
		in := rwLock(t, l.ReadLock(), w.Context())
		rwUnlock(t, again, w)
		out := rwLock(t, rwClient(t, s, 5*time.Second).ReadWriteLock("n", redlatch.Fenced()).ReadLock(), t.Context())
		if again.Token() != last || in.Token() != last || out.Token() != last {
			t.Errorf("tokens %d %d %d, want %d", again.Token(), in.Token(), out.Token(), last)
		}
		st, err := l.State(t.Context())
		if err != nil || st.Token != last {
			t.Errorf("%+v, %v", st, err)
		}
		rwUnlock(t, in, out)
	}
	if plain := c.ReadWriteLock("n").WriteLock(); true {
		w := rwLock(t, plain, t.Context())
		if w.Token() != 0 {
			t.Errorf("token %d, not asked for", w.Token())
		}
		rwUnlock(t, w)
	}
}

// Options that can't be meant are errors of the first call.
func TestRWBadOptions(t *testing.T) {
	s := rwServer(t)
	c := rwClient(t, s, 5*time.Second)
	for _, d := range []time.Duration{0, -1, time.Millisecond} {
		l := c.ReadWriteLock("n", rwlock.WithSkipAfter(d))
		if _, err := l.ReadLock().Lock(t.Context()); !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("skip %v: %v", d, err)
		}
		if _, err := l.WriteLock().TryLock(t.Context(), 0, 0); !errors.Is(err, redlatch.ErrInvalidOption) {
			t.Errorf("skip %v: %v", d, err)
		}
	}
	if _, err := c.ReadWriteLock("").ReadLock().Lock(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
		t.Error(err)
	}
}
