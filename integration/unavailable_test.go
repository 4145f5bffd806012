package integration

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// On a server that answers nobody, every wait that ends tells of it, also that of
// who stood behind others of the process, or got no place to send.
func TestFrozenServerIsUnavailableForAll(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	rlLoad(t, s)
	c := rlClient(t, s.Addr(), rlLease(3*time.Second)) // silence counts after a second
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("warm")))
	held := bed.Lock(t, t.Context(), c.RLock("held"), redlatch.WithLease(time.Minute))
	s.Freeze(t)
	const wait = 2500 * time.Millisecond
	var wg sync.WaitGroup
	errs := make([]error, 900)
	for i := range errs {
		var l redlatch.Locker
		name := fmt.Sprintf("l%d", i)
		switch i % 9 {
		case 0:
			l = c.RLock("line") // one line of waiters
		case 1:
			l = c.FairLock("fair line")
		case 2:
			l = c.ReadWriteLock("rw line").WriteLock()
		case 3:
			l = redlatch.MultiLock(c.RLock(name), c.RLock("{"+name+"}2"))
		default: // more than have a place to send
			l = c.RLock(name)
		}
		wg.Go(func() {
			if i%2 == 0 {
				_, errs[i] = l.TryLock(t.Context(), wait, 0)
				return
			}
			ctx, cancel := context.WithTimeout(t.Context(), wait)
			defer cancel()
			_, errs[i] = l.Lock(ctx)
		})
	}
	wg.Wait()
	alone := 0
	for i, err := range errs {
		if !waited(err) {
			t.Fatalf("%d: %v, want the end of a wait", i, err)
		}
		if i%2 == 1 && !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("%d: %v, want ctx's error too", i, err)
		}
		if !errors.Is(err, redlatch.ErrUnavailable) {
			alone++
			t.Logf("%d: %v", i, err)
		}
	}
	if alone > 0 {
		t.Errorf("%d of %d were told that a lock is busy, nothing else", alone, len(errs))
	}
	s.Thaw(t)
	bed.Unlock(t, held)
	bed.Eventually(t, "all undone", func() bool {
		for _, key := range s.List(t, "KEYS", "*") {
			if s.Text(t, "TYPE", key) == "hash" {
				return false
			}
		}
		return true
	})
	bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock("line")))
}

// A wait that was simply too short for a server that is slow, or busy, is no outage.
func TestShortWaitIsNoOutage(t *testing.T) {
	t.Parallel()
	s := bed.Server(t)
	rlLoad(t, s)
	p := testbed.NewProxy(t, s.Addr())
	c := rlClient(t, p.Addr())
	l := c.RLock("l")
	bed.Unlock(t, bed.Lock(t, t.Context(), l))
	p.Delay(testbed.Replies, 100*time.Millisecond)
	judged := 0
	for range 20 {
		began := time.Now()
		h, err := l.TryLock(t.Context(), time.Millisecond, 0)
		took := time.Since(began)
		if err == nil { // the answer was there when the end of the wait was noticed
			bed.Unlock(t, h)
			continue
		}
		if took < time.Second/2 { // else it may have been without an answer for a second, which is an outage
			rlWant(t, err, redlatch.ErrNotAcquired)
			rlNoWant(t, err, redlatch.ErrUnavailable)
			judged++
		}
		if _, err := l.State(t.Context()); err != nil { // what was asked before has its answer then
			t.Fatal(err)
		}
	}
	if judged == 0 {
		t.Error("no wait was too short")
	}
	p.Delay(testbed.Replies, 0)
	bed.Unlock(t, bed.Lock(t, t.Context(), l))
}

// What was given up on one node of a cluster takes no place of another one's.
func TestFrozenClusterNodeStopsNoOthersAcquisitions(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t, "--cluster-node-timeout", "60000")
	t.Cleanup(func() { rlLibraryEnds(t) })
	c := rlClient(t, "", func(c *redlatch.Config) {
		c.Redis = rueidis.ClientOption{InitAddress: set.Addrs()}
	})
	frozen := set.Masters(t)[1]
	var there, well []string
	for i := 0; len(there) < 600 || len(well) < 30; i++ {
		if name := fmt.Sprintf("n%d", i); set.NodeOfKey(t, name) == frozen {
			there = append(there, name)
		} else {
			well = append(well, name)
		}
	}
	for _, name := range []string{there[0], well[0], well[1], well[2]} { // the scripts are loaded, the connections made
		bed.Unlock(t, bed.Lock(t, t.Context(), c.RLock(name)))
	}
	frozen.Freeze(t)
	defer frozen.Thaw(t)
	ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
	defer cancel()
	var wg sync.WaitGroup
	for _, name := range there {
		wg.Go(func() {
			h, err := c.RLock(name).Lock(ctx)
			if !waited(err) {
				t.Errorf("%s: %v", name, err)
			}
			if err == nil {
				bed.Unlock(t, h)
			}
		})
	}
	wg.Wait()
	for _, name := range well[:30] {
		began := time.Now()
		h, err := c.RLock(name).TryLock(t.Context(), 3*time.Second, 0) // less than until the frozen one's connection is given up
		if err != nil {
			t.Errorf("on another node: %v", err)
			continue
		}
		bed.Unlock(t, h)
		if took := time.Since(began); took > 3*time.Second {
			t.Errorf("a lock and unlock on another node took %v", took)
		}
	}
	frozen.Thaw(t)
	c.Close()
}

// No name puts keys of one lock into different slots, or stops the process: a name
// that would is refused, with the reason, by every kind and every call.
func TestNamesOnACluster(t *testing.T) {
	t.Parallel()
	set := testbed.Cluster(t)
	t.Cleanup(func() { rlLibraryEnds(t) })
	c := rlClient(t, "", func(c *redlatch.Config) {
		c.Redis = rueidis.ClientOption{InitAddress: set.Addrs()}
	})
	fill := func(n int, end string) string { return fmt.Sprintf("%*s", n, end) }
	works := 0
	for _, name := range []string{
		"{", "}", "a{", "a}", "{a", "}a", "{}", "{}a", "a{}", "}{", "{{}", "{}}", "{{a}}", "{a}{b}", "{a}b", "a{b}", "a{b", "a}b{c", "{a}:{",
		fill(100, "{"), fill(1024, "{"), fill(1024, "}{"), fill(1025, "{"), fill(6709, "{"), fill(6709, "}"),
	} {
		rw := c.ReadWriteLock(name)
		for i, l := range []redlatch.Locker{c.RLock(name), c.RLock(name, redlatch.Fenced()), c.FairLock(name), rw.ReadLock(), rw.WriteLock()} {
			h, err := l.TryLock(t.Context(), bed.Patience, 0)
			switch {
			case err == nil:
				works++
				bed.Unlock(t, h)
			case !errors.Is(err, redlatch.ErrInvalidName):
				t.Errorf("%d of %.40q: %v", i, name, err)
			case len(err.Error()) > 1000:
				t.Errorf("the message of %.40q has %d bytes", name, len(err.Error()))
			}
		}
		if _, err := c.RLock(name).State(t.Context()); err != nil && !errors.Is(err, redlatch.ErrInvalidName) {
			t.Errorf("State of %.40q: %v", name, err)
		}
	}
	if works < 30 {
		t.Errorf("only %d of the locks work", works)
	}
	c.Close()
}
