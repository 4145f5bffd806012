package redlatchtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

// stater is what all single locks have besides being Lockers.
type stater interface {
	redlatch.Locker
	State(ctx context.Context) (redlatch.State, error)
	ForceUnlock(ctx context.Context) (bool, error)
}

// kinds makes one lock of each kind.
var kinds = map[string]func(c *redlatch.Client, name string) redlatch.Locker{
	"rlock":  func(c *redlatch.Client, name string) redlatch.Locker { return c.RLock(name) },
	"fenced": func(c *redlatch.Client, name string) redlatch.Locker { return c.RLock(name, redlatch.Fenced()) },
	"fair":   func(c *redlatch.Client, name string) redlatch.Locker { return c.FairLock(name, redlatch.Fenced()) },
	"write": func(c *redlatch.Client, name string) redlatch.Locker {
		return c.ReadWriteLock(name, redlatch.Fenced()).WriteLock()
	},
	"multi": func(c *redlatch.Client, name string) redlatch.Locker {
		return redlatch.MultiLock(c.RLock(name+"1"), c.RLock(name+"2"), c.FairLock(name+"3"))
	},
}

// outage is a wait after which a server that is down is unavailable for certain: a
// second of silence says so, even if the machine is too busy to see the connection fail.
const outage = 2 * time.Second

// where runs a test with the clock of the bubble and with the real one.
func where(t *testing.T, test func(t *testing.T)) {
	t.Run("bubble", func(t *testing.T) { synctest.Test(t, test) })
	t.Run("real time", test)
}

// Every kind: taken, re-entered, waited for, extended, unlocked; with tokens that rise.
func TestEveryKind(t *testing.T) {
	where(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		a, b := s.Client(), s.Client()
		for kind, lock := range kinds {
			ctx := t.Context()
			h := mustLock(t, ctx, lock(a, kind))
			nested := mustLock(t, h.Context(), lock(a, kind))
			wants(t, errors.Join(nested.Extend(ctx, time.Minute), nested.Unlock(ctx)), nil)
			refuses(t, lock(b, kind), 0, redlatch.ErrNotAcquired)
			if l, ok := lock(b, kind).(stater); ok {
				if st, err := l.State(ctx); err != nil || !st.Held || len(st.Holders) == 0 {
					t.Errorf("%s: %+v, %v", kind, st, err)
				}
			}
			var wg sync.WaitGroup
			var tokens [3]uint64
			for i := range tokens {
				wg.Go(func() {
					next := mustLock(t, ctx, lock(b, kind))
					tokens[i] = next.Token()
					mustUnlock(t, next)
				})
			}
			time.Sleep(50 * time.Millisecond) // most of them wait by now; they need not
			mustUnlock(t, h)
			wg.Wait()
			for _, token := range tokens {
				if (h.Token() != 0 || kind == "fenced") && token <= h.Token() {
					t.Errorf("%s: token %d after %d", kind, token, h.Token())
				}
			}
			if l, ok := lock(b, kind).(stater); ok {
				mustLock(t, ctx, lock(a, kind))
				if freed, err := l.ForceUnlock(ctx); !freed || err != nil {
					t.Errorf("%s: %t, %v", kind, freed, err)
				}
			}
		}
		testbed.Equal(t, fmt.Sprint(s.Held()), "[]", "held in the end")
	})
}

func TestReadersAndWriters(t *testing.T) {
	where(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		ctx := t.Context()
		rw := s.Client().ReadWriteLock("prices", redlatch.WithSkipAfter(time.Second))
		readers := []redlatch.Hold{mustLock(t, ctx, rw.ReadLock()), mustLock(t, ctx, rw.ReadLock()), mustLock(t, ctx, rw.ReadLock())}
		_, err := rw.WriteLock().Lock(readers[0].Context())
		wants(t, err, redlatch.ErrUpgrade)
		if held := s.Held(); len(held) != 1 || held[0].Name != rw.Name() || held[0].Mode != redlatch.ModeRead || len(held[0].Holders) != 3 {
			t.Errorf("%+v", held)
		}
		got := make(chan redlatch.Hold, 1)
		go func() { got <- mustLock(t, ctx, s.Other().ReadWriteLock("prices").WriteLock()) }()
		mustUnlock(t, readers...)
		w := <-got
		if held := s.Held(); len(held) != 1 || held[0].Mode != redlatch.ModeWrite {
			t.Errorf("%+v", held)
		}
		mustUnlock(t, w)
	})
}

func TestFairOrder(t *testing.T) {
	where(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		lock := s.Client().FairLock("printer")
		first := mustLock(t, t.Context(), s.Other().FairLock("printer"))
		var mu sync.Mutex
		var order []int
		var wg sync.WaitGroup
		for i := range 4 {
			wg.Go(func() {
				wants(t, lock.Do(t.Context(), func(context.Context) error {
					mu.Lock()
					defer mu.Unlock()
					order = append(order, i)
					return nil
				}), nil)
			})
			for {
				if st, err := lock.State(t.Context()); err != nil || st.QueueLength == i+1 {
					break
				}
				time.Sleep(time.Millisecond)
			}
		}
		mustUnlock(t, first)
		wg.Wait()
		testbed.Equal(t, fmt.Sprint(order), "[0 1 2 3]", "the order")
	})
}

// copiesOf are three servers, and a lock's copies on each, of one client and of another.
func copiesOf(t *testing.T, opts ...redlatch.ConfigOption) (servers []*redlatchtest.Server, ours, theirs []redlatch.Member) {
	t.Helper()
	for range 3 {
		s := redlatchtest.NewServer(t)
		servers = append(servers, s)
		ours = append(ours, s.Client(opts...).RLock("payment"))
		theirs = append(theirs, s.Other().RLock("payment"))
	}
	return servers, ours, theirs
}

// Three servers make a quorum; one of them may go.
func TestQuorum(t *testing.T) {
	where(t, func(t *testing.T) {
		servers, ours, _ := copiesOf(t, redlatch.WithUnlockTimeout(2*time.Second))
		lock := redlatch.QuorumLock(ours...)
		servers[2].Down()
		passes(t, lock)
		passes(t, lock)
		servers[1].Down()
		refuses(t, lock, outage, redlatch.ErrUnavailable)
		servers[1].Up()
		passes(t, lock)
	})
}

// TestQuorumTurnTooShort: whose turn in the line comes at the very end of its wait is told who holds
// the lock, although no server had the time to answer it.
func TestQuorumTurnTooShort(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		servers, ours, theirs := copiesOf(t)
		h := mustLock(t, t.Context(), redlatch.QuorumLock(theirs...))
		errs := make(chan error, 3)
		for i := range cap(errs) {
			go func() {
				wait := time.Second + time.Duration(i)*20*time.Millisecond
				_, err := redlatch.QuorumLock(ours...).TryLock(t.Context(), wait, 0)
				errs <- err
			}()
		}
		time.Sleep(950 * time.Millisecond)
		for _, s := range servers {
			s.Freeze()
		}
		for range cap(errs) {
			var busy *redlatch.NotAcquiredError
			err := <-errs
			if !errors.As(err, &busy) || busy.Holder == "" || busy.Remaining <= 0 || errors.Is(err, redlatch.ErrUnavailable) {
				t.Errorf("no holder, or an outage: %v", err)
			}
		}
		for _, s := range servers {
			s.Thaw()
		}
		mustUnlock(t, h)
	})
}

// Both clocks are the bubble's: a lease ends for the server and for its holder.
func TestLeasesEnd(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		c := s.Client()
		h := mustLock(t, t.Context(), c.RLock("import"), redlatch.WithLease(time.Hour))
		began := time.Now()
		next := mustLock(t, t.Context(), s.Other().RLock("import"))
		if took := time.Since(began); took < time.Hour || took > time.Hour+time.Second {
			t.Errorf("the next one entered after %v", took)
		}
		lost(t, h)
		// Kept by the watchdog it lasts.
		time.Sleep(time.Hour)
		mustUnlock(t, next)
	})
}

// A lock whose lease has ended is gone for the one who looks, whether or not a client has
// spoken with the server since.
func TestLoseAndHeldAfterTheLease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		s.Take("a")
		s.Other().Close() // a crash: nobody renews
		time.Sleep(29 * time.Second)
		testbed.Equal(t, len(s.Held()), 1, "held within the lease")
		time.Sleep(2 * time.Second)
		testbed.Equal(t, s.Lose("a"), false, "whether a lock was lost whose lease had ended")
		testbed.Equal(t, fmt.Sprint(s.Held()), "[]", "held after the lease")
	})
}

// application is a client of an application's, made of the server's options.
func application(t *testing.T, s *redlatchtest.Server) rueidis.Client {
	t.Helper()
	app, err := rueidis.NewClient(s.Options())
	testbed.Must(t, err)
	t.Cleanup(app.Close)
	return app
}

// A script sees one moment of the server's clock, as on a real server: a key does not end
// between two of its calls. The lock's scripts count on it.
func TestTimeStandsStillInAScript(t *testing.T) {
	where(t, func(t *testing.T) {
		s := redlatchtest.NewServer(t)
		app := application(t, s)
		// The calls take more than the key's time to live.
		const script = `redis.call('SET', KEYS[1], 'v', 'PX', 1)
local began, now = redis.call('TIME'), nil
for _ = 1, 5000 do now = redis.call('TIME') end
local same = began[1] == now[1] and began[2] == now[2]
return {same and 1 or 0, redis.call('EXISTS', KEYS[1]), redis.call('PTTL', KEYS[1])}`
		got, err := app.Do(t.Context(), app.B().Eval().Script(script).Numkeys(1).Key("k").Build()).AsIntSlice()
		testbed.Must(t, err)
		testbed.Equal(t, fmt.Sprint(got), "[1 1 1]", "same time, exists, PTTL")
		// It stands still no longer than that.
		time.Sleep(2 * time.Millisecond)
		if n, err := app.Do(t.Context(), app.B().Exists().Key("k").Build()).AsInt64(); err != nil || n != 0 {
			t.Errorf("after the script: %d, %v", n, err)
		}
	})
}

func TestTakeAndHeld(t *testing.T) {
	s := redlatchtest.NewServer(t)
	c := s.Client(redlatch.WithPrefix("shop:"))
	theirs := s.Take("shop:orders:42")
	_, err := c.RLock("orders:42").TryLock(t.Context(), 0, 0)
	var busy *redlatch.NotAcquiredError
	if !errors.As(err, &busy) || !strings.HasPrefix(busy.Holder, s.Other().ID()) {
		t.Error(err)
	}
	mine := mustLock(t, t.Context(), c.FairLock("queue"))
	held := s.Held()
	if len(held) != 2 || held[0].Name != "shop:orders:42" || held[1].Name != "shop:queue" || held[1].Holders[0].Count != 1 {
		t.Errorf("%+v", held)
	}
	mustUnlock(t, theirs, mine)
	testbed.Equal(t, fmt.Sprint(s.Held()), "[]", "held in the end")
}

// A client made of the options, for the application's data and for NewWithClient.
func TestOptions(t *testing.T) {
	s := redlatchtest.NewServer(t)
	app := application(t, s)
	c, err := redlatch.NewWithClient(app, redlatch.Config{Redis: s.Options()})
	testbed.Must(t, err)
	defer c.Close()
	testbed.Must(t, c.RLock("a").Do(t.Context(), func(ctx context.Context) error {
		return app.Do(ctx, app.B().Set().Key("k").Value("v").Build()).Error()
	}))
}

// The same server on a port, for other processes; Down counts there, too.
func TestURL(t *testing.T) {
	s := redlatchtest.NewServer(t)
	testbed.Equal(t, s.URL(), s.URL(), "the address, asked for twice")
	c, err := redlatch.Open(s.URL())
	testbed.Must(t, err)
	defer c.Close()
	theirs := s.Take("a")
	refuses(t, c.RLock("a"), 0, redlatch.ErrNotAcquired)
	mustUnlock(t, theirs)
	s.Down()
	_, err = redlatch.Open(s.URL(), redlatch.MustConnect())
	wants(t, err, redlatch.ErrUnavailable)
	s.Up()
	passes(t, c.RLock("a"))
}

// Replica acks are asked for as on a server without replicas.
func TestReplicaAcks(t *testing.T) {
	c := redlatchtest.New(t, redlatch.WithReplicaAcks(1, 50*time.Millisecond))
	refuses(t, c.RLock("a"), 0, redlatch.ErrReplicaAcks)
}
