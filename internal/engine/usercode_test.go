package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// Code of the user's (an observer, a log handler) may block, be slow or panic. These tests say
// what that costs: see "Code of the user's" in docs/DESIGN.md.

// users is an observer that calls a user's code: at is told where.
type users struct {
	at func(ctx context.Context, where string, err error)
}

// The points that at is told of, besides "command:" and "command end:" with a script's name.
const (
	atRelease    = "operation:" + observe.Release
	atReleaseEnd = "operation end:" + observe.Release
	atExtend     = "operation:" + observe.Extend
	atExtendEnd  = "operation end:" + observe.Extend
)

func (o *users) Acquire(ctx context.Context, _ observe.Lock, _, _ time.Duration) (context.Context, observe.Acquisition) {
	o.at(ctx, "acquire", nil)
	return ctx, users1{o, ctx}
}
func (o *users) Operation(ctx context.Context, _ observe.Lock, op, _ string) (context.Context, observe.End) {
	o.at(ctx, "operation:"+op, nil)
	return ctx, func(err error, _ ...observe.Note) { o.at(ctx, "operation end:"+op, err) }
}
func (o *users) Carries(context.Context) bool { return true }
func (o *users) Command(ctx context.Context, script string, _ time.Time) (context.Context, func(error)) {
	o.at(ctx, "command:"+script, nil)
	return ctx, func(err error) { o.at(ctx, "command end:"+script, err) }
}
func (o *users) Batch(string, int, time.Time, error) { o.at(context.Background(), "batch", nil) }
func (o *users) Counting() bool                      { return true }
func (o *users) Held(observe.Lock)                   { o.at(context.Background(), "held", nil) }
func (o *users) Ended(l observe.Lock, _ any, _ bool, how string, _ time.Duration) {
	o.at(context.Background(), "ended:"+how+":"+l.Name, nil)
}
func (o *users) Renewals() bool { return true }
func (o *users) Renewed(_ observe.Lock, _ string, _ any, _ time.Time, _ bool, err error) {
	o.at(context.Background(), "renewed", err)
}
func (o *users) TraceOf(context.Context, any) (traceID, spanID string) { return "", "" }

// users1 is an acquisition of theirs.
type users1 struct {
	o   *users
	ctx context.Context
}

func (a users1) Trace() string            { a.o.at(a.ctx, "trace", nil); return "" }
func (a users1) Attempt()                 { a.o.at(a.ctx, "attempt", nil) }
func (a users1) Busy(string, string, int) { a.o.at(a.ctx, "busy", nil) }
func (a users1) Wait()                    { a.o.at(a.ctx, "wait", nil) }
func (a users1) End(observe.Result)       { a.o.at(a.ctx, "end", nil) }
func (a users1) Link() any                { a.o.at(a.ctx, "link", nil); return nil }

// blocksAt is an observer whose code blocks at a point until open is closed.
func blocksAt(where string, open chan struct{}) *users {
	return &users{func(_ context.Context, at string, _ error) {
		if at == where {
			<-open
		}
	}}
}

// holds up to what is told: a core with an observer or a log handler of the test's.
func withUsers(t *testing.T, o observe.Observer, log slog.Handler) (*fakeRedis, *engine.Core) {
	t.Helper()
	return newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
		cfg.LeaseTime = leaseTime
		if o != nil {
			cfg.Observer = o
		}
		if log != nil {
			cfg.Log = slog.New(log)
		}
	})
}

// closes fails unless the core closes in time, whoever blocks.
func closes(t *testing.T, core *engine.Core) {
	t.Helper()
	closed := make(chan struct{})
	began := time.Now()
	go func() {
		core.Close()
		core.Wait()
		close(closed)
	}()
	select {
	case <-closed:
		if took := time.Since(began); took > 2*core.UnlockTimeout() {
			t.Errorf("Close took %v", took)
		}
	case <-time.After(time.Hour):
		t.Error("Close has not returned after an hour")
	}
}

// stalls answers nothing of what is asked for a key "stuck".
type stalls struct {
	f    *fakeRedis
	open chan struct{}
}

func (s stalls) Topology() conn.Topology { return conn.Topology{} }
func (s stalls) Run(ctx context.Context, cmd conn.Command) (conn.Reply, error) {
	if cmd.Keys[0] == "stuck" {
		<-s.open
	}
	return s.f.Run(ctx, cmd)
}
func (s stalls) RunMulti(ctx context.Context, cmds []conn.Command, _ []conn.Result) []conn.Result {
	return side(ctx, s.Run, cmds)
}

// The span of a command that is withdrawn ends in a user's code. While that blocks, the holds of
// others end at their deadlines all the same. (In real time: a mutex that it could block under
// would stop the clock of a bubble.)
func TestObserverOfAWithdrawnCommandHoldsNothingUp(t *testing.T) {
	const leaseTime = 600 * time.Millisecond
	const many = 64 // more than are sent at a time
	blocks, open, stuck := make(chan struct{}, many), make(chan struct{}), make(chan struct{})
	asked := make(chan struct{}, 2*many)
	o := &users{func(ctx context.Context, where string, err error) {
		if where == "command:acquire" && ctx.Value(stuck) != nil {
			asked <- struct{}{}
		}
		if strings.HasPrefix(where, "command end:") && errors.Is(err, context.Canceled) {
			blocks <- struct{}{}
			<-open
		}
	}}
	f := &fakeRedis{keys: map[string]*fakeKey{}, void: map[string]bool{}}
	core := engine.NewCore(engine.Config{
		ID: "00000000-0000-0000-0000-00000000000c", LeaseTime: leaseTime, UnlockTimeout: time.Second,
		FenceTTL: time.Hour, Log: slog.New(slog.DiscardHandler), Observer: o,
	}, stalls{f, stuck}, pubsub.NewHub(f, nil))
	t.Cleanup(func() { core.Close(); core.Wait() })
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), stuck, true))
	defer cancel()
	h, err := engine.Open(new(rlock.RLock), core, "l").Lock(t.Context(), lock.WithLease(3*time.Second)) // checked every 200 ms
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range many {
		all.Go(func() { _, _ = engine.Open(new(rlock.RLock), core, "stuck").TryLock(ctx, time.Minute, 0) })
	}
	for range many {
		<-asked
	}
	cancel() // most were not sent yet: they are withdrawn
	select {
	case <-blocks:
	case <-time.After(time.Minute):
		t.Error("no command was withdrawn")
	}
	select {
	case <-h.Context().Done():
	case <-time.After(30 * time.Second):
		t.Errorf("%v after the deadline the hold's context has not ended", time.Since(h.ValidUntil()))
	}
	close(open)
	close(stuck)
	all.Wait()
}

// The spans of commands end in the calls that they belong to: while the code of some blocks
// there, more of them than there are carriers, others lock and unlock.
func TestObserverOfACommandBlocksItsCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		type slow struct{}
		open := make(chan struct{})
		defer close(open)
		o := &users{func(ctx context.Context, where string, _ error) {
			if ctx.Value(slow{}) != nil && strings.HasPrefix(where, "command end:") {
				<-open
			}
		}}
		_, core := withUsers(t, o, nil)
		ctx := context.WithValue(t.Context(), slow{}, true)
		var holds []lock.Hold
		for i := range 50 {
			holds = append(holds, take(t, t.Context(), core, fmt.Sprint("held", i)))
		}
		for i, h := range holds {
			go func() { _ = h.Unlock(ctx) }()
			go func() {
				if h, err := engine.Open(new(rlock.RLock), core, fmt.Sprint("free", i)).Lock(ctx); err == nil {
					_ = h.Unlock(ctx)
				}
			}()
		}
		synctest.Wait()
		for range 10 {
			h := start(func() (lock.Hold, error) {
				return engine.Open(new(rlock.RLock), core, "l").TryLock(t.Context(), time.Second, 0)
			}).has(t, "another")
			if err := h.Unlock(t.Context()); err != nil {
				t.Error(err)
			}
		}
	})
}

// The end of one hold is told to an observer; the others end at their deadlines meanwhile, and
// those that live on are renewed.
func TestObserverOfAnEndHoldsUpNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		open := make(chan struct{})
		_, core := withUsers(t, blocksAt("ended:expired:one", open), nil)
		one := take(t, t.Context(), core, "one", lock.WithLease(time.Second))
		two := take(t, t.Context(), core, "two", lock.WithLease(5*time.Second))
		kept := take(t, t.Context(), core, "kept")
		first, second := one.Context(), two.Context()
		time.Sleep(10 * time.Second)
		if first.Err() == nil || second.Err() == nil {
			t.Errorf("the leases ended %v and %v ago; ended: %v, %v", 9*time.Second, 5*time.Second, first.Err() != nil, second.Err() != nil)
		}
		time.Sleep(3 * leaseTime)
		if err := kept.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		close(open)
	})
}

// Who lost the lock is told before anybody else is, of the loss or of the check that found it, and
// checks and renewals go on while that is told.
func TestObserverDoesNotDelayTheNewsOfALoss(t *testing.T) {
	for _, where := range []string{"renewed", "batch", "ended:lost:l"} {
		synctest.Test(t, func(t *testing.T) {
			open := make(chan struct{})
			f, core := withUsers(t, blocksAt(where, open), nil)
			h, kept := take(t, t.Context(), core, "l"), take(t, t.Context(), core, "kept")
			work := h.Context()
			f.mu.Lock()
			delete(f.keys, "l") // somebody else may take it
			f.mu.Unlock()
			time.Sleep(leaseTime / 2)
			if work.Err() == nil {
				t.Errorf("%s: %v after a check found the loss the context goes on, for another %v", where, leaseTime/2-leaseTime/3,
					time.Until(h.ValidUntil()))
			}
			time.Sleep(10 * leaseTime)
			if err := kept.Unlock(t.Context()); err != nil {
				t.Errorf("%s: the hold that was to be kept: %v", where, err)
			}
			_ = h.Unlock(context.Background())
			close(open)
		})
	}
}

// What is told of a hold comes in the order in which it happened.
func TestOrderOfNews(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var told []string
		note := func(what string) {
			mu.Lock()
			defer mu.Unlock()
			told = append(told, what)
		}
		o := &users{func(_ context.Context, where string, _ error) {
			if where == "end" || strings.HasPrefix(where, "ended:") || where == atReleaseEnd {
				note(where)
			}
		}}
		f, core := withUsers(t, o, logFunc(func(msg string) { note(msg) }))
		h := take(t, t.Context(), core, "l")
		f.mu.Lock()
		delete(f.keys, "l")
		f.mu.Unlock()
		<-h.Context().Done()
		synctest.Wait()
		if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrLeaseLost) {
			t.Error(err)
		}
		h = take(t, t.Context(), core, "l")
		if err := h.Unlock(t.Context()); err != nil {
			t.Error(err)
		}
		// No waiting: a call's own news have been told when it returns.
		want := "end, ended:lost:l, redlatch: lease lost, " + atReleaseEnd + ", end, ended:released:l, " + atReleaseEnd
		mu.Lock()
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("told:\n%s, want\n%s", got, want)
		}
		told = nil
		mu.Unlock()
		h = take(t, t.Context(), core, "l") // now the Unlock finds that it was lost
		f.mu.Lock()
		delete(f.keys, "l")
		f.mu.Unlock()
		if err := h.Unlock(t.Context()); !errors.Is(err, lock.ErrLeaseLost) {
			t.Error(err)
		}
		want = "end, ended:lost:l, " + atReleaseEnd
		mu.Lock()
		defer mu.Unlock()
		told = slices.DeleteFunc(told, func(what string) bool { return what == "redlatch: lease lost" }) // told meanwhile, or later
		if got := strings.Join(told, ", "); got != want {
			t.Errorf("told:\n%s, want\n%s", got, want)
		}
	})
}

// logFunc is a log handler.
type logFunc func(msg string)

func (l logFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (l logFunc) Handle(_ context.Context, r slog.Record) error { l(r.Message); return nil }
func (l logFunc) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l logFunc) WithGroup(string) slog.Handler                 { return l }

// Close ends within its time, whatever a log handler or an observer does, in the background
// or in a call.
func TestCloseWaitsForNoCodeOfTheUsers(t *testing.T) {
	for _, where := range []string{"log", "ended:expired:l", "ended:closed:kept", "batch", "end", "command:acquire"} {
		synctest.Test(t, func(t *testing.T) {
			open := make(chan struct{})
			var blocking atomic.Bool
			var log slog.Handler
			if where == "log" {
				log = slowLog{open}
			}
			_, core := withUsers(t, &users{func(_ context.Context, at string, _ error) {
				if blocking.Load() && at == where {
					<-open
				}
			}}, log)
			h := take(t, t.Context(), core, "l", lock.WithLease(leaseTime/2))
			take(t, t.Context(), core, "kept")
			blocking.Store(true)
			go func() { _, _ = engine.Open(new(rlock.RLock), core, "m").Lock(t.Context()) }()
			<-h.Context().Done()
			closes(t, core)
			close(open)
			synctest.Wait()
		})
	}
}

// A log handler that blocks holds up no call beyond its own limit: the call that found the loss
// neither, nor what its owner does next.
func TestLogHandlerHoldsUpNoCall(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, core *engine.Core, h lock.Hold) error{
		"Extend": func(ctx context.Context, _ *engine.Core, h lock.Hold) error {
			if err := h.Extend(ctx, time.Minute); !errors.Is(err, lock.ErrLeaseLost) {
				return err
			}
			return nil
		},
		"Lock": func(ctx context.Context, core *engine.Core, _ lock.Hold) error {
			_, err := engine.Open(new(rlock.RLock), core, "l").TryLock(ctx, time.Second, 0)
			return err
		},
		"Unlock": func(ctx context.Context, _ *engine.Core, h lock.Hold) error {
			if err := h.Unlock(ctx); !errors.Is(err, lock.ErrLeaseLost) {
				return err
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slowLog{make(chan struct{})}
				f, core := withUsers(t, nil, log)
				job := held.WithOwner(t.Context(), "job")
				ctx, cancel := context.WithTimeout(job, time.Second)
				defer cancel()
				h := take(t, job, core, "l")
				f.mu.Lock()
				delete(f.keys, "l")
				f.mu.Unlock()
				over, failed := false, error(nil)
				go func() {
					failed = call(ctx, core, h)
					over = true
				}()
				time.Sleep(time.Minute)
				synctest.Wait()
				if !over {
					t.Error("a minute after the end of its ctx the call has not returned")
				}
				if failed != nil {
					t.Error("not what it would return otherwise:", failed)
				}
				next := start(func() (lock.Hold, error) { return engine.Open(new(rlock.RLock), core, "l").TryLock(job, 0, 0) })
				_ = next.has(t, "the same owner").Unlock(t.Context())
				close(log.released)
				synctest.Wait()
			})
		})
	}
}
