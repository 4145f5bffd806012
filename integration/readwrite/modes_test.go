package readwrite

import (
	"context"
	"errors"
	"maps"
	"slices"
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

// Re-entries are counted per mode, and what is left of a writer that reads is a reader.
func TestReentryIsCountedPerMode(t *testing.T) {
	s := bed.Loaded(t)
	l := client(t, s, 10*time.Second).ReadWriteLock("n")
	job := redlatch.WithOwner(t.Context(), "job")
	w1, w2 := bed.Lock(t, job, l.WriteLock()), bed.Lock(t, job, l.WriteLock(), redlatch.WithLease(time.Minute))
	r1, r2 := bed.Lock(t, job, l.ReadLock()), bed.Lock(t, job, l.ReadLock())
	st, err := l.State(t.Context())
	if err != nil || st.Mode != redlatch.ModeWrite || len(st.Holders) != 2 || st.Holders[0].Count != 2 || st.Holders[1].Count != 2 {
		t.Fatalf("%+v, %v; want 2 holds of each mode", st, err)
	}
	bed.Unlock(t, w2)
	busy(t, t.Context(), l.ReadLock())
	bed.Unlock(t, w1)
	testbed.AtMost(t, s.Int(t, "PTTL", "n"), 10000, "TTL, where that of the holds left is wanted")
	r3 := bed.Lock(t, t.Context(), l.ReadLock())
	for _, r := range []redlatch.Hold{r3, r1, r2} {
		busy(t, t.Context(), l.WriteLock())
		bed.Unlock(t, r)
	}
	empty(t, s)
}

// A writer reads with its first attempt, also where it would share a reader's hold, alone and with other locks.
func TestAWriterReadsAtOnce(t *testing.T) {
	s := bed.Loaded(t)
	c := client(t, s, 30*time.Second)
	for _, opts := range [][]redlatch.Option{nil, {redlatch.ShareReads()}} {
		l := c.ReadWriteLock("n", opts...)
		w := bed.Lock(t, t.Context(), l.WriteLock())
		for _, read := range []redlatch.Locker{l.ReadLock(), redlatch.MultiLock(l.ReadLock(), c.RLock("b"))} {
			r, err := read.TryLock(w.Context(), 0, 0)
			if err != nil {
				t.Fatalf("options %d: %v", len(opts), err)
			}
			bed.Unlock(t, r)
		}
		bed.Unlock(t, w)
	}
	empty(t, s)
}

// A writer that reads and unlocks the write lock lets readers in at that moment.
func TestDowngradeLetsReadersInAtThatMoment(t *testing.T) {
	s := bed.Loaded(t)
	c1, c2 := client(t, s, 30*time.Second), client(t, s, 30*time.Second)
	l1, l2 := c1.ReadWriteLock("n"), c2.ReadWriteLock("n", told())
	w := bed.Lock(t, t.Context(), l1.WriteLock())
	r := bed.Lock(t, w.Context(), l1.ReadLock())
	blocked := bed.Async(t.Context(), l2.ReadLock())
	waiting(t, s, "readers", 1)
	bed.Unlock(t, w)
	got := bed.HoldWithin(t, soon, blocked)
	busy(t, t.Context(), l2.WriteLock())
	bed.Unlock(t, got, r)
}

// The answer that refused a reader is lost, and it enters with
// its next try: its place must not keep writers waiting.
func TestLostRefusal(t *testing.T) {
	s := bed.Loaded(t)
	c, proxy := proxied(t, s, 0, 0)
	l := client(t, s, 0).ReadWriteLock("n")
	w := bed.Lock(t, t.Context(), l.WriteLock())
	trap := proxy.DropReply(testbed.Contains(luascript.RWRead.SHA))
	got := bed.Async(t.Context(), c.ReadWriteLock("n", rwlock.WithSkipAfter(time.Minute)).ReadLock())
	trap.Wait(t)
	proxy.Refuse() // it can't ask again before the unlock
	bed.Unlock(t, w)
	proxy.Admit(t)
	bed.Unlock(t, bed.HoldWithin(t, 10*time.Second, got))
	h, err := l.WriteLock().TryLock(t.Context(), 0, 0) // no place was left behind
	testbed.Must(t, err)
	bed.Unlock(t, h)
}

// State shows each holder, and the writers that wait.
func TestStateShowsHoldersAndWaitingWriters(t *testing.T) {
	s := bed.Loaded(t)
	a, b := client(t, s, time.Minute), client(t, s, 30*time.Second)
	la, lb := a.ReadWriteLock("n", redlatch.Fenced(), told()), b.ReadWriteLock("n", redlatch.Fenced(), told())
	state := func(mode redlatch.Mode, holders int, queue ...*redlatch.Client) redlatch.State {
		t.Helper()
		st, err := la.State(t.Context())
		if err != nil || st.Held != (holders > 0) || st.Mode != mode || len(st.Holders) != holders ||
			st.QueueLength != len(queue) || len(st.Queue) != len(queue) {
			t.Fatalf("%+v, %v", st, err)
		}
		for i, o := range st.Queue {
			if !strings.HasPrefix(o.Owner, queue[i].ID()) {
				t.Errorf("queue %+v: not in the order of arrival", st.Queue)
			}
		}
		return st
	}
	state(redlatch.ModeNone, 0)
	r1, r2 := bed.Lock(t, t.Context(), la.ReadLock()), bed.Lock(t, t.Context(), lb.ReadLock())
	r3 := bed.Lock(t, r2.Context(), lb.ReadLock())
	first := bed.Async(t.Context(), la.WriteLock())
	waiting(t, s, "writers", 1)
	second := bed.Async(t.Context(), lb.WriteLock())
	waiting(t, s, "writers", 2)
	listening(t, s, 2) // who can't be called yet loses its turn
	for _, o := range state(redlatch.ModeRead, 2, a, b).Holders {
		count, lease := 1, time.Minute
		if strings.HasPrefix(o.Owner, b.ID()) {
			count, lease = 2, 30*time.Second
		}
		if o.Mode != redlatch.ModeRead || o.Count != count || o.Remaining > lease || o.Remaining < lease-20*time.Second {
			t.Errorf("%+v: want %d holds and at most %v", o, count, lease)
		}
	}
	bed.Unlock(t, r1, r2, r3)
	for i, from := range []<-chan bed.Attempt{first, second} {
		w := bed.HoldWithin(t, soon, from)
		st := state(redlatch.ModeWrite, 1, []*redlatch.Client{b}[i:]...)
		if h := st.Holders[0]; h.Mode != redlatch.ModeWrite || st.Token != w.Token() || strings.Contains(h.Owner, ":write") {
			t.Errorf("a writer with token %d: %+v", w.Token(), st)
		}
		bed.Unlock(t, w)
	}
}

// Whoever waits on the server counts, readers also in their
// turn, as for Client.Inspect; those whose places have ended do not, and no number is cut.
func TestStateCountsReadersThatWait(t *testing.T) {
	s := bed.Loaded(t)
	a, b := client(t, s, 10*time.Second), client(t, s, 10*time.Second)
	l := a.ReadWriteLock("n", redlatch.Fenced())
	expect := func(what string, length, listed int) {
		t.Helper()
		st, err := l.State(t.Context())
		in, ierr := b.Inspect(t.Context(), "n")
		if err != nil || ierr != nil || st.QueueLength != length || len(st.Queue) != listed || in.QueueLength != length {
			t.Errorf("%s: %d wait, %d in the list, %d as Inspect says; want %d and %d; %v, %v",
				what, st.QueueLength, len(st.Queue), in.QueueLength, length, listed, err, ierr)
		}
	}
	w := bed.Lock(t, t.Context(), l.WriteLock())
	expect("a writer alone", 0, 0)
	var got []<-chan bed.Attempt
	for _, c := range []*redlatch.Client{a, b, b} {
		got = append(got, bed.Async(t.Context(), c.ReadWriteLock("n").ReadLock()))
	}
	waiting(t, s, "readers", 3)
	expect("three readers", 3, 0)
	got = append(got, bed.Async(t.Context(), b.ReadWriteLock("n").WriteLock()))
	waiting(t, s, "writers", 1)
	expect("three readers and a writer", 4, 1)
	bed.Unlock(t, w)
	for _, from := range got {
		bed.Unlock(t, bed.Hold(t, from))
	}
	expect("all served", 0, 0)

	at := s.Int(t, "EVAL", "return redis.call('TIME')[1]", "0")
	late, over := strconv.FormatInt((at+600)*1000, 10), strconv.FormatInt((at-1)*1000, 10)
	put := func(key string, list ...string) {
		s.Do(t, append([]string{"ZADD", "redlatch_rw_" + key + ":{n}"}, list...)...)
	}
	put("turn", late, "c:r1", late, "c:r2", over, "c:r3")
	put("readers", late, "c:r4", over, "c:r5")
	expect("readers, some in their turn", 3, 0)
	for i := range 1200 {
		put("marks", late, "c:w"+strconv.Itoa(i))
		put("writers", strconv.Itoa(i), "c:w"+strconv.Itoa(i))
	}
	put("marks", over, "c:w1200")
	put("writers", "1200", "c:w1200")
	expect("a long queue", 1203, 1000)
	s.Do(t, "FLUSHALL")
}

// A reader enters at its next refresh, not when the lease of the writer that kept it out would have
// ended, when that one has gone without a message and another reader is inside.
func TestWriterGoneWithoutAMessage(t *testing.T) {
	for _, how := range []string{"released by one key while a cluster moved the slot", "deleted by hand"} {
		t.Run(how, func(t *testing.T) {
			s := bed.Loaded(t)
			w := bed.Lock(t, t.Context(), client(t, s, 0).ReadWriteLock("n").WriteLock())
			l := client(t, s, 0).ReadWriteLock("n")
			waits := bed.Async(t.Context(), client(t, s, 0).ReadWriteLock("n").ReadLock())
			waiting(t, s, "readers", 1)
			gone := []string{"DEL", "n"}
			if how != "deleted by hand" {
				gone = []string{"EVAL", luascript.RWFree.Body, "1", "n", s.List(t, "ZRANGE", leases, "0", "0")[0]}
			}
			testbed.Equal(t, s.Int(t, gone...), 1, "holds that have gone")
			r := bed.Lock(t, t.Context(), l.ReadLock())
			if err := w.Unlock(t.Context()); err == nil {
				t.Error("an Unlock of what was gone reports success")
			}
			bed.Unlock(t, bed.HoldWithin(t, 5*time.Second, waits), r)
		})
	}
}

// What a read unlock costs does not grow with the number of readers: what the script calls is the
// same, for the reader that ends last and for the others.
func TestCostOfAReadUnlock(t *testing.T) {
	const sample = 50
	s := bed.Loaded(t)
	l := client(t, s, time.Hour).ReadWriteLock("n").ReadLock()
	var most int64
	for _, readers := range []int{1, 100, 1000} {
		holds := make([]redlatch.Hold, 0, readers+2*sample)
		for range cap(holds) {
			holds = append(holds, bed.Lock(t, t.Context(), l))
		}
		firsts, stay, lasts := holds[:sample], holds[sample:sample+readers], holds[sample+readers:]
		slices.Reverse(lasts)
		for name, part := range map[string][]redlatch.Hold{"first to end": firsts, "last to end": lasts} {
			before := s.CommandStats(t)
			bed.Unlock(t, part...)
			diff := s.CommandStats(t).Sub(before)
			calls := -diff.Calls["evalsha"] - diff.Calls["ping"] // each connection sends one a second
			for n := range maps.Values(diff.Calls) {
				calls += n
			}
			t.Logf("%d readers stay, %s: %v of server time and %d calls per unlock", readers, name, diff.Time["evalsha"]/sample, calls/sample)
			if readers == 1 {
				most = max(most, calls)
			}
			if diff.Calls["evalsha"] != sample || calls > most+sample/10 {
				t.Errorf("%d readers: %d commands and %d calls for %d unlocks, with one reader %d", readers, diff.Calls["evalsha"], calls, sample, most)
			}
			for _, scan := range []string{"hgetall", "hkeys", "keys", "scan", "hscan"} {
				testbed.Equal(t, diff.Calls[scan], 0, "calls of", scan)
			}
		}
		bed.Unlock(t, stay...)
		empty(t, s)
	}
}

// A reader that asks for the write lock is refused at once, with ErrUpgrade, whoever else waits.
func TestUpgradeIsRefusedAtOnce(t *testing.T) {
	s := bed.Loaded(t)
	l := client(t, s, 0).ReadWriteLock("n")
	r := bed.Lock(t, t.Context(), l.ReadLock())
	refused := func(when string) {
		t.Helper()
		for _, wait := range []time.Duration{0, time.Hour} {
			began := time.Now()
			if _, err := l.WriteLock().TryLock(r.Context(), wait, 0); !errors.Is(err, redlatch.ErrUpgrade) || time.Since(began) > soon {
				t.Errorf("%s: %v after %v, want ErrUpgrade at once", when, err, time.Since(began))
			}
		}
	}
	refused("alone")
	other := bed.Async(t.Context(), l.WriteLock())
	waiting(t, s, "writers", 1)
	s.AwaitQuiet(t)
	refused("behind another writer of this process")
	bed.Unlock(t, r)

	// Also when the owner's read comes while its write waits.
	w, job := bed.Hold(t, other), redlatch.WithOwner(t.Context(), "job")
	upgrade := bed.Async(job, l.WriteLock())
	waiting(t, s, "writers", 1)
	read := bed.Async(job, l.ReadLock())
	waiting(t, s, "readers", 1)
	bed.Unlock(t, w) // the readers' turn
	h := bed.Hold(t, read)
	bed.Want(t, bed.Get(t, upgrade).Err, redlatch.ErrUpgrade) // its owner reads now
	bed.Unlock(t, h)
}

// An RLock of the same name excludes both modes, and they exclude every other kind, which is told by whom and for
// how long; none is a state of another.
func TestOtherKindsOfTheNameAreExcluded(t *testing.T) {
	s := bed.Loaded(t)
	c, other, ctx := client(t, s, 0), client(t, s, 0), t.Context()
	l := c.ReadWriteLock("n")
	plain := bed.Lock(t, ctx, c.RLock("n"))
	busy(t, ctx, l.ReadLock())
	busy(t, ctx, l.WriteLock())
	bed.Want(t, failure(l.State(ctx)), redlatch.ErrInvalidName)
	bed.Unlock(t, plain)
	for mode, held := range map[string]redlatch.Locker{"read": l.ReadLock(), "write": l.WriteLock()} {
		h := bed.Lock(t, ctx, held)
		in, err := c.Inspect(ctx, "n")
		testbed.Must(t, err)
		for kind, l := range map[string]redlatch.Locker{
			"plain": other.RLock("n"), "fair": other.FairLock("n"), "multi": redlatch.MultiLock(other.RLock("n"), other.RLock("n2")),
		} {
			_, err := l.TryLock(ctx, 0, 0)
			if told, is := errors.AsType[*redlatch.NotAcquiredError](err); !is || told.Holder != in.Holders[0].Owner || told.Remaining <= 0 {
				t.Errorf("a %s lock against a %s hold of %s: %v", kind, mode, in.Holders[0].Owner, err)
			}
		}
		bed.Unlock(t, h)
	}
}

// forcer is what takes a lock away by force.
type forcer interface {
	ForceUnlock(ctx context.Context) (bool, error)
}

// A forced unlock of one mode ends that mode only, of the read-write lock both; it tells whether there was a hold.
func TestForceUnlockEndsItsOwnModeOnly(t *testing.T) {
	s := bed.Loaded(t)
	l := client(t, s, 0).ReadWriteLock("n")
	read, write := l.ReadLock(), l.WriteLock()
	job := redlatch.WithOwner(t.Context(), "job")
	for _, tc := range []struct {
		name          string
		held          []redlatch.Locker
		force         forcer
		was           bool
		reads, writes bool // may enter then
	}{
		{"no read lock", nil, read, false, true, true},
		{"no write lock", nil, write, false, true, true},
		{"the write lock, which is read", []redlatch.Locker{read, read}, write, false, true, false},
		{"the read lock", []redlatch.Locker{read, read}, read, true, true, true},
		{"the read lock, which is written", []redlatch.Locker{write}, read, false, false, false},
		{"the write lock", []redlatch.Locker{write}, write, true, true, true},
		{"the write lock of one who reads, too", []redlatch.Locker{write, read}, write, true, true, false},
		{"the read lock of one who writes, too", []redlatch.Locker{write, read}, read, true, false, false},
		{"nothing", nil, l, false, true, true},
		{"whatever is read", []redlatch.Locker{read, read}, l, true, true, true},
		{"whatever is written", []redlatch.Locker{write}, l, true, true, true},
		{"whatever is read and written", []redlatch.Locker{write, read}, l, true, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var holds []redlatch.Hold
			for _, l := range tc.held {
				holds = append(holds, bed.Lock(t, job, l))
			}
			if was, err := tc.force.ForceUnlock(t.Context()); err != nil || was != tc.was {
				t.Errorf("ForceUnlock: %t, %v; want %t", was, err, tc.was)
			}
			for _, try := range []struct {
				l      redlatch.Locker
				enters bool
			}{{read, tc.reads}, {write, tc.writes}} {
				h, err := try.l.TryLock(t.Context(), 0, 0)
				if try.enters != (err == nil) || err != nil && !errors.Is(err, redlatch.ErrNotAcquired) {
					t.Errorf("then %s: %v", try.l.(interface{ Name() string }).Name(), err)
				}
				if err == nil {
					bed.Unlock(t, h)
				}
			}
			for i, h := range holds {
				if lost := errors.Is(h.Unlock(t.Context()), redlatch.ErrLeaseLost); lost != (tc.was && (tc.force == forcer(l) || any(tc.held[i]) == any(tc.force))) {
					t.Errorf("hold %d is lost: %t", i, lost)
				}
			}
			empty(t, s)
		})
	}
}
