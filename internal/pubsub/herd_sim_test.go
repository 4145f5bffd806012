package pubsub_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// way is how long a command, an answer or a message travels in the simulation.
func way() time.Duration { return 40*time.Microsecond + rand.N(20*time.Microsecond) }

// world is a simulated server with one lock, and processes that run for it.
type world struct {
	tell func(n int) bool // whether a release tells of n listeners

	mu        sync.Mutex
	held      bool       // guarded by mu
	turns     int        // guarded by mu
	tries     int        // guarded by mu
	processes []*process // guarded by mu
}

// process is several goroutines that take the lock again and again until stop is closed.
type process struct {
	world *world
	s     *fakeServer
	h     *pubsub.Hub
	stop  chan struct{}
	wg    sync.WaitGroup

	turns   int           // guarded by world.mu
	last    time.Time     // guarded by world.mu; its last turn
	longest time.Duration // guarded by world.mu; between two turns
}

func (w *world) start(goroutines int) *process {
	p := &process{world: w, s: newServer(), stop: make(chan struct{}), last: time.Now()}
	p.h = pubsub.NewHub(p.s, nil)
	w.mu.Lock()
	w.processes = append(w.processes, p)
	w.mu.Unlock()
	for range goroutines {
		p.wg.Go(func() {
			for p.lock() {
				p.unlock()
			}
		})
	}
	return p
}

func (p *process) end() {
	close(p.stop)
	p.wg.Wait()
	p.h.Close()
	p.h.Wait()
}

func (w *world) try() bool {
	time.Sleep(way())
	w.mu.Lock()
	got := !w.held
	w.held = true
	w.tries++
	w.mu.Unlock()
	time.Sleep(way())
	return got
}

// lock waits as the engine does; false: the process ends.
func (p *process) lock() bool {
	select {
	case <-p.stop:
		return false
	default:
	}
	far := time.Now().Add(time.Hour)
	if !p.h.Waiting("herd") && p.world.try() {
		return true
	}
	w := p.h.Join(herded())
	w.Expect(far, pubsub.Holder{Owner: "another"})
	for {
		select {
		case <-w.C:
		case <-p.stop:
			w.Leave(true, time.Time{}, pubsub.Holder{})
			return false
		}
		if !w.Take().Try {
			continue
		}
		if p.world.try() {
			w.Leave(false, far, pubsub.Holder{Owner: "us"})
			return true
		}
		w.Expect(far, pubsub.Holder{Owner: "another"})
	}
}

func (p *process) unlock() {
	time.Sleep(way())
	w := p.world
	w.mu.Lock()
	w.held = false
	w.turns++
	p.turns++
	now := time.Now()
	p.longest, p.last = max(p.longest, now.Sub(p.last)), now
	n := 0
	for _, p := range w.processes {
		p.s.mu.Lock()
		l := p.s.link
		p.s.mu.Unlock()
		if l == nil {
			continue
		}
		l.mu.Lock()
		if l.have["herd"] {
			n++
			time.AfterFunc(way(), func() { l.h.Message("herd", "0") })
		}
		l.mu.Unlock()
	}
	w.mu.Unlock()
	time.Sleep(way())
	if w.tell(n) {
		p.h.Heard("herd", int64(n))
	}
}

// rate is what happened in a while.
type rate struct {
	turns, tries int
	least, most  int           // turns of a process
	longest      time.Duration // between two turns of a process
}

func (r rate) String() string {
	return fmt.Sprintf("%d turns, %.2f attempts a turn, %d to %d turns of each, %v between two at most",
		r.turns, r.perTurn(), r.least, r.most, r.longest)
}

func (r rate) perTurn() float64 { return float64(r.tries) / float64(r.turns) }

// rate is that of the next moments.
func (w *world) rate(d time.Duration) rate {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.turns, w.tries = 0, 0
	for _, p := range w.processes {
		p.turns, p.longest = 0, 0
	}
	w.mu.Unlock()
	time.Sleep(d)
	w.mu.Lock()
	out := rate{turns: w.turns, tries: w.tries, least: w.turns}
	for _, p := range w.processes {
		out.least, out.most = min(out.least, p.turns), max(out.most, p.turns)
		out.longest = max(out.longest, p.longest, time.Since(p.last))
	}
	return out
}

// run starts processes, lets all but stay of them go after a while, and returns the
// rate of the rest in as long again, and that of the beginning.
func run(t *testing.T, processes, stay int, while time.Duration, tell func(n int) bool) (first, then rate) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := &world{tell: tell}
		var all []*process
		for i := range processes {
			time.Sleep(time.Duration(i%8) * 7 * time.Microsecond) // not in step
			all = append(all, w.start(2))
		}
		first = w.rate(while)
		for _, p := range all[stay:] {
			p.end()
			w.mu.Lock()
			w.processes = slices.DeleteFunc(w.processes, func(other *process) bool { return other == p })
			w.mu.Unlock()
		}
		then = w.rate(while)
		for _, p := range all[:stay] {
			p.end()
		}
		time.Sleep(time.Second) // the timers
	})
	return first, then
}

// When six of eight processes have left, the two that stay are as fast as two that
// have always been alone: the herd's size follows what each release heard.
func TestHerdShrinks(t *testing.T) {
	always := func(int) bool { return true }
	const while = 200 * time.Millisecond
	_, fresh := run(t, 2, 2, while, always)
	_, left := run(t, 8, 2, while, always)
	_, old := run(t, 8, 2, while, func(n int) bool { return n > 2 })
	t.Logf("turns in 200 ms: two %d, two left of eight %d, told of herds only %d", fresh.turns, left.turns, old.turns)
	if left.turns*10 < fresh.turns*9 {
		t.Errorf("two that are left of eight make %d turns in 200 ms, two that were alone %d", left.turns, fresh.turns)
	}
	if old.turns*10 > fresh.turns*9 {
		t.Errorf("the simulation can't tell: %d turns without the news that the others have left, of %d", old.turns, fresh.turns)
	}
}

// As many processes as come stand back for each other: attempts stay few, and each has
// its share.
func TestHerdGrows(t *testing.T) {
	for _, n := range []int{4, 8, 16, 50} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			const while = 200 * time.Millisecond
			first, then := run(t, n, n, while, func(int) bool { return true })
			_, deaf := run(t, n, n, while, func(int) bool { return false })
			t.Logf("at first: %v", first)
			t.Logf("then: %v", then)
			t.Logf("if no release tells of the others: %v", deaf)
			if first.perTurn() > 6 || then.perTurn() > 3.5 {
				t.Errorf("%.2f attempts a turn at first, %.2f then", first.perTurn(), then.perTurn())
			}
			if then.least*3 < then.most*2 {
				t.Errorf("between %d and %d turns of each", then.least, then.most)
			}
			if deaf.perTurn() < then.perTurn()*5/4 {
				t.Errorf("the simulation can't tell: %.2f attempts a turn if nobody knows of the others", deaf.perTurn())
			}
		})
	}
}

// A head that stands back for processes that have left tries as soon as the
// release's answer says so, not a moment later.
func TestHeardWakesWhoStandsBack(t *testing.T) {
	bubble(t, func(t *testing.T, s *fakeServer, h *pubsub.Hub) {
		first, second := h.Join(herded()), h.Join(herded())
		synctest.Wait()
		has(first)
		signalled(second)
		h.Heard("herd", 8)
		s.publish("herd", "0")
		if signalled(second) {
			t.Fatal("it did not stand back")
		}
		h.Heard("herd", 7)
		if signalled(second) {
			t.Error("among seven it did not stand back")
		}
		h.Heard("herd", 2)
		if !tries(second) {
			t.Error("it stands back for processes that have left")
		}
		time.Sleep(time.Second)
		if signalled(second) {
			t.Error("the timer of its standing back woke it again")
		}
		h.Heard("herd", 0)
		h.Heard("nothing", 3)
		leave(second)
	})
}
