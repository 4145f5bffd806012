package engine_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/held"
	"github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
	"github.com/redlatch/redlatch/rwlock"
)

// TestPlainSimulated runs the users of plain locks in several processes, on a slow and lossy
// server or on a good one: nobody is inside beside another owner, everybody who waits gets in,
// nothing is left; and on a good server nobody waits for a lock that is free, and none is lost.
func TestPlainSimulated(t *testing.T) {
	simulated(t, func(w *world) {
		w.calm, w.force, w.mayAck = w.seed%3 == 0, w.seed%11 < 3, true
		switch w.seed % 5 {
		case 0:
			w.lease = 300 * time.Millisecond
		case 1:
			w.lease = 50 * time.Millisecond
		}
	})
}

// TestShareSimulated runs readers, who share, and writers of several processes on a slow and lossy server:
// nobody is inside beside a writer, everybody who waits gets in, nothing is left.
func TestShareSimulated(t *testing.T) {
	simulated(t, func(w *world) { w.reads = true })
}

// simulated runs a simulation with some seeds, each in a bubble of its own. One that does not
// end panics with its seed: by the real clock, since that of a bubble stands still while anybody
// in it spins.
func simulated(t *testing.T, set func(w *world)) {
	n := 20
	if engine.Race {
		n = 4
	}
	const endless = 30 * time.Second // many times what one takes
	for range n {
		seed := rand.Uint64() //nolint:gosec // a test
		limit := time.AfterFunc(endless, func() { panic(fmt.Sprintf("seed %d: the simulation has not ended after %v", seed, endless)) })
		synctest.Test(t, func(t *testing.T) {
			w := &world{t: t, seed: seed, f: newRough(seed), lease: 3 * time.Second, in: map[string][]*section{}, left: map[string]time.Time{}}
			set(w)
			w.f.calm = w.calm
			w.simulate()
		})
		limit.Stop()
	}
}

// world is one simulation.
type world struct {
	t      *testing.T
	seed   uint64
	f      *fakeRedis
	reads  bool // one read-write lock, not three plain ones
	calm   bool // a good server
	force  bool // locks are taken away now and then
	mayAck bool // a client may wait for replicas
	lease  time.Duration

	mu       sync.Mutex
	in       map[string][]*section // guarded by mu; by lock: who is inside, as far as they know themselves
	left     map[string]time.Time  // guarded by mu; when somebody has unlocked it last
	together [3]context.Context    // guarded by mu; by process, of those who give up at one moment
}

// section is somebody who is inside.
type section struct {
	name  string
	h     lock.Hold
	owner string
	write bool
}

func (s *section) alive() bool {
	return s.h.Context().Err() == nil && time.Now().Before(s.h.ValidUntil())
}

func (w *world) core(i int) *engine.Core {
	l := w.f.link()
	return newCore(w.t, l, l, func(cfg *engine.Config) {
		cfg.ID = fmt.Sprintf("00000000-0000-0000-0000-00000000000%d", i)
		cfg.LeaseTime, cfg.UnlockTimeout, cfg.Tenure, cfg.Alone = w.lease, 500*time.Millisecond, tenure, w.seed%13 < 4
		switch {
		case i == 2 && w.seed%7 < 3:
			cfg.Tenure = 0
		case i == 2 && w.seed%7 < 5 && w.mayAck:
			cfg.ReplicaAcks, cfg.AckTimeout = 1, 10*time.Millisecond
		}
	})
}

func (w *world) simulate() {
	cores := []*engine.Core{w.core(0), w.core(1), w.core(2)}
	guard := time.AfterFunc(30*time.Minute, func() {
		panic(fmt.Sprintf("seed %d: somebody waits for ever; %v", w.seed, w.f))
	})
	var wg, troubles sync.WaitGroup
	for i, core := range cores {
		for g := range 8 {
			r := rand.New(rand.NewPCG(w.seed, uint64(10*i+g+2))) //nolint:gosec // a test
			wg.Go(func() {
				for k := range 40 {
					w.live(core, r, fmt.Sprintf("%d-%d-%d", i, g, k), i)
				}
			})
		}
	}
	stop := make(chan struct{})
	troubles.Go(func() { w.trouble(cores, stop) })
	wg.Wait()
	close(stop)
	troubles.Wait()
	w.f.locked(func() { w.f.calm = true })
	time.Sleep(time.Minute) // what was lost has ended, places have been given up
	for i, core := range cores {
		if n := core.Shares(); n+core.Holding()+core.Scheduled()+core.Owners() != 0 {
			w.t.Errorf("seed %d: core %d: %d shares, %d holds, %d scheduled, %d owners",
				w.seed, i, n, core.Holding(), core.Scheduled(), core.Owners())
		}
	}
	if left := w.f.String(); left != "" {
		w.t.Errorf("seed %d: %s", w.seed, left)
	}
	guard.Stop()
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
			w.f.links[r.IntN(3)].cut()
		case r.IntN(3) == 0 && w.force:
			over := cores[r.IntN(3)].Doubt("a")
			time.Sleep(micros(r, 2000))
			w.f.force("a")
			time.Sleep(micros(r, 2000))
			over(r.IntN(4) > 0, inspect.Evicted{Count: r.IntN(2)})
		case r.IntN(4) == 0:
			cores[r.IntN(3)].Moved()
		case w.closes(1) && k == 2:
			if w.seed%4 == 2 {
				if err := cores[1].Drain(context.Background()); err != nil {
					w.t.Errorf("seed %d: Drain: %v", w.seed, err)
				}
			}
			cores[1].Close()
			return
		}
	}
}

// micros is a time below a number of microseconds.
func micros(r *rand.Rand, below int) time.Duration {
	return time.Duration(r.IntN(below)) * time.Microsecond
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

func (w *world) enter(s *section) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, o := range w.in[s.name] {
		if (o.write || s.write) && o.owner != s.owner && !w.forced(s.name) && o.alive() && s.alive() {
			w.t.Errorf("seed %d: %s (writes: %v) is inside %s beside %s (writes: %v)", w.seed, s.owner, s.write, s.name, o.owner, o.write)
		}
	}
	w.in[s.name] = append(w.in[s.name], s)
}

func (w *world) leave(s *section) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.left[s.name] = time.Now()
	w.in[s.name] = slices.DeleteFunc(w.in[s.name], func(o *section) bool { return o == s })
}

// withOthers is a context that ends for several who wait at one moment.
func (w *world) withOthers(i int, limit time.Duration) context.Context {
	w.mu.Lock()
	defer w.mu.Unlock()
	if ctx := w.together[i]; ctx == nil || ctx.Err() != nil {
		ctx, cancel := context.WithTimeout(context.Background(), limit)
		context.AfterFunc(ctx, cancel)
		w.together[i] = ctx
	}
	return w.together[i]
}

// live is one random section, with what is nested in it.
func (w *world) live(core *engine.Core, r *rand.Rand, name string, i int) {
	owner := name
	if r.IntN(3) == 0 {
		owner = fmt.Sprintf("%d-named-%d", i, r.IntN(2))
	}
	ctx, cancel := held.WithOwner(context.Background(), owner), context.CancelFunc(func() {})
	switch r.IntN(6) {
	case 0, 1:
		ctx, cancel = context.WithTimeout(ctx, micros(r, 20000))
	case 2, 3:
		ctx = held.WithOwner(w.withOthers(i, micros(r, 10000)), owner)
	}
	in := w.acquire(ctx, core, r, i, owner, false)
	cancel()
	time.Sleep(micros(r, 3000))
	for _, s := range in {
		w.enter(s)
	}
	if len(in) == 0 {
		return
	}
	time.Sleep(micros(r, 6000))
	h := in[0].h
	switch r.IntN(8) {
	case 0:
		inner := w.acquire(h.Context(), core, r, i, owner, true)
		for _, s := range inner {
			w.enter(s)
			defer w.unlock(s.h, r, i)
			defer w.leave(s)
		}
		time.Sleep(micros(r, 4000))
	case 1:
		_ = h.Extend(ctx, 2*time.Second)
	case 2:
		if r.IntN(10) == 0 {
			time.Sleep(micros(r, 4000_000))
		}
	case 3:
		if err := h.Extend(context.Background(), w.long(i)); err != nil && w.calm && !errors.Is(err, lock.ErrClosed) && !errors.Is(err, lock.ErrLeaseLost) {
			w.t.Errorf("seed %d: Extend: %v", w.seed, err)
		}
	}
	for _, s := range in {
		w.leave(s)
		w.unlock(s.h, r, i)
	}
}

// acquire takes a lock or several, in one of the ways.
func (w *world) acquire(ctx context.Context, core *engine.Core, r *rand.Rand, i int, owner string, nested bool) (in []*section) {
	if !w.reads && r.IntN(10) == 0 {
		names := []string{"a", "b", "c"}[r.IntN(2):]
		holds, err := group(ctx, core, micros(r, 20000), names...)
		w.check(err, i, false)
		for k, h := range holds {
			in = append(in, &section{names[k], h, owner, true})
		}
		return in
	}
	s := &section{name: "n", owner: owner, write: !w.reads || r.IntN(6) == 0}
	fenced := false
	var l lock.Locker
	switch {
	case w.reads:
		opts := []lock.Option{rwlock.ShareReads()}
		if i == 2 && r.IntN(8) == 0 {
			opts = append(opts, rwlock.PreferReaders())
		}
		if rw := openRW(core, s.name, opts...); s.write {
			l = rw.WriteLock()
		} else {
			l = rw.ReadLock()
		}
	case r.IntN(10) == 0:
		fenced = true
		s.name = string(rune('a' + r.IntN(3)))
		l = plain(core, s.name, lock.Fenced())
	default:
		s.name = string(rune('a' + r.IntN(3)))
		l = plain(core, s.name)
	}
	took := time.Now()
	h, short, err := w.try(ctx, l, r, i, nested)
	if err != nil {
		if !fenced || !errors.Is(err, lock.ErrInvalidOption) { // a fenced re-entry of a hold without a token
			w.check(err, i, short)
		}
		return nil
	}
	s.h = h
	w.wasFree(s.name, took)
	return []*section{s}
}

// try acquires in one of the ways that all kinds have. A short lease may be over when the answer comes.
func (w *world) try(ctx context.Context, l lock.Locker, r *rand.Rand, i int, nested bool) (h lock.Hold, short bool, err error) {
	wait := micros(r, 10000)
	switch r.IntN(9) {
	case 0:
		h, err = l.TryLock(ctx, 0, 0)
	case 1:
		h, err = l.TryLock(ctx, wait, 0)
	case 2:
		short = true
		h, err = l.TryLock(ctx, wait, time.Duration(1+r.IntN(30))*time.Millisecond)
	case 3:
		h, err = l.TryLock(ctx, wait, w.long(i))
	default:
		if nested { // those who hold one and wait for another must not wait for each other
			limited, end := context.WithTimeout(ctx, 10*time.Millisecond)
			defer end()
			ctx = limited
		}
		h, err = l.Lock(ctx)
	}
	return h, short, err
}

// wasFree fails if a lock of a good server was free for long while somebody waited for it.
func (w *world) wasFree(name string, took time.Time) {
	called := w.f.called(name)
	w.mu.Lock()
	defer w.mu.Unlock()
	since := slices.MaxFunc([]time.Time{w.left[name], took, called}, time.Time.Compare)
	// A client that stands back for one that was called looks after 250 ms, should that one have left meanwhile.
	const idle = 300 * time.Millisecond
	if d := time.Since(since); w.calm && !w.closes(1) && len(w.in[name]) == 0 && d > idle {
		w.t.Errorf("seed %d: %d: waited for %v while %s was free\n%v", w.seed, time.Now().UnixMicro(), d, name, w.f.about(name))
	}
}

// check fails if an acquisition may not end like that.
func (w *world) check(err error, i int, short bool) {
	bad := err != nil
	switch {
	case errors.Is(err, lock.ErrUnavailable):
		bad = w.calm && !short || !observe.Waited(err)
	case errors.Is(err, lock.ErrNotAcquired):
		bad = false
	case errors.Is(err, lock.ErrReplicaAcks):
		bad = w.calm
	case errors.Is(err, lock.ErrClosed):
		bad = !w.closes(i)
	case errors.Is(err, lock.ErrUpgrade):
		bad = !w.reads
	}
	if bad {
		w.t.Errorf("seed %d: %v", w.seed, err)
	}
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
