package multi

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// sets are ways to take some of six locks that stand on three servers.
var sets = []struct {
	names string
	of    func(cs []*redlatch.Client) []redlatch.Member
}{
	{"f", func(cs []*redlatch.Client) []redlatch.Member { return []redlatch.Member{cs[0].FairLock("f")} }},
	{"r", func(cs []*redlatch.Client) []redlatch.Member { return []redlatch.Member{cs[1].RLock("r")} }},
	{"fg", func(cs []*redlatch.Client) []redlatch.Member {
		return []redlatch.Member{cs[0].FairLock("f"), cs[1].FairLock("g")}
	}},
	{"rfg", func(cs []*redlatch.Client) []redlatch.Member {
		return []redlatch.Member{cs[1].FairLock("g"), cs[1].RLock("r"), cs[0].FairLock("f")}
	}},
	{"rq", func(cs []*redlatch.Client) []redlatch.Member {
		return []redlatch.Member{cs[1].RLock("r"), quorum(cs, "q")}
	}},
	{"fqw", func(cs []*redlatch.Client) []redlatch.Member {
		return []redlatch.Member{quorum(cs, "q"), cs[2].ReadWriteLock("w").WriteLock(), cs[0].FairLock("f")}
	}},
	{"ar", func(cs []*redlatch.Client) []redlatch.Member { return plain(cs[1], "a", "r") }},
	{"w", func(cs []*redlatch.Client) []redlatch.Member {
		return []redlatch.Member{cs[2].ReadWriteLock("w").WriteLock()}
	}},
}

// inside is who has which lock.
type inside struct {
	mu sync.Mutex
	by map[rune]redlatch.Hold // guarded by mu
}

// valid is whether a hold counts: one that is lost may overlap with the next.
func valid(h redlatch.Hold) bool {
	return h.Context().Err() == nil && time.Now().Before(h.ValidUntil())
}

func (in *inside) enter(t *testing.T, names string, h redlatch.Hold) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, name := range names {
		if other := in.by[name]; other != nil && valid(other) && valid(h) {
			t.Errorf("two have %c", name)
		}
		in.by[name] = h
	}
}

func (in *inside) leave(names string, h redlatch.Hold) {
	in.mu.Lock()
	defer in.mu.Unlock()
	for _, name := range names {
		if in.by[name] == h {
			delete(in.by, name)
		}
	}
}

// turns takes one of the sets after the other until stop is closed.
func (in *inside) turns(t *testing.T, cs []*redlatch.Client, stop <-chan struct{}) {
	for {
		select {
		case <-stop:
			return
		default:
		}
		set := sets[rand.IntN(len(sets))]
		ctx, cancel := t.Context(), context.CancelFunc(func() {})
		if rand.IntN(3) == 0 {
			ctx, cancel = context.WithTimeout(ctx, rand.N(200*time.Millisecond))
		}
		h, err := redlatch.MultiLock(set.of(cs)...).Lock(ctx)
		if err == nil {
			in.enter(t, set.names, h)
			time.Sleep(rand.N(2 * time.Millisecond))
			in.leave(set.names, h)
			if err = h.Unlock(ctx); errors.Is(err, redlatch.ErrLeaseLost) {
				err = nil
			}
		}
		cancel()
		if err != nil {
			bed.Want(t, err, redlatch.ErrNotAcquired, redlatch.ErrUnavailable)
		}
	}
}

// TestSetsUnderFaults: MultiLocks of all kinds on several servers, which overlap, are given up, and whose network breaks
// and stalls, never share a lock, and all come through; nothing of them is left.
func TestSetsUnderFaults(t *testing.T) {
	t.Parallel()
	list, in, stop := servers(t, 3), inside{by: map[rune]redlatch.Hold{}}, make(chan struct{})
	var all sync.WaitGroup
	var proxies []*testbed.Proxy
	for range 3 {
		var cs []*redlatch.Client
		for _, s := range list {
			p := testbed.NewProxy(t, s.Addr())
			proxies = append(proxies, p)
			cs = append(cs, bed.Client(t, p.Addr(), redlatch.WithLeaseTime(3*time.Second)))
		}
		for range 5 {
			all.Go(func() { in.turns(t, cs, stop) })
		}
	}
	for end := time.Now().Add(8 * time.Second); time.Now().Before(end); time.Sleep(rand.N(200 * time.Millisecond)) {
		p, d := proxies[rand.IntN(len(proxies))], testbed.Direction(rand.IntN(2))
		switch rand.IntN(3) {
		case 0:
			p.Cut()
		case 1:
			p.Pause(d)
			time.Sleep(rand.N(500 * time.Millisecond))
			p.Resume(d)
		case 2:
			p.Refuse()
			p.Cut()
			time.Sleep(rand.N(500 * time.Millisecond))
			p.Admit(t)
		}
	}
	close(stop)
	ended := make(chan struct{})
	go func() { all.Wait(); close(ended) }()
	bed.Receive(t, 2*bed.Patience, ended) // the last of them need two seconds
	for _, name := range []string{"a", "f", "g", "q", "r", "w"} {
		becomeFree(t, name, list...)
	}
}
