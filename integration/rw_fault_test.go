package integration

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests of what goes wrong on the way: lost replies, callers that leave, a
// server without memory, keys that are something else.

// TestRWLostReplies: the reply of a command is lost after the script ran: one
// hold, the right count, nothing left behind.
func TestRWLostReplies(t *testing.T) {
	s := rwServer(t)
	proxy := testbed.NewProxy(t, s.Addr())
	c, err := rwOpen(proxy.Addr(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := c.ReadWriteLock("n")
	for name, tc := range map[string]struct {
		lock             redlatch.Locker
		acquire, release *luascript.Script
		suffix           string
	}{
		"read":  {l.ReadLock(), luascript.RWRead, luascript.RWReadRelease, ""},
		"write": {l.WriteLock(), luascript.RWWrite, luascript.RWWriteRelease, ":write"},
	} {
		t.Run(name, func(t *testing.T) {
			trap := proxy.DropReply(testbed.Contains(tc.acquire.SHA))
			h := rwLock(t, tc.lock, t.Context())
			trap.Wait(t)
			field := rwOnlyReader(t, s)
			if got := s.Text(t, "HGET", "n", field); got != "1" || !strings.HasSuffix(field, tc.suffix) {
				t.Errorf("%s: count %q", field, got)
			}
			trap = proxy.DropReply(testbed.Contains(luascript.RWReenter.SHA))
			ctx, cancel := context.WithTimeout(h.Context(), 10*time.Second)
			defer cancel()
			again := rwLock(t, tc.lock, ctx)
			trap.Wait(t)
			if got := s.Text(t, "HGET", "n", field); got != "2" {
				t.Errorf("count %q after a re-entry", got)
			}
			trap = proxy.DropReply(testbed.Contains(luascript.Release.SHA)) // a partial one sets the count
			rwUnlock(t, again)
			trap.Wait(t)
			if got := s.Text(t, "HGET", "n", field); got != "1" {
				t.Errorf("count %q after one of two unlocks", got)
			}
			trap = proxy.DropReply(testbed.Contains(tc.release.SHA))
			rwUnlock(t, h)
			trap.Wait(t)
			rwEmpty(t, s)
		})
	}
}

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

// A release that comes late does not touch the next hold of the same owner.
func TestRWADelayedReleaseDoesNotTouchTheNextHold(t *testing.T) {
	s := rwServer(t)
	proxy := testbed.NewProxy(t, s.Addr())
	c, err := rwOpen(proxy.Addr(), 10*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	l := c.ReadWriteLock("n")
	ctx := redlatch.WithOwner(t.Context(), "job")
	for _, tc := range []struct {
		lock    redlatch.Locker
		release *luascript.Script
	}{{l.ReadLock(), luascript.RWReadRelease}, {l.WriteLock(), luascript.RWWriteRelease}} {
		h := rwLock(t, tc.lock, ctx)
		trap := proxy.CopyRequest(testbed.Contains(tc.release.SHA))
		rwUnlock(t, h)
		h = rwLock(t, tc.lock, ctx)
		if got := trap.Deliver(t); !strings.HasPrefix(got, ":0") {
			t.Errorf("the late release got %q, want 0", got)
		}
		field := rwOnlyReader(t, s)
		if got := s.Text(t, "HGET", "n", field); got != "1" {
			t.Errorf("count %q after a late release of an earlier hold", got)
		}
		rwUnlock(t, h)
	}
}

// Waiters that give up leave no place, at once, not after the skip time.
func TestRWWaitersThatGiveUpLeaveNoPlace(t *testing.T) {
	s := rwServer(t)
	l := rwClient(t, s, 0).ReadWriteLock("n", rwlock.WithSkipAfter(time.Minute))
	for _, tc := range []struct{ holds, waits redlatch.Locker }{
		{l.ReadLock(), l.WriteLock()}, {l.WriteLock(), l.ReadLock()}, {l.WriteLock(), l.WriteLock()},
	} {
		h := rwLock(t, tc.holds, t.Context())
		if _, err := tc.waits.TryLock(t.Context(), 100*time.Millisecond, 0); !errors.Is(err, redlatch.ErrNotAcquired) {
			t.Error(err)
		}
		rwBusy(t, tc.waits, t.Context()) // a single attempt leaves none in the first place
		rwEventually(t, "no place is left", func() bool {
			return s.Int(t, "EXISTS", "redlatch_rw_writers:{n}", "redlatch_rw_marks:{n}", "redlatch_rw_readers:{n}", "redlatch_rw_turn:{n}") == 0
		})
		rwUnlock(t, h)
	}
}

// TestRWCallersThatLeave: waits end at random moments, in both modes; nothing
// is left, and the lock can be taken.
func TestRWCallersThatLeave(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	var wg sync.WaitGroup
	for i := range 4 {
		c := rwClient(t, s, 0)
		for g := range 6 {
			r := rand.New(rand.NewPCG(uint64(i), uint64(g))) // #nosec G404 -- a test
			wg.Go(func() {
				// Holds and places that are left behind would stay for longer than the test waits.
				l := c.ReadWriteLock("n", rwlock.WithSkipAfter(time.Minute))
				for range 60 {
					locker := redlatch.Locker(l.ReadLock())
					if r.IntN(2) == 0 {
						locker = l.WriteLock()
					}
					ctx, cancel := context.WithTimeout(t.Context(), time.Duration(r.IntN(6000))*time.Microsecond)
					h, err := locker.Lock(ctx)
					if err == nil {
						time.Sleep(time.Duration(r.IntN(1000)) * time.Microsecond)
						err = h.Unlock(ctx)
					}
					cancel()
					if err != nil && !waited(err) {
						t.Error(err)
					}
				}
			})
		}
	}
	wg.Wait()
	rwEmpty(t, s)
	rwUnlock(t, rwLock(t, rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), t.Context()))
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

// A key of the name that is no read-write lock is refused and not touched.
func TestRWOtherKeysAreNotTouched(t *testing.T) {
	s := rwServer(t)
	c := rwClient(t, s, 0)
	l := c.ReadWriteLock("n")
	s.Do(t, "SET", "n", "data")
	for _, locker := range []redlatch.Locker{l.ReadLock(), l.WriteLock()} {
		var se *redlatch.ServerError
		if _, err := locker.Lock(t.Context()); !errors.As(err, &se) || se.ErrorType() != "wrongtype" {
			t.Errorf("%v, want WRONGTYPE", err)
		}
	}
	state := func() {
		t.Helper()
		if _, err := l.State(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("State: %v, want ErrInvalidName", err)
		}
	}
	refused := func() {
		t.Helper()
		for _, force := range []func(context.Context) (bool, error){l.ReadLock().ForceUnlock, l.WriteLock().ForceUnlock} {
			if _, err := force(t.Context()); !errors.Is(err, redlatch.ErrInvalidName) {
				t.Errorf("ForceUnlock: %v, want ErrInvalidName", err)
			}
		}
	}
	state()
	refused()
	if got := s.Text(t, "GET", "n"); got != "data" {
		t.Errorf("the data is %q now", got)
	}
	s.Do(t, "DEL", "n")

	// A plain lock of the same name excludes both modes, and stays.
	plain := rwLock(t, c.RLock("n"), t.Context())
	rwBusy(t, l.ReadLock(), t.Context())
	rwBusy(t, l.WriteLock(), t.Context())
	state()
	refused()
	rwUnlock(t, plain)
	s.Do(t, "HSET", "n", "mode", "read", "customer", "42")
	refused()
	if got := s.Hash(t, "HGETALL", "n"); got["customer"] != "42" {
		t.Errorf("the data is %v now", got)
	}
	s.Do(t, "DEL", "n")
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
		case <-time.After(rlPatience):
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
