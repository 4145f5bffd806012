package engine_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// A reader that follows another one of its process, as a part of a MultiLock, ends when the
// whole can't come any more, as one that waits by itself does.
func TestFollowerHearsThatItIsOfNoUse(t *testing.T) {
	for _, follows := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			b, core := newByHand(t)
			l := sharing(core)
			ctx, cancel := context.WithCancel(held.WithOwner(t.Context(), "a"))
			defer cancel()
			var lead *got
			if follows {
				lead = start(func() (lock.Hold, error) { return l.ReadLock().Lock(ctx) })
			}
			quit := make(chan struct{})
			member := start(func() (lock.Hold, error) {
				_, err := engine.AcquireBy(held.WithOwner(context.Background(), "b"),
					[]*engine.Lock{l.ReadLock().Engine()}, -1, 0, time.Time{}, quit)
				return nil, err
			})
			for qs := b.of(luascript.RWRead, ""); len(qs) > 0; qs = b.of(luascript.RWRead, "") {
				b.tell(qs[0], busyRW(0), nil)
			}
			member.waits(t, "the member")
			close(quit)
			synctest.Wait()
			if !member.over || !errors.Is(member.err, lock.ErrClosed) {
				t.Errorf("follows %v: it waits for a lock that is of no use (over: %v, %v)", follows, member.over, member.err)
			}
			cancel()
			if lead != nil {
				synctest.Wait()
			}
			b.tellAll(0)
		})
	}
}

// blocking is an observer whose user's code blocks when the span of a command ends without an
// answer, as that of a synchronous exporter does.
type blocking struct{ ends chan struct{} }

func (o *blocking) Acquire(ctx context.Context, _ observe.Lock, _, _ time.Duration) (context.Context, observe.Acquisition) {
	return ctx, nil
}
func (o *blocking) Operation(ctx context.Context, _ observe.Lock, _, _ string) (context.Context, observe.End) {
	return ctx, observe.Ignore
}
func (o *blocking) Carries(context.Context) bool { return true }
func (o *blocking) Command(ctx context.Context, _ string) (context.Context, func(error)) {
	return ctx, func(err error) {
		if errors.Is(err, context.Canceled) {
			<-o.ends
		}
	}
}
func (o *blocking) Batch(string, int, time.Time, error)                   {}
func (o *blocking) Counting() bool                                        { return false }
func (o *blocking) Held(observe.Lock)                                     {}
func (o *blocking) Ended(observe.Lock, any, bool, string, time.Duration)  {}
func (o *blocking) Renewals() bool                                        { return false }
func (o *blocking) Renewed(observe.Lock, string, any, time.Time, error)   {}
func (o *blocking) TraceOf(context.Context, any) (traceID, spanID string) { return "", "" }

// stalls answers nothing of what is asked for a key "stuck…".
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
// others end at their deadlines all the same.
func TestObserverOfAWithdrawnCommandHoldsNothingUp(t *testing.T) {
	const leaseTime = 600 * time.Millisecond
	f := &fakeRedis{keys: map[string]*fakeKey{}, void: map[string]bool{}}
	s, o := stalls{f, make(chan struct{})}, &blocking{make(chan struct{})}
	core := engine.NewCore(engine.Config{
		ID: "00000000-0000-0000-0000-00000000000c", LeaseTime: leaseTime, UnlockTimeout: time.Second,
		FenceTTL: time.Hour, Log: slog.New(slog.DiscardHandler), Observer: o,
	}, s, pubsub.NewHub(f, nil))
	t.Cleanup(func() { core.Close(); core.Wait() })
	h, err := rlock.New(core, "l").Lock(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	work := h.Context()
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{}, 64)
	for range 13 { // more than are sent at a time
		go func() {
			_, _ = rlock.New(core, "stuck").TryLock(ctx, time.Minute, 0)
			done <- struct{}{}
		}()
	}
	time.Sleep(20 * time.Millisecond)
	cancel() // some were not sent yet: they are withdrawn
	time.Sleep(2 * leaseTime)
	f.mu.Lock()
	k := f.find("l")
	f.mu.Unlock()
	if k == nil && work.Err() == nil {
		t.Errorf("the lease has ended on the server, and %v after the deadline the hold's context has not", time.Since(h2until(h)))
	}
	if k != nil {
		t.Log("renewed")
	}
	close(o.ends)
	close(s.open)
	for range 13 {
		<-done
	}
}

func h2until(h lock.Hold) time.Time { return h.ValidUntil() }

// telling is an observer that blocks when it is told of a renewal that failed.
type telling struct{ blocking }

func (o *telling) Renewals() bool { return true }
func (o *telling) Renewed(_ observe.Lock, _ string, _ any, _ time.Time, err error) {
	if err != nil {
		<-o.ends
	}
}

// Who lost the lock is told before anybody else is.
func TestObserverDoesNotDelayTheNewsOfALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &telling{blocking{make(chan struct{})}}
		f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime, cfg.Observer = leaseTime, o })
		h := take(t, t.Context(), core, "l")
		work := h.Context()
		f.mu.Lock()
		delete(f.keys, "l") // somebody else may take it
		f.mu.Unlock()
		time.Sleep(leaseTime / 2)
		if work.Err() == nil {
			t.Errorf("%v after a check found the loss the context goes on, for another %v", leaseTime/2-leaseTime/3, time.Until(h.ValidUntil()))
		}
		close(o.ends)
		synctest.Wait()
		_ = h.Unlock(context.Background())
	})
}

// Close ends within its time, whatever a log handler does.
func TestCloseWaitsForNoLogHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := slowLog{make(chan struct{})}
		_, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime, cfg.Log = leaseTime, slog.New(log) })
		h := take(t, t.Context(), core, "l", lock.WithLease(time.Second))
		<-h.Context().Done()
		closed := false
		go func() {
			core.Close()
			core.Wait()
			closed = true
		}()
		time.Sleep(time.Hour)
		if !closed {
			t.Error("Close has not returned after an hour")
		}
		close(log.released)
		synctest.Wait()
	})
}

// panics is an observer whose user's code panics once, when the span of a command begins.
type panics struct {
	blocking
	script string
}

func (o *panics) Command(ctx context.Context, script string) (context.Context, func(error)) {
	if script == o.script {
		o.script = ""
		panic("a span processor of the user's")
	}
	return ctx, func(error) {}
}

// A panic in a user's code that the caller recovers from, as net/http does, costs that call: not
// the other waiters of the lock, and not Close.
func TestPanicOfAnObserver(t *testing.T) {
	for _, in := range []string{"waiter", "unlock"} {
		t.Run(in, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				o := &panics{}
				_, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime, cfg.Observer = leaseTime, o })
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				h := take(t, t.Context(), core, "l")
				recovered := func(f func()) (what any) {
					defer func() { what = recover() }()
					f()
					return nil
				}
				switch in {
				case "waiter":
					go recovered(func() { _, _ = rlock.New(core, "l").Lock(ctx) })
					synctest.Wait()
					next := start(func() (lock.Hold, error) { return rlock.New(core, "l").Lock(ctx) })
					o.script = luascript.Acquire.Name
					if err := h.Unlock(t.Context()); err != nil {
						t.Error(err)
					}
					time.Sleep(10 * time.Minute)
					if !next.over {
						t.Error("the lock is free, and the next waiter sleeps")
					}
					if next.h != nil {
						_ = next.h.Unlock(context.Background())
					}
					cancel()
					synctest.Wait()
				case "unlock":
					o.script = luascript.Release.Name
					if recovered(func() { _ = h.Unlock(t.Context()) }) == nil {
						t.Fatal("no panic")
					}
				}
				closed := false
				go func() {
					core.Close()
					core.Wait()
					closed = true
				}()
				time.Sleep(time.Hour)
				if !closed {
					t.Error("Close has not returned after an hour")
				}
			})
		})
	}
}

// The longest durations are no short ones.
func TestHoldWarningOfForever(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		_, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) {
			cfg.LeaseTime, cfg.HoldWarning, cfg.Log = leaseTime, math.MaxInt64, slog.New(slog.NewTextHandler(&said, nil))
		})
		time.Sleep(time.Second)
		h := take(t, t.Context(), core, "l")
		time.Sleep(time.Second)
		_ = h.Unlock(t.Context())
		synctest.Wait()
		if said.Len() > 0 {
			t.Errorf("after a second: %s", said.String())
		}
	})
}

// A log handler that blocks holds up no call beyond its own limit: the call that found the loss
// neither, nor what its owner does next.
func TestLogHandlerHoldsUpNoCall(t *testing.T) {
	for name, call := range map[string]func(ctx context.Context, core *engine.Core, h lock.Hold){
		"Extend": func(ctx context.Context, _ *engine.Core, h lock.Hold) { _ = h.Extend(ctx, time.Minute) },
		"Lock": func(ctx context.Context, core *engine.Core, _ lock.Hold) {
			_, _ = rlock.New(core, "l").TryLock(ctx, time.Second, 0)
		},
		"Unlock": func(ctx context.Context, _ *engine.Core, h lock.Hold) {
			began := time.Now()
			if err := h.Unlock(ctx); !errors.Is(err, lock.ErrLeaseLost) {
				panic(err.Error() + " after " + time.Since(began).String())
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := slowLog{make(chan struct{})}
				f, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime, cfg.Log = leaseTime, slog.New(log) })
				ctx, cancel := context.WithTimeout(held.WithOwner(t.Context(), "job"), time.Second)
				defer cancel()
				h := take(t, held.WithOwner(t.Context(), "job"), core, "l")
				f.mu.Lock()
				delete(f.keys, "l")
				f.mu.Unlock()
				over, failed := false, any(nil)
				go func() {
					defer func() { failed, over = recover(), true }()
					call(ctx, core, h)
				}()
				time.Sleep(time.Minute)
				if !over {
					t.Error("a minute after the end of its ctx the call has not returned")
				}
				if failed != nil {
					t.Error(failed)
				}
				close(log.released)
				synctest.Wait()
				if next, err := rlock.New(core, "l").TryLock(held.WithOwner(t.Context(), "job"), 0, 0); err == nil {
					_ = next.Unlock(t.Context())
				}
			})
		})
	}
}

// ending is an observer that blocks when it is told of the end of a hold: Telemetry.LockName, a
// user's function, is called there.
type ending struct{ blocking }

func (o *ending) Ended(observe.Lock, any, bool, string, time.Duration) { <-o.ends }

// The end of one hold is told to an observer; the others end at their deadlines meanwhile.
func TestObserverOfAnEndHoldsUpNoDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		o := &ending{blocking{make(chan struct{})}}
		_, core := newFakeWith(t, func(_ *fakeRedis, cfg *engine.Config) { cfg.LeaseTime, cfg.Observer = leaseTime, o })
		one := take(t, t.Context(), core, "one", lock.WithLease(time.Second))
		two := take(t, t.Context(), core, "two", lock.WithLease(5*time.Second))
		first, second := one.Context(), two.Context()
		time.Sleep(10 * time.Second)
		if first.Err() == nil || second.Err() == nil {
			t.Errorf("the leases ended %v and %v ago; ended: %v, %v", 9*time.Second, 5*time.Second, first.Err() != nil, second.Err() != nil)
		}
		close(o.ends)
	})
}
