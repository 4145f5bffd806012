package integration

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/rwlock"
)

// Tests of many processes that wait to write, with one waiter each. Their limits are those of the plain lock's crowd.

// rwFar is a time, in ms, until which a mark lives for ever.
const rwFar = "99999999999999"

// rwStranger is the mark of a client that is nobody's.
func rwStranger(i int) string {
	return fmt.Sprintf("00000000-0000-4000-8000-%012d:g1-x.1", i)
}

// rwMark marks a writer that came first.
func rwMark(t testing.TB, s *testbed.Server, field string) {
	t.Helper()
	s.Do(t, "ZADD", "redlatch_rw_writers:{n}", "1000000", field)
	s.Do(t, "ZADD", "redlatch_rw_marks:{n}", rwFar, field)
}

// rwHears listens where a writer of that client is called, and does nothing: a process that stands still.
func rwHears(t testing.TB, s *testbed.Server, field string) {
	t.Helper()
	client, _, _ := strings.Cut(field, ":")
	c, err := rueidis.NewClient(rueidis.ClientOption{InitAddress: []string{s.Addr()}, DisableCache: true})
	if err != nil {
		t.Fatal(err)
	}
	dc, release := c.Dedicate()
	dc.SetPubSubHooks(rueidis.PubSubHooks{OnMessage: func(rueidis.PubSubMessage) {}})
	if err := dc.Do(t.Context(), dc.B().Subscribe().Channel(rlCalls("n")+client+":write").Build()).Error(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dc.Close(); release(); c.Close() })
}

// rwCalled waits until n clients hear when their writer is called.
func rwCalled(t testing.TB, s *testbed.Server, n int) {
	t.Helper()
	rwEventually(t, fmt.Sprintf("%d writers listen", n), func() bool {
		return len(s.List(t, "PUBSUB", "CHANNELS", rlCalls("n")+"*")) == n
	})
}

// TestRWCrowdAReleaseCallsOneWriter: a turn costs three commands, whatever the number of processes that wait to write,
// and whoever held the lock before; and they make 28 calls on the server, 30 if it is fenced. It would cost a command of
// each process if all of them were woken.
func TestRWCrowdAReleaseCallsOneWriter(t *testing.T) {
	t.Parallel()
	for name, opts := range map[string][]redlatch.Option{"plain": nil, "fenced": {redlatch.Fenced()}} {
		for _, behind := range []string{"a reader", "a writer"} {
			t.Run(name+"/"+behind, func(t *testing.T) {
				const clients, turns = 20, 10
				s := rwServer(t)
				l := rwClient(t, s, 30*time.Second).ReadWriteLock("n", opts...)
				first := redlatch.Locker(l.ReadLock())
				if behind == "a writer" {
					first = l.WriteLock()
				}
				h := rwLock(t, first, t.Context())
				var all sync.WaitGroup
				inside := 0 // by the lock
				for range clients {
					w := rwClient(t, s, 30*time.Second).ReadWriteLock("n", opts...).WriteLock()
					all.Go(func() {
						for range turns {
							h, err := w.Lock(t.Context())
							if err != nil {
								t.Error(err)
								return
							}
							inside++
							if err := h.Unlock(t.Context()); err != nil {
								t.Error(err)
							}
						}
					})
				}
				rwWaiting(t, s, "writers", clients)
				before := s.CommandStats(t)
				rwUnlock(t, h)
				all.Wait()
				if inside != clients*turns {
					t.Errorf("%d turns", inside)
				}
				calls := s.CommandStats(t).Sub(before).Calls
				each := float64(calls["evalsha"]) / (clients * turns)
				inScripts := 0.0
				for cmd, n := range calls {
					if !slices.Contains([]string{"evalsha", "info", "ping", "subscribe", "unsubscribe"}, cmd) {
						inScripts += float64(n) / float64(calls["evalsha"])
					}
				}
				t.Logf("%.1f commands a turn, with %.2f calls each", each, inScripts)
				if each > 6 { // three, and looks and refreshes on a busy machine
					t.Errorf("%.1f commands a turn, with %d clients", each, clients)
				}
				if inScripts > 11 { // of a turn that nothing disturbs 9.3, or 10 with a token
					t.Errorf("a command makes %.2f calls: %v", inScripts, calls)
				}
			})
		}
	}
}

// rwCrowdTroubles are what stands between a release and the writer who waits.
var rwCrowdTroubles = []struct {
	name string
	make func(t *testing.T, s *testbed.Server) // while it waits
	soon bool                                  // it is called all the same
}{
	{"nothing", func(*testing.T, *testbed.Server) {}, true},
	{"the first is dead", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		rwMark(t, s, rwStranger(1))
	}, true},
	{"40 are dead", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		for i := range 40 {
			rwMark(t, s, rwStranger(i))
		}
	}, true},
	{"the first stands still", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		rwHears(t, s, rwStranger(1))
		rwMark(t, s, rwStranger(1))
	}, false},
	{"subscriptions end", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		s.Do(t, "CLIENT", "KILL", "TYPE", "pubsub")
	}, false},
	{"the marks are gone", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		s.Do(t, "DEL", "redlatch_rw_writers:{n}", "redlatch_rw_marks:{n}")
	}, false},
	{"the order is something else", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		s.Do(t, "DEL", "redlatch_rw_writers:{n}")
		s.Do(t, "SET", "redlatch_rw_writers:{n}", "x")
	}, false},
	{"the lives are something else", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		s.Do(t, "DEL", "redlatch_rw_marks:{n}")
		s.Do(t, "SET", "redlatch_rw_marks:{n}", "x")
	}, false},
	{"a hundred thousand others are marked, and dead", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		for i := range 10 {
			s.Do(t, "EVAL", "for i = 1, 10000 do redis.call('ZADD', KEYS[1], i, ARGV[1] .. i) end", "1", "redlatch_rw_writers:{n}", strconv.Itoa(i)+":")
		}
	}, false},
	{"a long name and an endless place stand in front", func(t *testing.T, s *testbed.Server) {
		t.Helper()
		long := strings.Repeat("x", 1<<20)
		s.Do(t, "ZADD", "redlatch_rw_writers:{n}", "-inf", long)
		s.Do(t, "ZADD", "redlatch_rw_marks:{n}", rwFar, long)
	}, true},
}

// TestRWCrowdTrouble: whatever is wrong with the marks or with whom they name, a free lock is not left lying for more
// than a second while somebody waits to write, and at once it is taken by whoever can be called.
func TestRWCrowdTrouble(t *testing.T) {
	t.Parallel()
	for _, trouble := range rwCrowdTroubles {
		for _, behind := range []string{"a reader", "a writer"} {
			t.Run(trouble.name+"/"+behind, func(t *testing.T) {
				t.Parallel()
				s := rwServer(t)
				l := rwClient(t, s, 30*time.Second).ReadWriteLock("n")
				first := redlatch.Locker(l.ReadLock())
				if behind == "a writer" {
					first = l.WriteLock()
				}
				h := rwLock(t, first, t.Context())
				waiter := bed.Async(t.Context(), rwClient(t, s, 30*time.Second).ReadWriteLock("n", rwTold()).WriteLock())
				rwWaiting(t, s, "writers", 1)
				rwCalled(t, s, 1)
				rwQuiet(t, s)
				trouble.make(t, s)
				began := time.Now()
				rwUnlock(t, h)
				if took := time.Since(began); took > crowdSoon {
					t.Errorf("Unlock took %v", took)
				}
				r := bed.Get(t, waiter)
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				took := r.At.Sub(began)
				t.Logf("after %v", took)
				if took > crowdStands+250*time.Millisecond || trouble.soon && took > crowdSoon {
					t.Errorf("it got the lock after %v", took)
				}
				rwUnlock(t, r.Hold)
				s.Do(t, "DEL", "redlatch_rw_writers:{n}", "redlatch_rw_marks:{n}") // what does not belong there
			})
		}
	}
}

// TestRWCrowdTheFirstLeavesWhenItIsCalled: the first writer leaves just when it is called, or is closed: the next one
// gets the lock.
func TestRWCrowdTheFirstLeavesWhenItIsCalled(t *testing.T) {
	t.Parallel()
	for name, leave := range map[string]func(cancel func(), c *redlatch.Client){
		"its wait ends": func(cancel func(), _ *redlatch.Client) { cancel() },
		"it is closed":  func(_ func(), c *redlatch.Client) { c.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rwServer(t)
			holder, next := rwClient(t, s, 30*time.Second), rwClient(t, s, 30*time.Second)
			for i := range 20 {
				l := holder.ReadWriteLock("n", rwTold())
				by := redlatch.Locker(l.ReadLock())
				if i%2 == 0 {
					by = l.WriteLock()
				}
				h := rwLock(t, by, t.Context())
				c := rwClient(t, s, 30*time.Second)
				ctx, cancel := context.WithCancel(t.Context())
				first := bed.Async(ctx, c.ReadWriteLock("n").WriteLock())
				rwWaiting(t, s, "writers", 1)
				second := bed.Async(t.Context(), next.ReadWriteLock("n", rwTold()).WriteLock())
				rwWaiting(t, s, "writers", 2)
				rwCalled(t, s, 2)
				var both sync.WaitGroup
				both.Go(func() {
					time.Sleep(time.Duration(i) * 50 * time.Microsecond)
					leave(cancel, c)
				})
				rwUnlock(t, h)
				began := time.Now()
				both.Wait()
				if r := bed.Get(t, first); r.Err == nil {
					// What is closed leaves its key to the lease; so it is freed here.
					if err := r.Hold.Unlock(t.Context()); err != nil {
						if _, err := holder.ReadWriteLock("n").ForceUnlock(t.Context()); err != nil {
							t.Error(err)
						}
					}
				}
				r := bed.Get(t, second)
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if took := r.At.Sub(began); took > crowdSoon {
					t.Errorf("turn %d: the second got the lock after %v", i, took)
				}
				rwUnlock(t, r.Hold)
				c.Close()
				cancel()
			}
			rwEventually(t, "nobody is marked", func() bool { return s.Int(t, "EXISTS", "redlatch_rw_writers:{n}") == 0 })
		})
	}
}

// TestRWCrowdForcedOpenAndExpired: a lock that is forced open calls the first writer; one whose lease ends is looked at.
func TestRWCrowdForcedOpenAndExpired(t *testing.T) {
	t.Parallel()
	for name, end := range map[string]func(t *testing.T, s *testbed.Server, c *redlatch.Client) (soon bool){
		"forced open": func(t *testing.T, _ *testbed.Server, c *redlatch.Client) bool {
			t.Helper()
			if ok, err := c.ReadWriteLock("n").ForceUnlock(t.Context()); err != nil || !ok {
				t.Fatal(ok, err)
			}
			return true
		},
		"expired": func(t *testing.T, s *testbed.Server, _ *redlatch.Client) bool {
			t.Helper()
			s.Do(t, "PEXPIRE", "n", "1")
			return false
		},
		"deleted": func(t *testing.T, s *testbed.Server, _ *redlatch.Client) bool {
			t.Helper()
			s.Do(t, "DEL", "n", "redlatch_rw_leases:{n}")
			return false
		},
	} {
		for _, behind := range []string{"a reader", "a writer"} {
			t.Run(name+"/"+behind, func(t *testing.T) {
				t.Parallel()
				s := rwServer(t)
				l := rwClient(t, s, time.Hour).ReadWriteLock("n")
				by := redlatch.Locker(l.ReadLock())
				if behind == "a writer" {
					by = l.WriteLock()
				}
				rwLock(t, by, t.Context())
				waiter := bed.Async(t.Context(), rwClient(t, s, 30*time.Second).ReadWriteLock("n", rwTold()).WriteLock())
				rwWaiting(t, s, "writers", 1)
				rwCalled(t, s, 1)
				rwQuiet(t, s)
				began := time.Now()
				soon := end(t, s, rwClient(t, s, 30*time.Second))
				r := bed.Get(t, waiter)
				if r.Err != nil {
					t.Fatal(r.Err)
				}
				if took := r.At.Sub(began); took > crowdStands || soon && took > crowdSoon {
					t.Errorf("it got the lock after %v", took)
				}
				rwUnlock(t, r.Hold)
				s.Do(t, "FLUSHALL") // the reader's timeout key, which it leaves until its next check
			})
		}
	}
}

// Our writers go on beside another library, whose unlock calls nobody. Who was refused by its hold
// hears its message, whether it had the lock alone, came in among our readers, or the writer that
// is called finds it inside and gives up.
func TestRWCrowdBesideAnotherLibrary(t *testing.T) {
	t.Parallel()
	const channel = "redisson_rwlock:{n}"
	waits := func(t *testing.T, s *testbed.Server, n int64) <-chan bed.Attempt {
		t.Helper()
		w := bed.Async(t.Context(), rwClient(t, s, 30*time.Second).ReadWriteLock("n", rwTold()).WriteLock())
		rwWaiting(t, s, "writers", n)
		return w
	}
	hears := func(t *testing.T, s *testbed.Server, n int64) {
		t.Helper()
		rwEventually(t, "the foreign channel is heard", func() bool {
			msg := s.Do(t, "PUBSUB", "NUMSUB", channel)
			reply, err := msg.ToArray()
			if err != nil || len(reply) != 2 {
				t.Fatal(reply, err)
			}
			got, err := reply[1].AsInt64()
			return err == nil && got == n
		})
		rwQuiet(t, s)
	}
	got := func(t *testing.T, w <-chan bed.Attempt, began time.Time) {
		t.Helper()
		r := bed.Get(t, w)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		if took := r.At.Sub(began); took > crowdSoon {
			t.Errorf("it got the lock after %v", took)
		}
		rwUnlock(t, r.Hold)
	}
	t.Run("its writer", func(t *testing.T) {
		t.Parallel()
		s := rwServer(t)
		s.Do(t, "HSET", "n", "mode", "write", rwForeign+":write", "1")
		s.Do(t, "PEXPIRE", "n", "60000")
		w := waits(t, s, 1)
		hears(t, s, 1)
		began := time.Now()
		s.Do(t, "DEL", "n")
		s.Do(t, "PUBLISH", channel, "1")
		got(t, w, began)
	})
	t.Run("its reader among ours", func(t *testing.T) {
		t.Parallel()
		s := rwServer(t)
		h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock(), t.Context())
		w := waits(t, s, 1)
		rwCalled(t, s, 1)
		rwQuiet(t, s)
		rwForeignReads(t, s, 1, 1, time.Minute)
		rwUnlock(t, h) // the writer is called, to hear of it
		hears(t, s, 1)
		began := time.Now()
		s.Do(t, "DEL", "n", "{n}:"+rwForeign+":rwlock_timeout:1")
		s.Do(t, "PUBLISH", channel, "0")
		got(t, w, began)
	})
	t.Run("its writer came between", func(t *testing.T) {
		t.Parallel()
		s := rwServer(t)
		s.Do(t, "HSET", "n", "mode", "write", rwForeign+":write", "1")
		s.Do(t, "PEXPIRE", "n", "60000")
		ctx, cancel := context.WithCancel(t.Context())
		first := bed.Async(ctx, rwClient(t, s, 30*time.Second).ReadWriteLock("n", rwTold()).WriteLock())
		rwWaiting(t, s, "writers", 1)
		second := waits(t, s, 2)
		hears(t, s, 2)
		cancel()
		bed.Get(t, first)
		began := time.Now()
		s.Do(t, "DEL", "n")
		s.Do(t, "PUBLISH", channel, "1")
		got(t, second, began)
	})
}

// TestRWCrowdReadersEnterThoughTheFirstWriterIsDead: readers that stand back for a writer enter when the last reader
// leaves and that writer, and every other, is dead.
func TestRWCrowdReadersEnterThoughTheFirstWriterIsDead(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock(), t.Context())
	rwMark(t, s, rwStranger(1))
	reader := bed.Async(t.Context(), rwClient(t, s, 30*time.Second).ReadWriteLock("n", rwTold()).ReadLock())
	rwWaiting(t, s, "readers", 1)
	rwQuiet(t, s)
	rlBlocked(t, reader)
	began := time.Now()
	rwUnlock(t, h)
	r := bed.Get(t, reader)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if took := r.At.Sub(began); took > crowdSoon {
		t.Errorf("it got the lock after %v", took)
	}
	rwUnlock(t, r.Hold)
}

// rwEnters fails unless a reader that waits is inside within a second of when the last mark before it counts no more.
func rwEnters(t *testing.T, reader <-chan bed.Attempt, began time.Time) {
	t.Helper()
	r := bed.Get(t, reader)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	took := r.At.Sub(began)
	t.Logf("after %v", took)
	if took > crowdStands+250*time.Millisecond {
		t.Errorf("it got the lock after %v", took)
	}
	rwUnlock(t, r.Hold)
}

// TestRWCrowdReadersLook: readers that stood back for a writer enter within a second of when its mark counts no more,
// however long it would have counted and whoever has entered meanwhile. Nobody tells them of that.
func TestRWCrowdReadersLook(t *testing.T) {
	t.Parallel()
	const skip = time.Minute
	behind := func(t *testing.T, s *testbed.Server) <-chan bed.Attempt {
		t.Helper()
		reader := bed.Async(t.Context(), rwClient(t, s, 30*time.Second).ReadWriteLock("n", rwlock.WithSkipAfter(skip)).ReadLock())
		rwWaiting(t, s, "readers", 1)
		rwQuiet(t, s)
		rlBlocked(t, reader)
		return reader
	}
	forget := func(t *testing.T, s *testbed.Server) {
		t.Helper()
		s.Do(t, "DEL", "redlatch_rw_writers:{n}", "redlatch_rw_marks:{n}") // what does not belong there
	}
	for name, later := range map[string]bool{"a writer that is called stands still": false, "and readers that came later stay": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := rwServer(t)
			h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock(), t.Context())
			rwHears(t, s, rwStranger(1))
			rwMark(t, s, rwStranger(1))
			reader := behind(t, s)
			began := time.Now()
			rwUnlock(t, h)
			if later {
				l := rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock()
				rwEventually(t, "a later one enters", func() bool {
					h, err := l.TryLock(t.Context(), 0, 0)
					if err == nil {
						t.Cleanup(func() { rwUnlock(t, h) })
					}
					return err == nil
				})
			}
			rwEnters(t, reader, began)
			forget(t, s)
		})
	}
	t.Run("the lock's lease ends", func(t *testing.T) {
		t.Parallel()
		for name, heard := range map[string]bool{"and the writer is dead": false, "and the writer stands still": true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := rwServer(t)
				const lease = 2 * time.Second
				rwLock(t, rwClient(t, s, time.Hour).ReadWriteLock("n").WriteLock(), t.Context(), redlatch.WithLease(lease))
				ends := time.Now().Add(lease)
				if heard {
					rwHears(t, s, rwStranger(1))
				}
				rwMark(t, s, rwStranger(1))
				reader := behind(t, s)
				rwEnters(t, reader, ends)
				forget(t, s)
			})
		}
	})
	t.Run("the writer is found dead while others read", func(t *testing.T) {
		t.Parallel()
		s := rwServer(t)
		long := rwLock(t, rwClient(t, s, time.Hour).ReadWriteLock("n").ReadLock(), t.Context())
		h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").ReadLock(), t.Context())
		rwMark(t, s, rwStranger(1))
		reader := behind(t, s)
		began := time.Now()
		rwUnlock(t, long) // which calls the writer, to look: the lock ends far sooner
		if n := s.Int(t, "EXISTS", "redlatch_rw_writers:{n}"); n != 0 {
			t.Error("the mark of a dead writer stayed: this test shows nothing")
		}
		rwEnters(t, reader, began)
		rwUnlock(t, h)
	})
}

// TestRWCrowdReadersLookTogether: those of one client that stand behind a writer's mark look by one command a second,
// whatever their number, up to what one command takes.
func TestRWCrowdReadersLookTogether(t *testing.T) {
	t.Parallel()
	const readers, seconds = 100, 3
	s := rwServer(t)
	h := rwLock(t, rwClient(t, s, time.Hour).ReadWriteLock("n").ReadLock(), t.Context())
	rwMark(t, s, rwStranger(1))
	l := rwClient(t, s, time.Hour).ReadWriteLock("n", rwTold()).ReadLock()
	waiting := make([]<-chan bed.Attempt, readers)
	for i := range waiting {
		waiting[i] = bed.Async(t.Context(), l)
	}
	rwWaiting(t, s, "readers", readers)
	rwQuiet(t, s)
	before, began := s.CommandStats(t), time.Now()
	time.Sleep(seconds * time.Second)
	n := s.CommandStats(t).Sub(before).Calls["evalsha"]
	// They have come one after the other, and what is due within an eighth of the second goes with the first.
	if limit := 8 * int64(time.Since(began)/time.Second+1); n > limit {
		t.Errorf("%d commands in %d s", n, seconds)
	}
	t.Logf("%d commands", n)
	rwUnlock(t, h)
	for _, w := range waiting {
		r := bed.Get(t, w)
		if r.Err != nil {
			t.Fatal(r.Err)
		}
		rwUnlock(t, r.Hold)
	}
}

// TestRWCrowdAForgedCall: who has the right to publish can make a client ask, once for each message, and no more.
func TestRWCrowdAForgedCall(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	c := rwClient(t, s, 30*time.Second)
	h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").WriteLock(), t.Context())
	waiter := bed.Async(t.Context(), c.ReadWriteLock("n", rwTold()).WriteLock())
	rwWaiting(t, s, "writers", 1)
	rwCalled(t, s, 1)
	rwQuiet(t, s)
	before := s.CommandStats(t)
	const forged = 10
	for _, place := range []string{"0", "1", "x", "-1", "1700000000000000", "99999999999999999999", "", "nan", "1e3", "s"} {
		s.Do(t, "PUBLISH", rlCalls("n")+c.ID()+":write", place)
		time.Sleep(20 * time.Millisecond)
	}
	rlBlocked(t, waiter)
	if n := s.CommandStats(t).Sub(before).Calls["evalsha"]; n > forged+3 {
		t.Errorf("%d commands for %d forged calls", n, forged)
	}
	rwUnlock(t, h)
	r := bed.Get(t, waiter)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	rwUnlock(t, r.Hold)
}

// Writers of one process that ask at the same time don't stand back for each other, though they
// leave their marks in another order than that in which they stand in line.
func TestRWCrowdSeveralOfOneProcess(t *testing.T) {
	t.Parallel()
	s := rwServer(t)
	c := rwClient(t, s, 30*time.Second)
	h := rwLock(t, rwClient(t, s, 30*time.Second).ReadWriteLock("n").WriteLock(), t.Context())
	waiter := bed.Async(t.Context(), c.ReadWriteLock("n", rwTold()).WriteLock())
	rwWaiting(t, s, "writers", 1)
	rwCalled(t, s, 1)
	rwQuiet(t, s)
	for i := range 8 {
		rwMark(t, s, fmt.Sprintf("%s:g99-x.%d", c.ID(), i))
	}
	began := time.Now()
	rwUnlock(t, h)
	r := bed.Get(t, waiter)
	if r.Err != nil {
		t.Fatal(r.Err)
	}
	if took := r.At.Sub(began); took > crowdSoon {
		t.Errorf("it got the lock after %v", took)
	}
	rwUnlock(t, r.Hold)
	s.Do(t, "DEL", "redlatch_rw_writers:{n}", "redlatch_rw_marks:{n}")
}
