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
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rlock"
)

// TestPlainSimulated runs the users of plain locks in several processes, on a slow and lossy
// server or on a good one: nobody is inside beside another owner, everybody who waits gets in,
// nothing is left; and on a good server nobody waits for a lock that is free, and none is lost.
func TestPlainSimulated(t *testing.T) {
	simulated(t, simulatePlain)
}

// world is one simulation.
type world struct {
	t     *testing.T
	seed  uint64
	f     *fakePlain
	calm  bool // a good server
	force bool // locks are taken away now and then
	lease time.Duration

	mu   sync.Mutex
	in   map[string][]*section // by lock
	left map[string]time.Time  // when somebody has unlocked it last
}

func simulatePlain(t *testing.T, seed uint64) {
	w := &world{t: t, seed: seed, f: newFakePlain(seed), calm: seed%3 == 0, lease: 3 * time.Second, in: map[string][]*section{}, left: map[string]time.Time{}}
	w.f.calm, w.force = w.calm, seed%11 < 3
	switch seed % 5 {
	case 0:
		w.lease = 300 * time.Millisecond
	case 1:
		w.lease = 50 * time.Millisecond
	}
	var cores []*engine.Core
	for i := range 3 {
		l := w.f.link()
		cfg := engine.Config{
			ID: fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i), LeaseTime: w.lease, UnlockTimeout: 500 * time.Millisecond,
			Tenure: tenure, FenceTTL: time.Hour, Alone: seed%13 < 4, Log: slog.New(slog.DiscardHandler),
		}
		switch {
		case i == 2 && seed%7 < 3:
			cfg.Tenure = 0
		case i == 2 && seed%7 < 5:
			cfg.ReplicaAcks, cfg.AckTimeout = 1, 10*time.Millisecond
		}
		cores = append(cores, engine.NewCore(cfg, l, pubsub.NewHub(l, nil)))
	}
	guard := time.AfterFunc(30*time.Minute, func() {
		panic(fmt.Sprintf("seed %d: somebody waits for ever; %v", seed, w.f))
	})
	var wg sync.WaitGroup
	for i, core := range cores {
		for g := range 8 {
			r := rand.New(rand.NewPCG(seed, uint64(10*i+g+2))) //nolint:gosec // a test
			wg.Go(func() {
				for k := range 40 {
					w.live(core, r, fmt.Sprintf("%d-%d-%d", i, g, k), i)
				}
			})
		}
	}
	stop := make(chan struct{})
	var troubles sync.WaitGroup
	troubles.Go(func() { w.trouble(cores, stop) })
	wg.Wait()
	close(stop)
	troubles.Wait()
	w.f.mu.Lock()
	w.f.calm = true
	w.f.mu.Unlock()
	time.Sleep(time.Minute) // what was lost has ended
	for i, core := range cores {
		if core.Holding() != 0 || core.Scheduled() != 0 || core.Owners() != 0 {
			t.Errorf("seed %d: core %d: %d holds, %d scheduled, %d owners", seed, i, core.Holding(), core.Scheduled(), core.Owners())
		}
	}
	if left := w.f.String(); left != "" {
		t.Errorf("seed %d: %s", seed, left)
	}
	guard.Stop()
	for _, core := range cores {
		core.Close()
		core.Wait()
	}
}

// trouble is what happens to whole processes, and to connections.
func (w *world) trouble(cores []*engine.Core, stop chan struct{}) {
	r := rand.New(rand.NewPCG(w.seed, 99)) //nolint:gosec // a test
	for k := 0; ; k++ {
		select {
		case <-stop:
			return
		case <-time.After(time.Duration(1+r.IntN(100)) * time.Millisecond):
		}
		switch {
		case r.IntN(3) == 0 && !w.calm:
			w.f.cut()
		case r.IntN(3) == 0 && w.force:
			over := cores[r.IntN(3)].Doubt("a")
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			w.f.force("a")
			time.Sleep(time.Duration(r.IntN(2000)) * time.Microsecond)
			over(r.IntN(4) > 0, inspect.Evicted{Count: r.IntN(2)})
		case r.IntN(4) == 0:
			cores[r.IntN(3)].Moved()
		case w.seed%4 == 1 && k == 2:
			cores[1].Close()
			return
		case w.seed%4 == 2 && k == 2:
			if err := cores[1].Drain(context.Background()); err != nil {
				w.t.Errorf("seed %d: Drain: %v", w.seed, err)
			}
			cores[1].Close()
			return
		}
	}
}

func (w *world) closes(i int) bool { return i == 1 && (w.seed%4 == 1 || w.seed%4 == 2) }

// forced reports whether a lock is taken away now and then.
func (w *world) forced(name string) bool { return w.force && name == "a" }

// long is a long lease. Close leaves keys to their leases.
func (w *world) long(i int) time.Duration {
	if w.closes(i) {
		return 2 * w.lease
	}
	return time.Hour
}

func (w *world) enter(name string, s *section) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.in[name] {
		if o.owner != s.owner && !w.forced(name) && o.alive() && s.alive() {
			w.t.Errorf("seed %d: %s is inside %s beside %s", w.seed, s.owner, name, o.owner)
		}
	}
	w.in[name] = append(w.in[name], s)
}

func (w *world) leave(name string, s *section) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left[name] = time.Now()
	all := w.in[name]
	for i, o := range all {
		if o == s {
			w.in[name] = append(all[:i], all[i+1:]...)
			return
		}
	}
}

// live is one random section, with what is nested in it.
func (w *world) live(core *engine.Core, r *rand.Rand, name string, i int) {
	owner := name
	if r.IntN(3) == 0 {
		owner = fmt.Sprintf("%d-named-%d", i, r.IntN(2))
	}
	ctx, cancel := held.WithOwner(context.Background(), owner), context.CancelFunc(func() {})
	if r.IntN(3) == 0 {
		ctx, cancel = context.WithTimeout(ctx, time.Duration(r.IntN(20000))*time.Microsecond)
	}
	names, holds := w.acquire(ctx, core, r, i, false)
	cancel()
	time.Sleep(time.Duration(r.IntN(3000)) * time.Microsecond)
	var in []*section
	for k, h := range holds {
		s := &section{h: h, owner: owner, write: true}
		w.enter(names[k], s)
		in = append(in, s)
	}
	if len(holds) == 0 {
		return
	}
	time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
	switch r.IntN(8) {
	case 0:
		inner, innerHolds := w.acquire(holds[0].Context(), core, r, i, true)
		for k, h := range innerHolds {
			s := &section{h: h, owner: owner, write: true}
			w.enter(inner[k], s)
			defer w.unlock(h, r, i)
			defer w.leave(inner[k], s)
		}
		time.Sleep(time.Duration(r.IntN(4000)) * time.Microsecond)
	case 1:
		_ = holds[0].Extend(ctx, 2*time.Second)
	case 2:
		if r.IntN(10) == 0 {
			time.Sleep(time.Duration(r.IntN(4000)) * time.Millisecond)
		}
	case 3:
		if err := holds[0].Extend(context.Background(), w.long(i)); err != nil && w.calm && !errors.Is(err, lock.ErrClosed) && !errors.Is(err, lock.ErrLeaseLost) {
			w.t.Errorf("seed %d: Extend: %v", w.seed, err)
		}
	}
	for k, s := range in {
		w.leave(names[k], s)
		w.unlock(s.h, r, i)
	}
}

// acquire takes a lock or several, in one of the ways.
func (w *world) acquire(ctx context.Context, core *engine.Core, r *rand.Rand, i int, nested bool) ([]string, []lock.Hold) {
	names := []string{string(rune('a' + r.IntN(3)))}
	var opts []lock.Option
	if r.IntN(10) == 0 {
		opts = append(opts, lock.Fenced())
	}
	var holds []lock.Hold
	var err error
	short := false // a lease may be over when the answer comes
	took := time.Now()
	switch l := engine.Open(new(rlock.RLock), core, names[0], opts...); r.IntN(10) {
	case 0:
		h, e := l.TryLock(ctx, 0, 0)
		holds, err = append(holds, h), e
	case 1:
		h, e := l.TryLock(ctx, time.Duration(r.IntN(10000))*time.Microsecond, 0)
		holds, err = append(holds, h), e
	case 2:
		lease := time.Duration(1+r.IntN(30)) * time.Millisecond
		short = true
		h, e := l.TryLock(ctx, time.Duration(r.IntN(10000))*time.Microsecond, lease)
		holds, err = append(holds, h), e
	case 3:
		names = []string{"a", "b", "c"}[r.IntN(2):]
		var all []*engine.Lock
		for _, name := range names {
			all = append(all, engine.Of(engine.Open(new(rlock.RLock), core, name)))
		}
		hs, e := engine.AcquireAll(ctx, all, time.Duration(r.IntN(20000))*time.Microsecond, 0, time.Now(), time.Time{})
		for _, h := range hs {
			holds = append(holds, h)
		}
		err = e
	case 4:
		h, e := l.TryLock(ctx, time.Duration(r.IntN(10000))*time.Microsecond, w.long(i))
		holds, err = append(holds, h), e
	default:
		if nested { // those who hold one and wait for another must not wait for each other
			wait, end := context.WithTimeout(ctx, 10*time.Millisecond)
			defer end()
			ctx = wait
		}
		h, e := l.Lock(ctx)
		holds, err = append(holds, h), e
	}
	called := w.f.called(names[0])
	w.mu.Lock()
	left := w.left[names[0]]
	for _, t := range []time.Time{took, called} {
		if t.After(left) {
			left = t
		}
	}
	// A client that stands back for one that was called looks after 250 ms, should that one have left meanwhile.
	const idle = 300 * time.Millisecond
	if d := time.Since(left); err == nil && w.calm && !w.closes(1) && len(names) == 1 && len(w.in[names[0]]) == 0 && d > idle {
		w.t.Errorf("seed %d: %d: waited for %v while %s was free\n%v", w.seed, time.Now().UnixMicro(), d, names[0], w.f.about(names[0]))
	}
	w.mu.Unlock()
	if err != nil {
		var stop bool
		switch {
		case errors.Is(err, lock.ErrUnavailable):
			stop = w.calm && !short || !observe.Waited(err)
		case errors.Is(err, lock.ErrNotAcquired):
		case errors.Is(err, lock.ErrReplicaAcks):
			stop = w.calm
		case errors.Is(err, lock.ErrClosed):
			stop = !w.closes(i)
		case errors.Is(err, lock.ErrInvalidOption):
			stop = len(opts) == 0 // a fenced re-entry of a hold without a token
		default:
			stop = true
		}
		if stop {
			w.t.Errorf("seed %d: %v", w.seed, err)
		}
		return nil, nil
	}
	return names, holds
}

func (w *world) unlock(h lock.Hold, r *rand.Rand, i int) {
	ctx, cancel := context.WithCancel(context.Background())
	if r.IntN(4) == 0 {
		cancel()
	}
	defer cancel()
	var second sync.WaitGroup
	twice := r.IntN(6) == 0
	if twice {
		second.Go(func() { w.judge(h, h.Unlock(ctx), i, true) })
	}
	w.judge(h, h.Unlock(ctx), i, twice)
	second.Wait()
	w.mu.Lock()
	w.left[h.Name()] = time.Now()
	w.mu.Unlock()
	if r.IntN(6) == 0 {
		if err := h.Unlock(ctx); err == nil && w.calm {
			w.t.Errorf("seed %d: unlocked twice", w.seed)
		}
	}
}

func (w *world) judge(h lock.Hold, err error, i int, twice bool) {
	var lost *lock.LeaseLostError
	switch {
	case err == nil, twice && errors.Is(err, lock.ErrNotHeld):
	case errors.As(err, &lost):
		if w.calm && lost.Reason != lock.LossExpired && !w.forced(h.Name()) {
			w.t.Errorf("seed %d: Unlock of %s: %v", w.seed, h.Name(), err)
		}
	case errors.Is(err, lock.ErrUnavailable) && !w.calm:
	case errors.Is(err, lock.ErrClosed) && w.closes(i):
	default:
		w.t.Errorf("seed %d: Unlock of %s: %v", w.seed, h.Name(), err)
	}
}
