package multi

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/testbed"
)

// readWrite are the quorums of a read-write lock's two halves.
func readWrite(cs []*redlatch.Client, name string) (read, write redlatch.Member) {
	var reads, writes []redlatch.Member
	for _, c := range cs {
		rw := c.ReadWriteLock(name)
		reads, writes = append(reads, rw.ReadLock()), append(writes, rw.WriteLock())
	}
	return redlatch.QuorumLock(reads...), redlatch.QuorumLock(writes...)
}

// waited waits until somebody of one client listens to a read-write lock's messages on all servers.
func waited(t *testing.T, list []*testbed.Server, name string) {
	t.Helper()
	for _, s := range list {
		bed.Eventually(t, "a subscription of "+name, func() bool {
			return len(s.List(t, "PUBSUB", "CHANNELS", luascript.CallChannel(name)+"*")) == 1
		})
	}
}

// TestQuorumWriterReadsPastWaitingReaders: who writes may read, though readers of its process
// wait for its end.
func TestQuorumWriterReadsPastWaitingReaders(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	read, write := readWrite(clients(t, addrs(list)), "rw")
	w := bed.Lock(t, t.Context(), write)
	waiting := bed.Async(t.Context(), read)
	waited(t, list, "rw")
	r := bed.Lock(t, w.Context(), read)
	blocked(t, waiting)
	bed.Unlock(t, w) // downgraded
	second := bed.Hold(t, waiting)
	bed.Unlock(t, second)
	bed.Unlock(t, r)
}

// TestQuorumUpgradeIsRefusedPastWaitingWriters: a reader that asks to write is refused, though
// writers of its process wait for its end.
func TestQuorumUpgradeIsRefusedPastWaitingWriters(t *testing.T) {
	t.Parallel()
	list := servers(t, 3)
	read, write := readWrite(clients(t, addrs(list)), "rw")
	r := bed.Lock(t, t.Context(), read)
	waiting := bed.Async(t.Context(), write)
	waited(t, list, "rw")
	ctx, cancel := context.WithTimeout(r.Context(), bed.Patience)
	defer cancel()
	_, err := write.Lock(ctx)
	want(t, err, redlatch.ErrUpgrade)
	bed.Unlock(t, r)
	bed.Unlock(t, bed.Hold(t, waiting))
}

// standing waits until n acquisitions stand in lines behind those that ask the servers. No other
// test may run meanwhile.
func standing(t *testing.T, n int) {
	t.Helper()
	buf := make([]byte, 1<<20)
	bed.Eventually(t, "acquisitions in line", func() bool {
		return strings.Count(string(buf[:runtime.Stack(buf, true)]), "multilock.(*line).enter(") == n
	})
}

// TestQuorumOwnersEnterTogether: of several acquisitions of one owner each enters as soon as one
// has, though others of the process stand between them.
func TestQuorumOwnersEnterTogether(t *testing.T) {
	list := servers(t, 3)
	q := redlatch.QuorumLock(copies(clients(t, addrs(list)), "q")...)
	other := bed.Lock(t, t.Context(), redlatch.QuorumLock(copies(clients(t, addrs(list)), "q")...))
	job := redlatch.WithOwner(t.Context(), "job")
	first := bed.Async(job, q)
	for _, s := range list {
		listens(t, s, "q")
	}
	between := bed.Async(t.Context(), q)
	standing(t, 1)
	second := bed.Async(job, q)
	standing(t, 2)
	bed.Unlock(t, other)
	a := bed.Hold(t, first)
	b := bed.Hold(t, second)
	blocked(t, between)
	bed.Unlock(t, a)
	bed.Unlock(t, b)
	bed.Unlock(t, bed.Hold(t, between))
}

// TestQuorumLineTellsWhatIsWrong: who stands behind another one of its process until its wait is
// over hears which nodes that one found of no use.
func TestQuorumLineTellsWhatIsWrong(t *testing.T) {
	list := servers(t, 3)
	q := redlatch.QuorumLock(copies(clients(t, addrs(list), lease(time.Minute)), "q")...)
	bed.Unlock(t, bed.Lock(t, t.Context(), q)) // each server is known from here on
	for _, s := range list[1:] {
		s.Kill(t)
		s.Restart(t, testbed.Empty)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	first := bed.Async(ctx, q)
	var err error
	bed.Eventually(t, "the first one asks", func() bool {
		_, err = q.TryLock(t.Context(), 300*time.Millisecond, 0)
		return errors.Is(err, redlatch.ErrUnavailable)
	})
	outcome(t, err, false, true)
	for _, s := range list[1:] {
		if !strings.Contains(err.Error(), s.Addr()) {
			t.Errorf("node %s is not named: %v", s.Addr(), err)
		}
	}
	cancel()
	if r := <-first; r.Err == nil {
		t.Error("restarted nodes count")
	}
	for _, s := range list {
		becomesFree(t, s, "q")
	}
}
