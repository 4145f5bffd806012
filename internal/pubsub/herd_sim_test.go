package pubsub_test

import (
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redlatch/redlatch/internal/pubsub"
)

// way is how long a command, an answer or a message travels in the simulation.
const way = 50 * time.Microsecond

// world is a simulated server with one lock, and processes that run for it.
type world struct {
	tell func(n int) bool // whether a release tells of n listeners

	mu        sync.Mutex
	held      bool          // guarded by mu
	turns     int           // guarded by mu
	tries     int           // guarded by mu
	processes []*fakeServer // guarded by mu; the connection of each
}

// process is several goroutines that take the lock again and again until stop is closed.
type process struct {
	world *world
	s     *fakeServer
	h     *pubsub.Hub
	stop  chan struct{}
	wg    sync.WaitGroup
}

func (w *world) start(goroutines int) *process {
	p := &process{world: w, s: newServer(), stop: make(chan struct{})}
	p.h = pubsub.NewHub(p.s, nil)
	w.mu.Lock()
	w.processes = append(w.processes, p.s)
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
}

func (w *world) try() bool {
	time.Sleep(way)
	w.mu.Lock()
	got := !w.held
	w.held = true
	w.tries++
	w.mu.Unlock()
	time.Sleep(way)
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
	time.Sleep(way)
	w := p.world
	w.mu.Lock()
	w.held = false
	w.turns++
	n := 0
	for _, s := range w.processes {
		s.mu.Lock()
		l := s.link
		s.mu.Unlock()
		if l == nil {
			continue
		}
		l.mu.Lock()
		if l.have["herd"] {
			n++
			time.AfterFunc(way, func() { l.h.Message("herd", "0") })
		}
		l.mu.Unlock()
	}
	w.mu.Unlock()
	time.Sleep(way)
	if w.tell(n) {
		p.h.Heard("herd", int64(n))
	}
}

// rate is the turns and the attempts in the next 200 ms.
func (w *world) rate() (turns, tries int) {
	w.mu.Lock()
	turns, tries = w.turns, w.tries
	w.mu.Unlock()
	time.Sleep(200 * time.Millisecond)
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.turns - turns, w.tries - tries
}

// run starts processes, lets all but stay of them go, and returns the rate of the rest.
func run(t *testing.T, processes, stay int, tell func(n int) bool) (turns, tries int) {
	t.Helper()
	synctest.Test(t, func(*testing.T) {
		w := &world{tell: tell}
		var all []*process
		for i := range processes {
			time.Sleep(time.Duration(i) * 7 * time.Microsecond) // not in step
			all = append(all, w.start(2))
		}
		time.Sleep(100 * time.Millisecond)
		for _, p := range all[stay:] {
			p.end()
			w.mu.Lock()
			for i, s := range w.processes {
				if s == p.s {
					w.processes = append(w.processes[:i:i], w.processes[i+1:]...)
					break
				}
			}
			w.mu.Unlock()
		}
		turns, tries = w.rate()
		for _, p := range all[:stay] {
			p.end()
		}
		time.Sleep(time.Second) // the timers
	})
	return turns, tries
}

// When six of eight processes have left, the two that stay are as fast as two that
// have always been alone: the herd's size follows what each release heard.
func TestHerdShrinks(t *testing.T) {
	always := func(int) bool { return true }
	fresh, _ := run(t, 2, 2, always)
	left, _ := run(t, 8, 2, always)
	old, _ := run(t, 8, 2, func(n int) bool { return n > 2 })
	t.Logf("turns in 200 ms: two %d, two left of eight %d, told of herds only %d", fresh, left, old)
	if left*10 < fresh*9 {
		t.Errorf("two that are left of eight make %d turns in 200 ms, two that were alone %d", left, fresh)
	}
	if old*10 > fresh*9 {
		t.Errorf("the simulation can't tell: %d turns without the news that the others have left, of %d", old, fresh)
	}
}

// As many processes as come stand back for each other, and attempts stay few.
func TestHerdGrows(t *testing.T) {
	for _, n := range []int{4, 8, 16} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			turns, tries := run(t, n, n, func(int) bool { return true })
			_, deaf := run(t, n, n, func(int) bool { return false })
			t.Logf("%d turns, %d attempts; %d attempts if nobody stands back", turns, tries, deaf)
			if tries > deaf*3/4 {
				t.Errorf("%d attempts in 200 ms, %d if nobody stands back", tries, deaf)
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
