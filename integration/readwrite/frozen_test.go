package readwrite

import (
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// A reader whose process stands still, or dies, before its turn keeps a writer from the free lock for no longer than the
// writer's look takes, whatever its skip time, and also when another reader of the turn has come and gone.
func TestAReaderThatDoesNotComeCostsALook(t *testing.T) {
	t.Parallel()
	for name, ends := range map[string]func(p *bed.Worker, t testbed.TB){
		"it stands still": func(p *bed.Worker, t testbed.TB) { t.Helper(); p.Freeze(t) },
		"it is dead":      func(p *bed.Worker, t testbed.TB) { t.Helper(); p.Kill(t) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := bed.Loaded(t)
			l := client(t, s, 0).ReadWriteLock("n", told())
			w := bed.Lock(t, t.Context(), l.WriteLock())
			p := spawn(t, s, 0)
			p.Start(t, ask("read", time.Hour))
			waiting(t, s, "readers", 1)
			other := bed.Async(t.Context(), l.ReadLock())
			waiting(t, s, "readers", 2)
			next := bed.Async(t.Context(), l.WriteLock())
			waiting(t, s, "writers", 1)
			s.AwaitQuiet(t)
			ends(p, t)
			bed.Unlock(t, w)
			bed.Unlock(t, bed.Hold(t, other))
			bed.Unlock(t, bed.HoldWithin(t, soon, next)) // a machine that stands still makes it later
		})
	}
}

// A reader that is late keeps its turn for as long as another one of the turn is inside, before the writer that has
// waited for longer: a second is for a free lock alone.
func TestALateReaderKeepsItsTurnWhileOthersRead(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	c, proxy := proxied(t, s, 0, 0)
	l := client(t, s, 0).ReadWriteLock("n", told())
	w := bed.Lock(t, t.Context(), l.WriteLock())
	next := bed.Async(t.Context(), l.WriteLock())
	waiting(t, s, "writers", 1)
	late := bed.Async(t.Context(), c.ReadWriteLock("n", told()).ReadLock())
	waiting(t, s, "readers", 1)
	other := bed.Async(t.Context(), l.ReadLock())
	waiting(t, s, "readers", 2)
	s.AwaitQuiet(t)
	proxy.Pause(testbed.Replies)
	bed.Unlock(t, w)
	select {
	case a := <-other:
		time.Sleep(1100 * time.Millisecond) // the turn's second at a free lock
		proxy.Resume(testbed.Replies)
		bed.Unlock(t, bed.HoldWithin(t, soon, late), a.Hold)
		bed.Unlock(t, bed.Hold(t, next))
	case a := <-next: // the machine stood still, and nobody came within that second
		proxy.Resume(testbed.Replies)
		bed.Unlock(t, a.Hold)
		bed.Unlock(t, bed.Hold(t, other), bed.Hold(t, late))
	}
}

// What is left of a reader that died before its turn goes with the readers that came, though they had places for longer.
func TestAReaderThatDoesNotComeLeavesNothing(t *testing.T) {
	t.Parallel()
	const skip = time.Second
	s := bed.Loaded(t)
	l := client(t, s, 0).ReadWriteLock("n", told())
	w := bed.Lock(t, t.Context(), l.WriteLock())
	p := spawn(t, s, 0)
	p.Start(t, ask("read", skip))
	waiting(t, s, "readers", 1)
	other := bed.Async(t.Context(), l.ReadLock())
	waiting(t, s, "readers", 2)
	p.Kill(t)
	bed.Unlock(t, w)
	h := bed.Hold(t, other)
	ends := time.Now().Add(skip)
	waiting(t, s, "turn", 1)
	time.Sleep(time.Until(ends))
	bed.Unlock(t, h)
	bed.Unlock(t, bed.Lock(t, t.Context(), l.WriteLock()))
	testbed.Equal(t, s.Int(t, "EXISTS", "redlatch_rw_turn:{n}"), 0, "whether the turn of the dead is kept")
}

// A reader that leaves no place, as a TryLock without a wait, takes nobody else's turn, though its key has lost its TTL.
func TestAReaderWithoutAPlaceTakesNoTurn(t *testing.T) {
	t.Parallel()
	s := bed.Loaded(t)
	s.Do(t, "ZADD", "redlatch_rw_turn:{n}", "9e12", foreign)
	h, err := client(t, s, 0).ReadWriteLock("n").ReadLock().TryLock(t.Context(), 0, 0)
	testbed.Must(t, err)
	testbed.Equal(t, s.Int(t, "DEL", "redlatch_rw_turn:{n}"), 1, "whether the turn is there")
	bed.Unlock(t, h)
}
