package multi

import (
	"context"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// readWrite are the quorums of a read-write lock's two halves.
func readWrite(cs []*redlatch.Client, opts ...redlatch.Option) (read, write *multiLock) {
	var reads, writes []redlatch.Member
	for _, c := range cs {
		rw := c.ReadWriteLock("rw", opts...)
		reads, writes = append(reads, rw.ReadLock()), append(writes, rw.WriteLock())
	}
	return redlatch.QuorumLock(reads...), redlatch.QuorumLock(writes...)
}

// TestQuorumOfReadWriteLocks: a quorum's copies can be read and write locks: readers who wait enter together when the
// writer leaves, and a writer when the last reader does.
func TestQuorumOfReadWriteLocks(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	read, write := readWrite(clients(t, list), redlatch.Fenced())
	otherRead, otherWrite := readWrite(clients(t, list), redlatch.Fenced())
	w := bed.Lock(t, t.Context(), write)
	for _, l := range []*multiLock{otherRead, otherWrite} {
		_, err := l.TryLock(t.Context(), 200*time.Millisecond, 0)
		bed.Want(t, err, redlatch.ErrNotAcquired)
	}
	r1, r2 := bed.Async(t.Context(), read), bed.Async(t.Context(), otherRead)
	stand(t, list, "readers", 2)
	blocked(t, r1)
	bed.Unlock(t, w)
	h1, h2 := bed.HoldWithin(t, woken, r1), bed.HoldWithin(t, woken, r2)
	bed.Unlock(t, bed.Lock(t, h1.Context(), read))

	next := bed.Async(t.Context(), otherWrite)
	bed.Unlock(t, h1)
	stand(t, list, "writers", 1)
	blocked(t, next)
	bed.Unlock(t, h2)
	w2 := bed.HoldWithin(t, woken, next)
	testbed.AtLeast(t, w2.Token(), w.Token()+1, "the next one's token")
	bed.Unlock(t, w2)
}

// A quorum that a MultiLock names twice is taken once: of the halves of a read-write lock the write lock, and what is
// fenced once is fenced.
func TestQuorumNamedTwice(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	cs := clients(t, list)
	read, write := readWrite(cs)
	fenced := quorum(cs, "fenced", redlatch.Fenced())
	for name, pairs := range map[string][][]redlatch.Member{
		"plain":  {{quorum(cs, "plain"), quorum(cs, "plain")}},
		"fenced": {{fenced, quorum(cs, "fenced")}, {quorum(cs, "fenced"), fenced}},
		"rw":     {{read, write}, {write, read}, {write, read, read}},
	} {
		for range 10 {
			for _, members := range pairs {
				h := bed.Lock(t, t.Context(), redlatch.MultiLock(members...))
				if name == "fenced" && slices.Contains(tokens(h), 0) {
					t.Errorf("tokens %v", tokens(h))
				}
				for _, s := range list {
					counts := slices.Collect(maps.Values(s.Hash(t, "HGETALL", name)))
					testbed.Equal(t, slices.Contains(counts, "2"), false, name, "is held twice")
				}
				bed.Unlock(t, h)
			}
		}
	}
}

// stand waits until so many readers or writers wait on a majority of the servers.
func stand(t *testing.T, list []*testbed.Server, kind string, n int64) {
	t.Helper()
	bed.Eventually(t, kind+" wait", func() bool {
		on := 0
		for _, s := range list {
			if s.Int(t, "ZCARD", "redlatch_rw_"+kind+":{rw}") == n {
				on++
			}
		}
		return on > len(list)/2
	})
}

// TestQuorumUpgradeIsRefusedPastWaitingWriters: a reader that asks to write is refused, though writers of its process
// wait for its end; and who writes may read past readers that wait.
func TestQuorumUpgradeIsRefusedPastWaitingWriters(t *testing.T) {
	t.Parallel()
	for what, reads := range map[string]bool{"a reader asks to write": true, "a writer asks to read": false} {
		t.Run(what, func(t *testing.T) {
			t.Parallel()
			list := servers(t, 3)
			has, asks := readWrite(clients(t, list))
			refused := redlatch.ErrUpgrade
			if !reads {
				has, asks, refused = asks, has, nil
			}
			h := bed.Lock(t, t.Context(), has)
			waiting := bed.Async(t.Context(), asks)
			bed.Listeners(t, 1, "rw", list...)
			again, err := asks.TryLock(h.Context(), bed.Patience, 0)
			bed.Want(t, err, refused)
			blocked(t, waiting)
			bed.Unlock(t, h)
			bed.Unlock(t, bed.Hold(t, waiting))
			if err == nil {
				bed.Unlock(t, again)
			}
		})
	}
}

// TestYoungServersSayNothingOfReaders: that all servers of a new deployment let somebody read is
// no sign that one of them has not forgotten another reader: a write lock needs them all anew.
func TestYoungServersSayNothingOfReaders(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	long := redlatch.WithLeaseTime(5 * time.Minute) // no server is that old
	read, _ := readWrite(clients(t, list, long))
	otherRead, otherWrite := readWrite(clients(t, list, long))
	bed.Unlock(t, bed.Lock(t, t.Context(), read))
	busy := bed.Lock(t, t.Context(), bed.Client(t, list[2].Addr()).ReadWriteLock("rw").WriteLock())
	r := bed.Lock(t, t.Context(), read) // on 0 and 1
	bed.Unlock(t, busy)
	list[1].Restart(t, testbed.Empty)

	bed.Unlock(t, bed.Lock(t, t.Context(), otherRead))
	if w, err := otherWrite.TryLock(t.Context(), 0, 0); err != nil {
		bed.Want(t, err, redlatch.ErrNotAcquired)
	} else if bed.Unlock(t, w); r.Context().Err() == nil {
		t.Error("a writer beside a reader")
	}
	_ = r.Unlock(t.Context()) // it lost server 1 and with it the majority
	bed.Unlock(t, bed.Lock(t, t.Context(), otherWrite))
}

// TestQuorumReadsWithTheTokenOfItsWrite: who reads under its own write lock has that one's token,
// though a server's counter is ahead: what it writes afterwards must not be refused for what it
// has read.
func TestQuorumReadsWithTheTokenOfItsWrite(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	read, write := readWrite(clients(t, list), redlatch.Fenced())
	job := redlatch.WithOwner(t.Context(), "job") // so that the one's end is not the other's
	w := bed.Lock(t, job, write)
	list[2].Do(t, "SET", luascript.TokenKey("rw"), strconv.FormatInt(time.Now().Add(time.Hour).UnixMicro(), 10))
	r := bed.Lock(t, job, read)
	bed.Unlock(t, w)
	again := bed.Lock(t, job, read)
	bed.Unlock(t, again, r)
	next := bed.Lock(t, t.Context(), write)
	bed.Unlock(t, next)
	if w.Token() != r.Token() || r.Token() != again.Token() || next.Token() <= r.Token() {
		t.Errorf("it writes with token %d, reads with %d and %d; the next one writes with %d",
			w.Token(), r.Token(), again.Token(), next.Token())
	}
}

// TestQuorumWriterAmongReaders: readers that overlap without an end don't starve a quorum that wants to write:
// it leaves its mark on the copies between its rounds, and those that come later stand back, as behind a single
// write lock. Nor does it starve them.
func TestQuorumWriterAmongReaders(t *testing.T) {
	list := servers(t, 3)
	_, write := readWrite(clients(t, list))
	bed.Unlock(t, bed.Lock(t, t.Context(), write))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	const processes, readers = 3, 11
	var reads [readers]atomic.Int64
	for p := range processes {
		read, _ := readWrite(clients(t, list))
		for i := p; i < readers; i += processes {
			wg.Go(func() {
				for ctx.Err() == nil {
					err := read.Do(ctx, func(context.Context) error {
						reads[i].Add(1)
						time.Sleep(20*time.Millisecond + rand.N(20*time.Millisecond))
						return nil
					})
					if err != nil && ctx.Err() == nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	var before [readers]int64
	allRead := func() bool {
		for i := range reads {
			if reads[i].Load() == before[i] {
				return false
			}
		}
		return true
	}
	bed.Eventually(t, "the readers overlap", allRead)
	for range 10 {
		began := time.Now()
		h, err := write.TryLock(t.Context(), bed.Patience, 0)
		if took := time.Since(began); err != nil || took > woken {
			t.Fatalf("a writer among readers: %v after %v", err, took)
		}
		bed.Unlock(t, h)
		for i := range reads {
			before[i] = reads[i].Load()
		}
		bed.Eventually(t, "each reader enters again", allRead)
	}
}

// TestQuorumKeepsItsMarks: a quorum that waits to write keeps its mark on every copy for as long as it waits, and
// takes it away where its client is closed, and everywhere when it gives up.
func TestQuorumKeepsItsMarks(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	mine := clients(t, list)
	_, write := readWrite(mine, redlatch.WithSkipAfter(6*time.Second))
	bed.Unlock(t, bed.Lock(t, t.Context(), write))
	mark := func(s *testbed.Server) string {
		return strings.Join(s.List(t, "ZRANGE", "redlatch_rw_marks:{rw}", "0", "-1"), " ")
	}
	read, _ := readWrite(clients(t, list))
	r := bed.Lock(t, t.Context(), read)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := bed.Async(ctx, write)
	marks := make([]string, len(list))
	for i, s := range list {
		bed.Eventually(t, "a mark", func() bool { marks[i] = mark(s); return marks[i] != "" })
	}
	for began := time.Now(); time.Since(began) < 13*time.Second; time.Sleep(50 * time.Millisecond) {
		for i, s := range list {
			if got := mark(s); got != marks[i] {
				t.Fatalf("after %v the mark on %s is %q, not %q", time.Since(began), s.Addr(), got, marks[i])
			}
		}
	}
	began := time.Now()
	mine[0].Close()
	testbed.AtMost(t, time.Since(began), 2*time.Second, "Close took")
	if mark(list[0]) != "" || mark(list[1]) != marks[1] || mark(list[2]) != marks[2] {
		t.Error("not just the closed client's mark is gone")
	}
	blocked(t, waiting)
	cancel()
	bed.Want(t, (<-waiting).Err, context.Canceled)
	for _, s := range list {
		bed.Eventually(t, "no mark", func() bool { return mark(s) == "" })
	}
	bed.Unlock(t, r)
}
