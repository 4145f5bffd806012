package integration

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// Tests of readers that wait for a writer behind one of their process.

// rwFollow starts n readers behind the first, which waits on the server.
func rwFollow(t *testing.T, s *testbed.Server, l redlatch.Locker, n int) []<-chan redlatch.Hold {
	t.Helper()
	began := time.Now()
	got := []<-chan redlatch.Hold{rwAsync(t, l, t.Context())}
	rwWaiting(t, s, "readers", 1)
	late := time.Since(began)
	for range n {
		got = append(got, rwAsync(t, l, t.Context()))
	}
	rwInLine(t, n)
	// They count as come later by the time that the first one's command took to the server.
	time.Sleep(late + 50*time.Millisecond)
	return got
}

// rwInLine waits until n readers of this process follow another one. Of tests that run side by side
// none has any.
func rwInLine(t *testing.T, n int) {
	t.Helper()
	bed.Eventually(t, "the readers are in line", func() bool { return testbed.GoroutinesIn("(*acquisition).follow") == n })
}

// rwErrors acquires n times at once; what came of each is in the channel.
func rwErrors(n int, acquire func() (redlatch.Hold, error)) chan error {
	errs := make(chan error, n)
	for range n {
		go func() { _, err := acquire(); errs <- err }()
	}
	return errs
}

func rwAllGot(t *testing.T, got []<-chan redlatch.Hold) []redlatch.Hold {
	t.Helper()
	holds := make([]redlatch.Hold, 0, len(got))
	for _, ch := range got {
		holds = append(holds, rwGot(t, ch, 10*time.Second))
	}
	return holds
}

// rwNotYet fails if a reader or writer is inside.
func rwNotYet(t *testing.T, who string, ch <-chan redlatch.Hold) {
	t.Helper()
	select {
	case <-ch:
		t.Fatal(who, "is inside")
	case <-time.After(300 * time.Millisecond):
	}
}

// TestRWShareLineCostsOneCommand: readers that wait for a writer, of this process or of
// another one, cost the server one place, and one command when it has left. They enter before
// the next writer, who waited longer than they; who reads later stands back for that one.
func TestRWShareLineCostsOneCommand(t *testing.T) {
	for _, own := range []bool{false, true} {
		s := rwServer(t)
		// Nobody asks what has become of its place meanwhile.
		l := rwShareClient(t, s, 50*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads(), rwTold())
		other := rwClient(t, s, 0).ReadWriteLock("n", rwTold())
		writer := other.WriteLock()
		if own {
			writer = l.WriteLock()
		}
		rwUnlock(t, rwLock(t, l.ReadLock(), t.Context()), rwLock(t, other.ReadLock(), t.Context())) // loads the scripts
		inside := rwLock(t, writer, t.Context())
		next := rwAsync(t, writer, t.Context())
		rwWaiting(t, s, "writers", 1)
		rwQuiet(t, s)
		var got []<-chan redlatch.Hold
		// Once more when it listens, and after each second that it must wait for that; so may the next
		// writer still.
		if n := rwScripts(t, s, func() { got = rwFollow(t, s, l.ReadLock(), 40) }); n > 6 {
			t.Errorf("own %v: %d commands of 41 readers that wait", own, n)
		}
		var holds []redlatch.Hold
		n := rwScripts(t, s, func() {
			rwUnlock(t, inside)
			holds = rwAllGot(t, got)
		})
		// The unlock, the grant, and the next writer's looks.
		if t.Logf("own %v: %d commands", own, n); n > 6 {
			t.Errorf("own %v: %d commands for 41 readers", own, n)
		}
		rwWaiting(t, s, "turn", 0)
		rwNotYet(t, "the next writer", next)
		if m := s.Int(t, "HLEN", "n"); m != 2 { // mode, and one field
			t.Errorf("%d fields", m)
		}
		rwBusy(t, l.ReadLock(), t.Context()) // behind that writer
		later := rwAsync(t, l.ReadLock(), t.Context())
		rwWaiting(t, s, "readers", 1)
		rwUnlock(t, holds...)
		w := rwGot(t, next, 10*time.Second)
		rwNotYet(t, "a reader that came after the writer", later)
		rwUnlock(t, w)
		rwUnlock(t, rwGot(t, later, 10*time.Second))
		rwEmpty(t, s)
	}
}

// TestRWShareLineKeepsWritersTurn: a writer that gives up lets in the readers of a process
// that came before the next writer's mark, and no other.
func TestRWShareLineKeepsWritersTurn(t *testing.T) {
	s := rwServer(t)
	// Each has a client of its own: writers of one client stand in one line.
	l := rwShareClient(t, s, 10*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	reader := rwLock(t, rwClient(t, s, 0).ReadWriteLock("n").ReadLock(), t.Context())
	first, giveUp := context.WithCancel(t.Context())
	gone := make(chan error, 1)
	w1, w2 := rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), rwClient(t, s, 0).ReadWriteLock("n").WriteLock()
	go func() { _, err := w1.Lock(first); gone <- err }()
	rwWaiting(t, s, "writers", 1)
	before := rwFollow(t, s, l, 5)
	second := rwAsync(t, w2, t.Context())
	rwWaiting(t, s, "writers", 2)
	time.Sleep(50 * time.Millisecond) // so much later they come
	after := []<-chan redlatch.Hold{rwAsync(t, l, t.Context()), rwAsync(t, l, t.Context())}
	rwInLine(t, 5+len(after))
	giveUp()
	if err := <-gone; !errors.Is(err, redlatch.ErrNotAcquired) {
		t.Error(err)
	}
	holds := rwAllGot(t, before)
	for _, ch := range after {
		rwNotYet(t, "a reader that came after the second writer", ch)
	}
	rwUnlock(t, append(holds, reader)...)
	rwUnlock(t, rwGot(t, second, 10*time.Second))
	rwUnlock(t, rwAllGot(t, after)...)
	rwEmpty(t, s)
}

// TestRWShareLineLeaderLeaves: when the one that asks for all gives up, the next asks, and
// nothing of either stays on the server.
func TestRWShareLineLeaderLeaves(t *testing.T) {
	s := rwServer(t)
	l := rwShareClient(t, s, 10*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	w := rwLock(t, rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), t.Context())
	errs := make(chan error, 9)
	var leave []context.CancelFunc
	for i := range cap(errs) { // each leads once the one before it has left
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		leave = append(leave, cancel)
		go func() { _, err := l.Lock(ctx); errs <- err }()
		if i == 0 {
			rwWaiting(t, s, "readers", 1)
		}
		rwInLine(t, i)
	}
	stays := rwAsync(t, l, t.Context())
	rwInLine(t, len(leave))
	for i, cancel := range leave {
		if i%3 == 2 {
			cancel() // one that follows
			continue
		}
		cancel()
		rwWaiting(t, s, "readers", 1)
	}
	for range leave {
		var e *redlatch.NotAcquiredError
		if err := <-errs; !errors.Is(err, context.Canceled) || !errors.As(err, &e) || e.Holder == "" {
			t.Error(err)
		}
	}
	rwUnlock(t, w)
	h := rwGot(t, stays, 10*time.Second)
	// One who left with a command on its way got a field of its own, and gives it back.
	bed.Eventually(t, "the one field of the reader that stays", func() bool { return s.Int(t, "HLEN", "n") == 2 })
	rwUnlock(t, h)
	rwEmpty(t, s)
}

// TestRWShareLineEnds: a wait in line ends with its time, and says who holds the lock;
// Shutdown and Close end it, too; who can't wait is told at once.
func TestRWShareLineEnds(t *testing.T) {
	s := rwServer(t)
	for _, end := range []string{"shutdown", "close"} {
		c := rwShareClient(t, s, 10*time.Millisecond)
		l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
		w := rwLock(t, rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), t.Context())
		errs := rwErrors(5, func() (redlatch.Hold, error) { return l.Lock(t.Context()) })
		rwWaiting(t, s, "readers", 1)
		rwInLine(t, cap(errs)-1)
		for _, wait := range []time.Duration{0, 30 * time.Millisecond} {
			began := time.Now()
			_, err := l.TryLock(t.Context(), wait, 0)
			var e *redlatch.NotAcquiredError
			if !errors.As(err, &e) || e.Holder == "" || e.Remaining <= 0 || errors.Is(err, redlatch.ErrUnavailable) {
				t.Errorf("%+v", err)
			}
			if took := time.Since(began); took < wait || took > wait+5*time.Second {
				t.Errorf("waited %v instead of %v", took, wait)
			}
		}
		if end == "close" {
			c.Close()
		} else if err := c.Shutdown(t.Context()); err != nil {
			t.Error(err)
		}
		for range cap(errs) {
			if err := <-errs; !errors.Is(err, redlatch.ErrClosed) {
				t.Error(end, err)
			}
		}
		rwUnlock(t, w)
		rwEventually(t, "no place is left", func() bool {
			return s.Int(t, "EXISTS", "redlatch_rw_readers:{n}", "redlatch_rw_turn:{n}") == 0 || end == "close"
		})
		s.Do(t, "FLUSHALL")
	}
}

// TestRWShareLineOfOneOwner: an owner that follows in several calls enters in all of them,
// and has one session.
func TestRWShareLineOfOneOwner(t *testing.T) {
	s := rwServer(t)
	l := rwShareClient(t, s, 10*time.Millisecond).ReadWriteLock("n", redlatch.ShareReads())
	w := rwLock(t, rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), t.Context())
	got := rwFollow(t, s, l.ReadLock(), 3)
	owner := redlatch.WithOwner(t.Context(), "one")
	for range 4 {
		got = append(got, rwAsync(t, l.ReadLock(), owner))
	}
	fixed := make(chan redlatch.Hold, 1)
	go func() {
		h, err := l.ReadLock().TryLock(owner, 20*time.Second, 20*time.Second)
		if err != nil {
			t.Error(err)
		}
		fixed <- h
	}()
	rwInLine(t, len(got)-1)
	rwWaiting(t, s, "readers", 2) // the first one, and the one with a lease of its own
	rwUnlock(t, w)
	holds := append(rwAllGot(t, got), <-fixed)
	if _, err := l.WriteLock().TryLock(owner, 0, 0); !errors.Is(err, redlatch.ErrUpgrade) {
		t.Error(err)
	}
	rwUnlock(t, holds...)
	rwEmpty(t, s)
}

// TestRWShareLineRefused: what the server refuses for good, each reader of the line hears.
func TestRWShareLineRefused(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 30*time.Second, 10*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	rwUnlock(t, rwLock(t, l, t.Context()))
	trap := proxy.StallReply(testbed.Contains("EVALSHA"))
	s.Do(t, "SET", "n", "x") // no lock any more
	lock := func() (redlatch.Hold, error) { return l.Lock(t.Context()) }
	leader := rwErrors(1, lock)
	trap.Wait(t)
	errs := rwErrors(19, lock)
	rwInLine(t, cap(errs))
	trap.Release()
	for range 1 + cap(errs) {
		var err error
		select {
		case err = <-leader:
		case err = <-errs:
		}
		if !errors.Is(err, redlatch.ErrInvalidName) {
			t.Error(err)
		}
	}
	s.Do(t, "DEL", "n")
	rwUnlock(t, rwLock(t, l, t.Context()))
	rwEmpty(t, s)
}

// TestRWShareLineOnce: a TryLock that does not wait follows a reader whose command is under
// way, but not one that waits.
func TestRWShareLineOnce(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 30*time.Second, 10*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	rwUnlock(t, rwLock(t, l, t.Context()))
	w := rwLock(t, rwClient(t, s, 0).ReadWriteLock("n").WriteLock(), t.Context())
	trap := proxy.StallReply(testbed.Contains("EVALSHA"))
	leader := rwAsync(t, l, t.Context())
	trap.Wait(t)
	errs := rwErrors(3, func() (redlatch.Hold, error) { return l.TryLock(t.Context(), 0, 0) })
	rwInLine(t, cap(errs))
	began := time.Now()
	trap.Release()
	for range cap(errs) {
		var e *redlatch.NotAcquiredError
		if err := <-errs; !errors.As(err, &e) || e.Holder == "" {
			t.Error(err)
		}
	}
	if took := time.Since(began); took > 4*time.Second { // without an answer they wait for 5 s
		t.Errorf("they waited %v for the writer", took)
	}
	rwUnlock(t, w)
	rwUnlock(t, rwGot(t, leader, 10*time.Second))
	rwEmpty(t, s)
}

// TestRWShareLineDrains: who follows a reader whose command has no answer is told at once that
// the client shuts down.
func TestRWShareLineDrains(t *testing.T) {
	s := rwServer(t)
	c, proxy := rwShareProxy(t, s, 30*time.Second, 10*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	rwUnlock(t, rwLock(t, l, t.Context()))
	kept := rwLock(t, c.RLock("kept"), t.Context())
	trap := proxy.StallReply(testbed.Contains("EVALSHA"))
	lock := func() (redlatch.Hold, error) { return l.Lock(t.Context()) }
	lead := rwErrors(1, lock)
	trap.Wait(t)
	errs := rwErrors(5, lock)
	rwInLine(t, cap(errs))
	down := make(chan error, 1)
	go func() { down <- c.Shutdown(t.Context()) }()
	for range cap(errs) {
		select {
		case err := <-errs:
			if !errors.Is(err, redlatch.ErrClosed) {
				t.Error(err)
			}
		case <-time.After(3 * time.Second):
			t.Fatal("still in line")
		}
	}
	trap.Release()
	if err := <-lead; !errors.Is(err, redlatch.ErrClosed) {
		t.Error(err)
	}
	rwUnlock(t, kept) // Shutdown waits for it
	if err := <-down; err != nil {
		t.Error(err)
	}
	rwEmpty(t, s)
}

// TestRWShareLineOwnerGotInElsewhere: who follows is told when its owner got the lock in
// another call, and re-enters.
func TestRWShareLineOwnerGotInElsewhere(t *testing.T) {
	s := rwServer(t)
	c := rwShareClient(t, s, 10*time.Millisecond)
	l := c.ReadWriteLock("n", redlatch.ShareReads()).ReadLock()
	other := rwClient(t, s, 0).ReadWriteLock("n")
	inside := rwLock(t, other.ReadLock(), t.Context())
	writer := rwAsync(t, other.WriteLock(), t.Context())
	rwWaiting(t, s, "writers", 1)
	got := rwFollow(t, s, l, 3)
	owner := redlatch.WithOwner(t.Context(), "one")
	follows := rwAsync(t, l, owner)
	rwInLine(t, len(got)) // all but the first, and this one
	past := rwLock(t, c.ReadWriteLock("n", redlatch.PreferReaders()).ReadLock(), owner)
	again := rwGot(t, follows, 10*time.Second)
	rwNotYet(t, "a reader of another owner", got[1])
	rwUnlock(t, again, past, inside)
	rwUnlock(t, rwGot(t, writer, 10*time.Second))
	rwUnlock(t, rwAllGot(t, got)...)
	rwEmpty(t, s)
}
