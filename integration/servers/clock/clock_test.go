package clock

import (
	"context"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

const (
	// lease leaves room for a busy machine: who gets no processor for two thirds of it
	// loses the lock, rightly.
	lease = 3500 * time.Millisecond
	// waiting is how long those who wait get to begin it.
	waiting = 500 * time.Millisecond
	// patience bounds what takes at most some leases and skip times.
	patience = 30 * time.Second
)

func client(t *testing.T, s *server) *redlatch.Client {
	t.Helper()
	option := rueidis.ClientOption{InitAddress: []string{s.Addr()}}
	option.Dialer.Timeout = patience // nothing here is about connecting
	c, err := redlatch.New(redlatch.Config{Redis: option, LeaseTime: lease, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

var kinds = map[string]func(c *redlatch.Client) redlatch.Locker{
	"rlock": func(c *redlatch.Client) redlatch.Locker { return c.RLock("l", redlatch.Fenced()) },
	"fair":  func(c *redlatch.Client) redlatch.Locker { return c.FairLock("l", redlatch.Fenced()) },
	"write": func(c *redlatch.Client) redlatch.Locker { return c.ReadWriteLock("l", redlatch.Fenced()).WriteLock() },
	"multi": func(c *redlatch.Client) redlatch.Locker {
		return redlatch.MultiLock(c.RLock("l", redlatch.Fenced()), c.RLock("m"))
	},
}

type result struct {
	hold redlatch.Hold
	err  error
}

func lockAsync(l redlatch.Locker, out chan<- result) {
	go func() {
		h, err := l.Lock(context.Background()) // Close ends it
		out <- result{h, err}
	}()
}

func get(t *testing.T, c <-chan result, what string) redlatch.Hold {
	t.Helper()
	select {
	case r := <-c:
		if r.err != nil {
			t.Fatalf("%s: %v", what, r.err)
		}
		return r.hold
	case <-time.After(patience):
		t.Fatalf("%s: Lock does not return", what)
		return nil
	}
}

// The server's clock is stepped while a lock of each kind is held and waited for:
// forward, its leases end at once, and the holder hears of it within a check's
// time; back, they last longer, and the holder keeps it. Either way everybody who
// waits gets the lock in turn, tokens increase, and nothing is left behind.
func TestSteps(t *testing.T) {
	lib := library(t)
	for name, kind := range kinds {
		for _, by := range []time.Duration{time.Hour, -time.Hour} {
			t.Run(name+" "+by.String(), func(t *testing.T) {
				t.Parallel()
				s := start(t, lib)
				holder, a, b := client(t, s), client(t, s), client(t, s)
				before := get(t, locked(kind(holder)), "before the step")
				const waiters = 6
				got := make(chan result, waiters)
				for i := range waiters {
					lockAsync(kind([]*redlatch.Client{a, b}[i%2]), got)
				}
				time.Sleep(waiting)
				s.step(t, by)
				stepped := time.Now()
				if by > 0 {
					select {
					case <-before.Context().Done():
						if cause := context.Cause(before.Context()); !errors.Is(cause, redlatch.ErrLeaseLost) {
							t.Errorf("the hold ended with %v", cause)
						}
						// By itself it would hear of it two thirds of a lease after the step, or later:
						// it has renewed within the third before.
						if took := time.Since(stepped); took > lease*2/3 {
							t.Errorf("the holder heard of its loss after %v", took)
						}
					case <-time.After(patience):
						t.Error("the holder does not hear of its loss")
					}
					if err := before.Unlock(context.Background()); !errors.Is(err, redlatch.ErrLeaseLost) {
						t.Errorf("Unlock of the lost hold: %v", err)
					}
				} else {
					time.Sleep(lease) // two renewals
					if err := context.Cause(before.Context()); err != nil {
						t.Errorf("the hold ended: %v", err)
					}
					select {
					case <-got:
						t.Fatal("a second holder")
					default:
					}
					if err := before.Unlock(context.Background()); err != nil {
						t.Errorf("Unlock: %v", err)
					}
				}
				last := before.Token()
				for i := range waiters {
					h := get(t, got, "a waiter")
					if h.Token() <= last {
						t.Errorf("token %d after %d", h.Token(), last)
					}
					last = h.Token()
					select {
					case <-got:
						t.Fatal("two holders")
					case <-time.After(20 * time.Millisecond):
					}
					if i == waiters/2 {
						s.step(t, 0) // and back again, while the rest wait
					}
					if err := h.Unlock(context.Background()); err != nil && (i != waiters/2 || !errors.Is(err, redlatch.ErrLeaseLost)) {
						t.Errorf("Unlock: %v", err)
					}
				}
				t.Logf("all served %v after the step", time.Since(stepped).Round(time.Millisecond))
			})
		}
	}
}

func locked(l redlatch.Locker) <-chan result {
	out := make(chan result, 1)
	lockAsync(l, out)
	return out
}

// Readers and writers go on, too: a reader's lease that a step has ended is lost
// for that reader alone, and a writer that waits gets in.
func TestStepsUnderReaders(t *testing.T) {
	lib := library(t)
	for _, by := range []time.Duration{time.Hour, -time.Hour} {
		t.Run(by.String(), func(t *testing.T) {
			t.Parallel()
			s := start(t, lib)
			rw := client(t, s).ReadWriteLock("l")
			other := client(t, s).ReadWriteLock("l")
			r := get(t, locked(rw.ReadLock()), "read")
			w := locked(other.WriteLock())
			time.Sleep(waiting)
			s.step(t, by)
			if by > 0 {
				<-r.Context().Done()
				if err := r.Unlock(context.Background()); !errors.Is(err, redlatch.ErrLeaseLost) {
					t.Errorf("Unlock of a lost read: %v", err)
				}
			} else {
				time.Sleep(lease)
				select {
				case <-w:
					t.Fatal("a writer beside a reader")
				default:
				}
				if err := r.Unlock(context.Background()); err != nil {
					t.Errorf("Unlock: %v", err)
				}
			}
			hw := get(t, w, "the writer")
			again := locked(rw.ReadLock())
			time.Sleep(waiting)
			s.step(t, 0)
			if err := hw.Unlock(context.Background()); err != nil && (by > 0 || !errors.Is(err, redlatch.ErrLeaseLost)) {
				t.Errorf("Unlock of the write lock: %v", err)
			}
			h := get(t, again, "the reader after it")
			if err := h.Unlock(context.Background()); err != nil {
				t.Errorf("Unlock: %v", err)
			}
		})
	}
}
