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

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/lease"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/lock"
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

// withUsers starts a core with an observer or a log handler of the test's.
func withUsers(t *testing.T, o observe.Observer, log slog.Handler) (*fakeRedis, *engine.Core) {
	t.Helper()
	return newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
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
		testbed.AtMost(t, time.Since(began), 2*core.UnlockTimeout(), "Close took")
	case <-time.After(time.Hour):
		t.Error("Close has not returned after an hour")
	}
}

// The span of a command that is withdrawn ends in a user's code. While that blocks, the holds of
// others end at their deadlines all the same. (In real time: a mutex that it could block under
// would stop the clock of a bubble.)
func TestObserverOfAWithdrawnCommandHoldsNothingUp(t *testing.T) {
	const many = 64 // more than are sent at a time
	blocks, open, stuck := make(chan struct{}, many), make(chan struct{}), make(chan struct{})
	asked := make(chan struct{}, 2*many)
	f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
		cfg.LeaseTime, cfg.UnlockTimeout = 600*time.Millisecond, time.Second
		cfg.Observer = &users{func(ctx context.Context, where string, err error) {
			if where == "command:acquire" && ctx.Value(stuck) != nil {
				asked <- struct{}{}
			}
			if strings.HasPrefix(where, "command end:") && errors.Is(err, context.Canceled) {
				blocks <- struct{}{}
				<-open
			}
		}}
	})
	f.onBefore(fault{key: "stuck", do: func() { <-stuck }}.hook())
	ctx, cancel := context.WithCancel(context.WithValue(t.Context(), stuck, true))
	defer cancel()
	h := take(t, t.Context(), core, "l", lock.WithLease(3*time.Second)) // checked every 200 ms
	var all sync.WaitGroup
	for range many {
		all.Go(func() { _, _ = plain(core, "stuck").TryLock(ctx, time.Minute, 0) })
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
	hasEnded(t, h)
	close(open)
	close(stuck)
	all.Wait()
}

// Code of the user's that blocks, about some locks, holds up nobody else, wherever it is called: the others end at
// their deadlines, are found lost, renewed, locked and unlocked as ever; what a caller who has gone left on the
// server is given back; and Close ends within its time.
func TestCodeThatBlocksHoldsUpNobodyElse(t *testing.T) {
	for _, where := range []string{
		"log", "ended:expired:fixed0", "ended:lost:lost", "ended:closed:stays", "renewed", "batch", // in the background
		"acquire", "command:acquire", "command end:acquire", "end", atRelease, "command end:release", atReleaseEnd,
	} {
		bubble(t, where, func(t *testing.T) { blocksAt(t, where) })
	}
}

func blocksAt(t *testing.T, where string) {
	type slow struct{}
	open := make(chan struct{})
	unblock := sync.OnceFunc(func() { close(open) })
	defer unblock()
	var blocked atomic.Bool
	block := func(at string) {
		if at == where {
			blocked.Store(true)
			<-open
		}
	}
	f, core := withUsers(t, &users{func(ctx context.Context, at string, _ error) {
		if ctx.Value(slow{}) != nil || strings.HasPrefix(at, "ended:") || at == "renewed" || at == "batch" {
			block(at)
		}
	}}, logFunc(func(string) { block("log") }))
	limited, cancel := context.WithTimeout(t.Context(), time.Hour) // for who does wait, after all
	defer cancel()
	ctx := context.WithValue(t.Context(), slow{}, true)
	for i := range 50 { // more than there are carriers
		go func() {
			if h, err := plain(core, fmt.Sprint("slow", i)).Lock(ctx); err == nil {
				_ = h.Unlock(ctx)
			}
		}()
	}
	kept, lost := take(t, limited, core, "kept"), take(t, limited, core, "lost")
	take(t, limited, core, "stays")
	f.forget("lost") // somebody else may take it
	f.onBefore(fault{key: "late", pause: time.Second}.hook())
	gone, leave := context.WithTimeout(t.Context(), time.Second/2)
	defer leave()
	late := locking(gone, core, "late")
	sent := time.Now()
	var fixed []lock.Hold
	for i := range 8 {
		fixed = append(fixed, take(t, limited, core, fmt.Sprint("fixed", i), lock.WithLease(time.Duration(i/2+1)*time.Second)))
	}
	for i, h := range fixed {
		<-h.Context().Done()
		testbed.Equal(t, time.Since(lease.LocalDeadline(sent, time.Duration(i/2+1)*time.Second)), 0, "how late a lease ended of seconds:", i/2+1)
	}
	for range 10 {
		free(t, start(func() (lock.Hold, error) { return plain(core, "l").TryLock(t.Context(), time.Second, 0) }).has(t, "another"))
	}
	time.Sleep(leaseTime / 2)
	late.ends(t, context.DeadlineExceeded)
	testbed.Equal(t, f.count("late"), 0, "what the late grant counts")
	if lost.Context().Err() == nil {
		t.Error("the context of who lost the lock goes on")
	}
	time.Sleep(10 * leaseTime)
	free(t, kept)
	closes(t, core)
	if !blocked.Load() {
		t.Error("nothing blocked")
	}
	unblock()
	synctest.Wait()
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
		f.forget("l")
		<-h.Context().Done()
		synctest.Wait()
		wants(t, h.Unlock(t.Context()), lock.ErrLeaseLost)
		h = take(t, t.Context(), core, "l")
		free(t, h)
		// No waiting: a call's own news have been told when it returns.
		want := "end, ended:lost:l, redlatch: lease lost, " + atReleaseEnd + ", end, ended:released:l, " + atReleaseEnd
		mu.Lock()
		testbed.Equal(t, strings.Join(told, ", "), want, "told")
		told = nil
		mu.Unlock()
		h = take(t, t.Context(), core, "l") // now the Unlock finds that it was lost
		f.forget("l")
		wants(t, h.Unlock(t.Context()), lock.ErrLeaseLost)
		want = "end, ended:lost:l, " + atReleaseEnd
		mu.Lock()
		defer mu.Unlock()
		told = slices.DeleteFunc(told, func(what string) bool { return what == "redlatch: lease lost" }) // told meanwhile, or later
		testbed.Equal(t, strings.Join(told, ", "), want, "told")
	})
}

// logFunc is a log handler.
type logFunc func(msg string)

func (l logFunc) Enabled(context.Context, slog.Level) bool      { return true }
func (l logFunc) Handle(_ context.Context, r slog.Record) error { l(r.Message); return nil }
func (l logFunc) WithAttrs([]slog.Attr) slog.Handler            { return l }
func (l logFunc) WithGroup(string) slog.Handler                 { return l }

// A log handler that blocks holds up no call beyond its own limit: the call that found the loss
// neither, nor what its owner does next.
func TestLogHandlerHoldsUpNoCall(t *testing.T) {
	for name, tc := range map[string]struct {
		call func(ctx context.Context, core *engine.Core, h lock.Hold) error
		want error
	}{
		"Extend": {func(ctx context.Context, _ *engine.Core, h lock.Hold) error { return h.Extend(ctx, time.Minute) }, lock.ErrLeaseLost},
		"Lock": {func(ctx context.Context, core *engine.Core, _ lock.Hold) error {
			_, err := plain(core, "l").TryLock(ctx, time.Second, 0)
			return err
		}, nil},
		"Unlock": {func(ctx context.Context, _ *engine.Core, h lock.Hold) error { return h.Unlock(ctx) }, lock.ErrLeaseLost},
	} {
		bubble(t, name, func(t *testing.T) {
			open := make(chan struct{})
			f, core := withUsers(t, nil, logFunc(func(string) { <-open }))
			job := held.WithOwner(t.Context(), "job")
			ctx, cancel := context.WithTimeout(job, time.Second)
			defer cancel()
			h := take(t, job, core, "l")
			f.forget("l")
			call := start(func() (lock.Hold, error) { return nil, tc.call(ctx, core, h) })
			time.Sleep(time.Minute) // after the end of its ctx
			call.ends(t, tc.want)
			next := start(func() (lock.Hold, error) { return plain(core, "l").TryLock(job, 0, 0) })
			_ = next.has(t, "the same owner").Unlock(t.Context())
			close(open)
			synctest.Wait()
		})
	}
}
