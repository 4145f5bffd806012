package multi

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestQuorumWriterAmongReaders: readers that overlap without an end don't starve a quorum that wants to write:
// it leaves its mark on the copies between its rounds, and those that come later stand back, as behind a single
// write lock. Nor does it starve them.
func TestQuorumWriterAmongReaders(t *testing.T) {
	list := servers(t, 3)
	_, write := readWrite(clients(t, addrs(list)), "rw")
	bed.Unlock(t, bed.Lock(t, t.Context(), write))
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	const processes, readers = 3, 11
	var reads [readers]atomic.Int64
	for p := range processes {
		read, _ := readWrite(clients(t, addrs(list)), "rw")
		for i := p; i < readers; i += processes {
			wg.Go(func() {
				for ctx.Err() == nil {
					h, err := read.Lock(ctx)
					if err != nil {
						if ctx.Err() == nil {
							t.Error(err)
						}
						return
					}
					reads[i].Add(1)
					time.Sleep(20*time.Millisecond + rand.N(20*time.Millisecond))
					if err := h.Unlock(context.Background()); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	bed.Eventually(t, "the readers overlap", func() bool {
		for i := range reads {
			if reads[i].Load() == 0 {
				return false
			}
		}
		return true
	})
	var longest time.Duration
	for range 10 {
		began := time.Now()
		h, err := write.TryLock(t.Context(), bed.Patience, 0)
		if err != nil {
			t.Fatalf("a writer starves among readers: %v", err)
		}
		longest = max(longest, time.Since(began))
		bed.Unlock(t, h)
		var before [readers]int64
		for i := range reads {
			before[i] = reads[i].Load()
		}
		bed.Eventually(t, "each reader enters again", func() bool {
			for i := range reads {
				if reads[i].Load() == before[i] {
					return false
				}
			}
			return true
		})
	}
	t.Logf("the longest wait of a writer: %v", longest)
	if longest > woken {
		t.Errorf("a writer waited for %v", longest)
	}
}

// TestQuorumKeepsItsMarks: a quorum that waits to write keeps its mark on every copy for as long as it waits, and
// takes it away where its client is closed, and everywhere when it gives up.
func TestQuorumKeepsItsMarks(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	mine := clients(t, addrs(list))
	var members []redlatch.Member
	for _, c := range mine {
		members = append(members, c.ReadWriteLock("rw", redlatch.WithSkipAfter(3*time.Second)).WriteLock())
	}
	write := redlatch.QuorumLock(members...)
	bed.Unlock(t, bed.Lock(t, t.Context(), write))
	mark := func(s *testbed.Server) string {
		return strings.Join(s.List(t, "ZRANGE", "redlatch_rw_marks:{rw}", "0", "-1"), " ")
	}
	read, _ := readWrite(clients(t, addrs(list)), "rw")
	r := bed.Lock(t, t.Context(), read)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	waiting := bed.Async(ctx, write)
	marks := make([]string, len(list))
	for i, s := range list {
		bed.Eventually(t, "a mark", func() bool { marks[i] = mark(s); return marks[i] != "" })
	}
	for began := time.Now(); time.Since(began) < 7*time.Second; time.Sleep(50 * time.Millisecond) {
		for i, s := range list {
			if got := mark(s); got != marks[i] {
				t.Fatalf("after %v the mark on %s is %q, not %q", time.Since(began), s.Addr(), got, marks[i])
			}
		}
	}
	began := time.Now()
	mine[0].Close()
	if took := time.Since(began); took > 2*time.Second {
		t.Errorf("Close took %v", took)
	}
	if got := mark(list[0]); got != "" {
		t.Errorf("the closed client left %q", got)
	}
	if mark(list[1]) != marks[1] || mark(list[2]) != marks[2] {
		t.Error("the other copies lost their marks with it")
	}
	blocked(t, waiting)
	cancel()
	if got := <-waiting; got.Err == nil {
		t.Fatal("a writer beside a reader")
	}
	for _, s := range list {
		bed.Eventually(t, "no mark", func() bool { return mark(s) == "" })
	}
	bed.Unlock(t, r)
}
