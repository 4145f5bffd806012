package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rwlock"
)

// sections are who is inside, as far as they know themselves.
type sections struct {
	t    *testing.T
	seed uint64
	mu   sync.Mutex
	in   map[*section]struct{}
}

type section struct {
	h     lock.Hold
	owner string
	write bool
}

func (s *section) alive() bool {
	return s.h.Context().Err() == nil && time.Now().Before(s.h.ValidUntil())
}

func (all *sections) enter(s *section) {
	all.mu.Lock()
	defer all.mu.Unlock()
	for o := range all.in {
		if (o.write || s.write) && o.owner != s.owner && o.alive() && s.alive() {
			all.t.Errorf("seed %d: %s (writes: %v) is inside beside %s (writes: %v)", all.seed, s.owner, s.write, o.owner, o.write)
		}
	}
	all.in[s] = struct{}{}
}

func (all *sections) leave(s *section) {
	all.mu.Lock()
	defer all.mu.Unlock()
	delete(all.in, s)
}

// TestShareSimulated runs readers and writers of several processes on a slow and lossy server:
// nobody is inside beside a writer, everybody who waits gets in, nothing is left.
func TestShareSimulated(t *testing.T) {
	simulated(t, simulate)
}

func simulate(t *testing.T, seed uint64) {
	f := newFakeRW(seed)
	all := &sections{t: t, seed: seed, in: map[*section]struct{}{}}
	var cores []*engine.Core
	for i := range 3 {
		l := f.link()
		cores = append(cores, engine.NewCore(engine.Config{
			ID: fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i), LeaseTime: 3 * time.Second, UnlockTimeout: 5 * time.Second,
			Tenure: tenure, FenceTTL: time.Hour, Log: slog.New(slog.DiscardHandler),
		}, l, pubsub.NewHub(l, nil)))
	}
	guard := time.AfterFunc(30*time.Minute, func() {
		panic(fmt.Sprintf("seed %d: somebody waits for ever; %v", seed, f))
	})
	var wg sync.WaitGroup
	for i, core := range cores {
		together := &crowd{}
		for g := range 8 {
			r := rand.New(rand.NewPCG(seed, uint64(10*i+g+2))) //nolint:gosec // a test
			wg.Go(func() {
				for k := range 40 {
					live(t, all, core, together, r, fmt.Sprintf("%d-%d-%d", i, g, k), i)
				}
			})
		}
	}
	stop := make(chan struct{})
	var troubles sync.WaitGroup
	troubles.Go(func() { trouble(t, seed, cores, stop) })
	wg.Wait()
	close(stop)
	troubles.Wait()
	f.mu.Lock()
	f.calm = true
	f.mu.Unlock()
	time.Sleep(time.Minute) // what was lost has ended, places have been given up
	for i, core := range cores {
		if n := core.Shares(); n != 0 || core.Holding() != 0 || core.Scheduled() != 0 || core.Owners() != 0 {
			t.Errorf("seed %d: core %d: %d shares, %d holds, %d scheduled, %d owners",
				seed, i, n, core.Holding(), core.Scheduled(), core.Owners())
		}
	}
	if left := f.String(); left != "" {
		t.Errorf("seed %d: %s", seed, left)
	}
	guard.Stop()
	for _, core := range cores {
		core.Close()
		core.Wait()
	}
}

// crowd is who waits with one context, and gives up at one moment.
type crowd struct {
	mu   sync.Mutex
	ctx  context.Context //nolint:containedctx // a test
	ends context.CancelFunc
}

func (c *crowd) join(d time.Duration) context.Context {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ctx == nil || c.ctx.Err() != nil {
		c.ctx, c.ends = context.WithTimeout(context.Background(), d)
	}
	return c.ctx
}

// trouble is what happens to whole processes.
func trouble(t *testing.T, seed uint64, cores []*engine.Core, stop chan struct{}) {
	r := rand.New(rand.NewPCG(seed, 99)) //nolint:gosec // a test
	for k := 0; ; k++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1+r.IntN(100)) * time.Millisecond):
		}
		switch {
		case r.IntN(3) == 0:
			cores[r.IntN(3)].Moved()
		case seed%4 == 1 && k == 2:
			cores[1].Close()
			return
		case seed%4 == 2 && k == 2:
			if err := cores[1].Drain(context.Background()); err != nil {
				t.Errorf("seed %d: Drain: %v", seed, err)
			}
			cores[1].Close()
			return
		}
	}
}

// live is one random section, with what is nested in it.
func live(t *testing.T, all *sections, core *engine.Core, together *crowd, r *rand.Rand, name string, i int) {
	opts := []lock.Option{rwlock.ShareReads()}
	if i == 2 && r.IntN(8) == 0 {
		opts = append(opts, rwlock.PreferReaders())
	}
	l := openRW(core, "n", opts...)
	owner := name
	if r.IntN(3) == 0 {
		owner = fmt.Sprintf("%d-named-%d", i, r.IntN(2))
	}
	ctx, cancel := held.WithOwner(context.Background(), owner), context.CancelFunc(func() {})
	switch r.IntN(6) {
	case 0, 1:
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(20000))*time.Microsecond)
	case 2, 3:
		ctx = held.WithOwner(together.join(time.Duration(r.IntN(10000))*time.Microsecond), owner)
	}
	h, write, err := acquire(ctx, l, r)
	cancel()
	time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	if err != nil {
		if !observe.Waited(err) && !errors.Is(err, lock.ErrUpgrade) && !errors.Is(err, lock.ErrClosed) {
			t.Errorf("seed %d: %v", all.seed, err)
		}
		return
	}
	s := &section{h, owner, write}
	all.enter(s)
	time.Sleep(time.Duration(r.IntN(8000)) * time.Microsecond)
	switch r.IntN(6) {
	case 0:
		inner, innerWrite, err := acquire(h.Context(), l, r)
		if err == nil {
			s := &section{inner, owner, innerWrite}
			all.enter(s)
			time.Sleep(time.Duration(r.IntN(8000)) * time.Microsecond)
			all.leave(s)
			unlock(t, all, inner)
		}
	case 1:
		_ = h.Extend(ctx, 2*time.Second)
	case 2:
		if r.IntN(10) == 0 {
			time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
	}
	all.leave(s)
	unlock(t, all, h)
}

func acquire(ctx context.Context, l *rwlock.ReadWriteLock, r *rand.Rand) (h lock.Hold, write bool, err error) {
	var locker lock.Locker = l.ReadLock()
	if write = r.IntN(6) == 0; write {
		locker = l.WriteLock()
	}
	switch r.IntN(8) {
	case 0:
		h, err = locker.TryLock(ctx, 0, 0)
	case 1:
		h, err = locker.TryLock(ctx, time.Duration(r.IntN(10000))*time.Microsecond, 0)
	case 2:
		h, err = locker.TryLock(ctx, time.Duration(r.IntN(10000))*time.Microsecond, time.Duration(1+r.IntN(30))*time.Millisecond)
	default:
		h, err = locker.Lock(ctx)
	}
	return h, write, err
}

func unlock(t *testing.T, all *sections, h lock.Hold) {
	if err := h.Unlock(context.Background()); err != nil && !errors.Is(err, lock.ErrLeaseLost) && !errors.Is(err, lock.ErrUnavailable) &&
		!errors.Is(err, lock.ErrClosed) {
		t.Errorf("seed %d: Unlock: %v", all.seed, err)
	}
}
