package integration

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

type rwStressSection struct {
	h     redlatch.Hold
	write bool
	owner string
	what  string
	got   time.Time
	valid time.Time
	log   string
}

type rwStressCheck struct {
	mu     sync.Mutex
	inside map[*rwStressSection]struct{}
	bad    atomic.Int64
	n      [2]atomic.Int64
}

func (s *rwStressSection) alive() bool {
	return !errors.Is(context.Cause(s.h.Context()), redlatch.ErrLeaseLost) && time.Now().Before(s.h.ValidUntil())
}

func (c *rwStressCheck) enter(t *testing.T, s *rwStressSection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for o := range c.inside {
		if (o.write || s.write) && o.owner != s.owner && o.alive() && s.alive() {
			if c.bad.Add(1) < 10 {
				t.Errorf("inside together: %s (write %v, owner %s) and %s (write %v, owner %s)", o.what, o.write, o.owner, s.what, s.write, s.owner)
			}
		}
	}
	c.inside[s] = struct{}{}
	if s.write {
		c.n[1].Add(1)
	} else {
		c.n[0].Add(1)
	}
}

func (c *rwStressCheck) leave(s *rwStressSection) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.inside, s)
}

func rwShareEntries(c *redlatch.Client) int {
	return reflect.ValueOf(c).Elem().FieldByName("core").Elem().FieldByName("reg").Elem().FieldByName("shares").Len()
}

// rwStressRun is one random life of a reader or a writer of client k.
func rwStressRun(t *testing.T, chk *rwStressCheck, l *redlatch.ReadWriteLock, rl redlatch.Locker, k, g int, seq int) {
	owner := fmt.Sprintf("anon-%d-%d-%d", k, g, seq)
	ctx := t.Context()
	if rand.IntN(3) == 0 {
		id := fmt.Sprintf("o%d", rand.IntN(3))
		owner, ctx = fmt.Sprintf("%d/%s", k, id), redlatch.WithOwner(ctx, id)
	}
	if rand.IntN(4) == 0 {
		c, cancel := context.WithTimeout(ctx, time.Duration(rand.IntN(8000))*time.Microsecond)
		defer cancel()
		ctx = c
	}
	log := ""
	get := func(ctx context.Context, lk redlatch.Locker) redlatch.Hold {
		var h redlatch.Hold
		var err error
		n := rand.IntN(6)
		log += fmt.Sprintf(" get%d", n)
		defer func() { log += fmt.Sprintf(" %v", err) }()
		switch n {
		case 0:
			h, err = lk.TryLock(ctx, 0, 0)
		case 1:
			h, err = lk.TryLock(ctx, time.Duration(1+rand.IntN(20))*time.Millisecond, 0)
		case 2:
			h, err = lk.TryLock(ctx, time.Duration(1+rand.IntN(20))*time.Millisecond, time.Duration(5+rand.IntN(60))*time.Millisecond)
		default:
			h, err = lk.TryLock(ctx, 5*time.Second, 0)
		}
		if err != nil {
			if !errors.Is(err, redlatch.ErrNotAcquired) && !errors.Is(err, redlatch.ErrUpgrade) && !errors.Is(err, redlatch.ErrUnavailable) {
				t.Errorf("acquire: %v", err)
			}
			return nil
		}
		return h
	}
	type in struct {
		h redlatch.Hold
		s *rwStressSection
	}
	var have []in
	took := func(h redlatch.Hold, write bool) {
		if h == nil {
			return
		}
		s := &rwStressSection{h: h, write: write, owner: owner, what: fmt.Sprintf("client %d go %d/%d", k, g, seq), got: time.Now(), valid: h.ValidUntil(), log: log}
		chk.enter(t, s)
		have = append(have, in{h, s})
	}
	drop := func(i int) {
		x := have[i]
		began := time.Now()
		var uerr error
		defer func() {
			var lost *redlatch.LeaseLostError
			if errors.As(uerr, &lost) && lost.Reason != "expired" {
				t.Logf("LOST %v: %v, owner %s, write %v, got %v ago, valid then for %v, now for %v, unlock began %v ago, log %s", lost, time.Now(), owner, x.s.write, time.Since(x.s.got), x.s.valid.Sub(x.s.got), time.Until(x.h.ValidUntil()), time.Since(began), log)
			}
		}()
		have = append(have[:i], have[i+1:]...)
		chk.leave(x.s)
		err := x.h.Unlock(context.Background())
		log += fmt.Sprintf(" unlock %v", err)
		uerr = err
		if err != nil && !errors.Is(err, redlatch.ErrLeaseLost) && !errors.Is(err, redlatch.ErrUnavailable) {
			t.Errorf("unlock: %v", err)
		}
	}
	write := rand.IntN(6) == 0 || rl != nil
	reads, writes := rl, rl
	if rl == nil {
		reads, writes = l.ReadLock(), l.WriteLock()
	}
	if write {
		took(get(ctx, writes), true)
	} else {
		took(get(ctx, reads), rl != nil)
	}
	for range rand.IntN(4) {
		if len(have) == 0 {
			return
		}
		x := have[rand.IntN(len(have))]
		n := rand.IntN(5)
		log += fmt.Sprintf(" do%d", n)
		switch n {
		case 0, 1:
			took(get(x.h.Context(), reads), rl != nil)
		case 2:
			if write {
				took(get(x.h.Context(), writes), true)
			}
		case 3:
			if err := x.h.Extend(ctx, time.Duration(10+rand.IntN(500))*time.Millisecond); err != nil &&
				!errors.Is(err, redlatch.ErrLeaseLost) && !errors.Is(err, redlatch.ErrUnavailable) && ctx.Err() == nil {
				t.Errorf("extend: %v", err)
			}
		case 4:
			time.Sleep(time.Duration(rand.IntN(3000)) * time.Microsecond)
		}
		if len(have) > 1 && rand.IntN(3) == 0 {
			drop(rand.IntN(len(have)))
		}
	}
	for len(have) > 0 {
		drop(rand.IntN(len(have)))
	}
}

// Whatever meets at random, over proxies that cut and stall, readers and writers exclude each other
// and nothing is left.
func TestRWShareStress(t *testing.T) { rwStress(t, false) }

// Whatever meets at random, over proxies that cut and stall, a plain lock that is passed on
// excludes and nothing is left.
func TestPassStress(t *testing.T) { rwStress(t, true) }

func rwStress(t *testing.T, plain bool) {
	s := rwServer(t)
	var chk rwStressCheck
	chk.inside = map[*rwStressSection]struct{}{}
	var clients []*redlatch.Client
	var proxies []*testbed.Proxy
	var all sync.WaitGroup
	end := time.Now().Add(3 * time.Second)
	for k := range 2 {
		c, p := rwShareProxy(t, s, 3*time.Second, 300*time.Millisecond)
		clients, proxies = append(clients, c), append(proxies, p)
		l := c.ReadWriteLock("n", redlatch.ShareReads(), redlatch.WithSkipAfter(redlatch.MinSkipAfter))
		var rl redlatch.Locker
		if plain {
			rl = c.RLock("n")
		}
		for g := range 10 {
			all.Go(func() {
				for seq := 0; time.Now().Before(end); seq++ {
					rwStressRun(t, &chk, l, rl, k, g, seq)
				}
			})
		}
	}
	all.Go(func() {
		for time.Now().Before(end) {
			p := proxies[rand.IntN(2)]
			switch rand.IntN(6) {
			case 0:
				p.Cut()
			case 1:
				p.DropReply(testbed.Contains("EVALSHA"))
			case 2:
				p.DropRequest(testbed.Contains("EVALSHA"))
			case 3, 4:
				trap := p.StallReply(testbed.Contains("EVALSHA"))
				time.Sleep(time.Duration(rand.IntN(100)) * time.Millisecond)
				trap.Release()
			case 5:
				p.Answer(testbed.Contains("EVALSHA"), []string{"NOREPLICAS not enough", "LOADING x"}[rand.IntN(2)])
			}
			time.Sleep(time.Duration(rand.IntN(300)) * time.Millisecond)
		}
	})
	all.Wait()
	t.Logf("%d reads, %d writes", chk.n[0].Load(), chk.n[1].Load())
	rwEventually(t, "nothing is left", func() bool { return s.Int(t, "EXISTS", "n") == 0 })
	for i, c := range clients {
		if n := rwShareEntries(c); n != 0 {
			t.Errorf("client %d: %d entries of shares", i, n)
		}
		if h := c.Held(); len(h) > 0 {
			t.Errorf("client %d holds %v", i, h)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := c.Shutdown(ctx); err != nil {
			t.Errorf("shutdown: %v", err)
		}
		cancel()
	}
}
