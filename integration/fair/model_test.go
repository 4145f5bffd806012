package fair

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The model: a FIFO queue with leases, over processes that die and freeze. Every
// step does something to the real thing and to the model; who enters must be who the model says,
// and nobody else, and nobody loses what it has.

type modelProc struct {
	*bed.Worker
	awake bool
}

type modelWaiter struct {
	proc  *modelProc
	id    int    // of its command
	field string // its place
}

type model struct {
	t      *testing.T
	s      *testbed.Server
	skip   time.Duration // the lease is a second longer
	procs  []*modelProc
	queue  []*modelWaiter // also those of dead processes, until they are found not to stand there
	holder *modelWaiter   // of a process that is awake
	log    []string
	paused atomic.Int64 // for how long the machine let this process, or the server, stand still at most
}

// modelFailure is what does not go as the model says.
type modelFailure string

func (m *model) fail(format string, args ...any) {
	panic(modelFailure(fmt.Sprintf(format, args...) + fmt.Sprintf("\nqueue on the server: %v\nlast steps: %q", m.list(), m.log)))
}

func (m *model) eventually(what string, ok func() bool) {
	for end := time.Now().Add(4 * m.skip); !ok(); time.Sleep(2 * time.Millisecond) {
		if time.Now().After(end) {
			m.fail("not within %v: %s", 4*m.skip, what)
		}
	}
}

// await waits for what a process must say of a command, before it says so of another one.
func (m *model) await(p *modelProc, id int, got string) {
	m.eventually(fmt.Sprintf("%d of process %d: %s", id, slices.Index(m.procs, p), got), func() bool {
		a, is := p.Take(m.t, got)
		if is && a.ID != id {
			m.fail("%d of process %d: %s, not %d", a.ID, slices.Index(m.procs, p), got, id)
		}
		return is
	})
}

func (m *model) unlock(w *modelWaiter) {
	w.proc.Start(m.t, bed.Command{ID: w.id, Do: "unlock"})
	m.await(w.proc, w.id, "unlocked")
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf(format, args...))
	m.log = m.log[max(0, len(m.log)-40):]
}

func (m *model) lease() time.Duration { return m.skip + time.Second }

func (m *model) list() []string { return m.s.List(m.t, "LRANGE", queueKey, "0", "-1") }

// random is a process that is awake, or nil.
func (m *model) random() *modelProc {
	if p := m.procs[rand.IntN(len(m.procs))]; p.awake {
		return p
	}
	return nil
}

// first is who must enter next: the first whose process is awake.
func (m *model) first() *modelWaiter {
	if i := slices.IndexFunc(m.queue, func(w *modelWaiter) bool { return w.proc.awake }); i >= 0 {
		return m.queue[i]
	}
	return nil
}

func (m *model) remove(w *modelWaiter) {
	m.queue = slices.DeleteFunc(m.queue, func(x *modelWaiter) bool { return x == w })
}

// enters waits for the next one to enter. One of a dead or frozen process in front counts as alive for the skip time.
func (m *model) enters() {
	if m.holder = m.first(); m.holder != nil {
		m.remove(m.holder)
		m.await(m.holder.proc, m.holder.id, "locked")
	}
}

func (m *model) arrive() {
	p := m.random()
	if p == nil || len(m.queue) >= 12 {
		return
	}
	before := m.list()
	w := &modelWaiter{proc: p, id: p.Start(m.t, ask(m.skip))}
	m.note("%d of process %d arrives", w.id, slices.Index(m.procs, p))
	m.queue = append(m.queue, w)
	if m.holder == nil { // nobody who is awake waits
		m.enters()
		return
	}
	m.eventually("a place", func() bool {
		if now := m.list(); len(now) > 0 && !slices.Contains(before, now[len(now)-1]) {
			w.field = now[len(now)-1]
		}
		return w.field != ""
	})
}

func (m *model) release() {
	if h := m.holder; h != nil {
		m.note("%d of process %d releases", h.id, slices.Index(m.procs, h.proc))
		m.unlock(h)
		m.enters()
	}
}

func (m *model) giveUp() {
	able := slices.DeleteFunc(slices.Clone(m.queue), func(w *modelWaiter) bool { return !w.proc.awake })
	if len(able) == 0 {
		return
	}
	w := able[rand.IntN(len(able))]
	m.note("%d of process %d gives up", w.id, slices.Index(m.procs, w.proc))
	w.proc.Start(m.t, bed.Command{ID: w.id, Do: "cancel"})
	m.await(w.proc, w.id, "failed")
	m.remove(w)
	m.eventually("it has left the queue", func() bool { return !slices.Contains(m.list(), w.field) })
}

// keep lets one who is granted the lock keep it for two leases, while others come and
// leave: the grant must be confirmed, and then renewed.
func (m *model) keep() {
	m.arrive() // so that somebody holds the lock
	m.arrive() // and somebody waits for it
	m.release()
	m.note("the holder keeps it")
	m.meanwhile(2*m.lease(), m.arrive, m.giveUp)
}

// meanwhile does other things for so long.
func (m *model) meanwhile(d time.Duration, steps ...func()) {
	for end := time.Now().Add(d); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		steps[rand.IntN(len(steps))]()
		m.check()
	}
}

func (m *model) kill() {
	p := m.random()
	if p == nil {
		return
	}
	m.note("process %d dies", slices.Index(m.procs, p))
	p.Kill(m.t)
	held, dead := m.holder != nil && m.holder.proc == p, &modelProc{}
	for _, w := range m.queue {
		if w.proc == p { // history: those in front were dropped or will be
			w.proc = dead
		}
	}
	p.Worker = spawn(m.t, m.s, m.lease())
	if held {
		m.enters()
	}
}

// freeze stops a process for longer than its places and its lease last,
// while the others go on.
func (m *model) freeze() {
	p := m.random()
	if p == nil {
		return
	}
	m.note("process %d freezes", slices.Index(m.procs, p))
	p.Freeze(m.t)
	p.awake = false
	frozen, lost := time.Now(), m.holder
	if lost != nil && lost.proc == p {
		m.enters()
	} else {
		lost = nil
	}
	m.meanwhile(time.Until(frozen.Add(m.lease())), m.arrive, m.release, m.giveUp)
	p.Thaw(m.t)
	p.awake = true
	m.note("process %d goes on", slices.Index(m.procs, p))
	if lost != nil {
		m.await(p, lost.id, "ended")
		p.Start(m.t, bed.Command{ID: lost.id, Do: "unlock"})
		m.await(p, lost.id, "failed")
	}
	m.resync(p)
}

// resync finds out where the waiters of a thawed process stand: where they were,
// or at the end if they had been dropped. The order of the others does not change.
func (m *model) resync(p *modelProc) {
	if m.holder == nil && m.first() != nil {
		var got bed.Answer
		m.eventually("one of the thawed enters", func() (is bool) {
			got, is = p.Take(m.t, "locked")
			return is
		})
		i := slices.IndexFunc(m.queue, func(w *modelWaiter) bool { return w.proc == p && w.id == got.ID })
		if i < 0 {
			m.fail("%d of process %d enters, who does not wait", got.ID, slices.Index(m.procs, p))
		}
		m.holder = m.queue[i]
		m.remove(m.holder)
	}
	var list []string
	place := func(w *modelWaiter) int { return slices.Index(list, w.field) }
	m.eventually("the thawed stand in the queue again", func() bool {
		list = m.list()
		return !slices.ContainsFunc(m.queue, func(w *modelWaiter) bool { return w.proc == p && place(w) < 0 })
	})
	byPlace := func(a, b *modelWaiter) int { return place(a) - place(b) }
	others := slices.DeleteFunc(slices.Clone(m.queue), func(w *modelWaiter) bool { return w.proc == p })
	others = slices.DeleteFunc(others, func(w *modelWaiter) bool { return w.proc.Worker == nil && place(w) < 0 })
	if !slices.IsSortedFunc(others, byPlace) {
		m.fail("the order of those who were awake has changed")
	}
	slices.SortFunc(m.queue, byPlace)
}

// queueNow is the queue with the number of its scores at the end, of one moment.
const queueNow = `local all = redis.call('LRANGE', KEYS[1], 0, -1)
all[#all + 1] = tostring(redis.call('ZCARD', KEYS[2]))
return all`

// check compares the queue on the server with the model's, and finds nobody else inside, and nobody who has lost or
// missed something.
func (m *model) check() {
	all := m.s.List(m.t, "EVAL", queueNow, "2", queueKey, scoresKey)
	list, scores, at := all[:len(all)-1], all[len(all)-1], -1
	m.queue = slices.DeleteFunc(m.queue, func(w *modelWaiter) bool { return w.proc.Worker == nil && !slices.Contains(list, w.field) })
	for _, w := range m.queue {
		if !w.proc.awake {
			continue
		}
		i := slices.Index(list, w.field)
		if i <= at {
			m.fail("%d of process %d has place %d, and the one before it %d: %v", w.id, slices.Index(m.procs, w.proc), i, at, list)
		}
		at = i
	}
	if scores != strconv.Itoa(len(list)) {
		m.fail("%s scores for a list of %d", scores, len(list))
	}
	for i, p := range m.procs {
		for _, not := range []string{"locked", "ended", "failed"} {
			if a, is := p.Take(m.t, not); is {
				m.fail("%d of process %d: %s %s", a.ID, i, not, a.Text)
			}
		}
	}
}

// episode goes on with new processes and an empty queue until all have left. It returns what was not as the model says.
func (m *model) episode() (failed string) {
	defer func() {
		if r := recover(); r != nil {
			why, is := r.(modelFailure)
			if !is {
				panic(r)
			}
			failed = string(why)
		}
	}()
	const steps = 250
	m.s.Do(m.t, "FLUSHALL")
	m.procs, m.queue, m.holder = nil, nil, nil
	for range 4 {
		m.procs = append(m.procs, &modelProc{Worker: spawn(m.t, m.s, m.lease()), awake: true})
	}
	m.paused.Store(0)
	// Those that take long, each after many that don't.
	slow := []func(){m.keep, m.kill, m.freeze, m.kill, m.freeze, m.kill, m.freeze}
	rand.Shuffle(len(slow), func(i, j int) { slow[i], slow[j] = slow[j], slow[i] })
	for _, do := range slow {
		for range steps {
			switch n := rand.IntN(100); {
			case n < 45:
				m.arrive()
			case n < 86:
				m.release()
			default:
				m.giveUp()
			}
			m.check()
		}
		do()
		m.check()
	}
	for m.holder != nil { // all leave; nothing stays but what the dead are allowed to leave
		m.release()
	}
	return ""
}

// pauses measures until ctx ends.
func (m *model) pauses(ctx context.Context) {
	for last := time.Now(); ctx.Err() == nil; last = time.Now() {
		time.Sleep(5 * time.Millisecond)
		_, _ = m.s.Try("PING")
		m.paused.Store(max(m.paused.Load(), int64(time.Since(last))))
	}
}

// Whatever happens in whatever order, whoever is inside is who the model of the queue says. Where the machine keeps
// processes from running for longer than the times allow, all begins anew with longer ones: a slow machine makes the
// test slower, not green.
func TestRandomStepsAgainstAModel(t *testing.T) {
	t.Parallel() // it waits, for the most part
	m := &model{t: t, s: testbed.Standalone(t), skip: skip}
	ctx, stop := context.WithCancel(t.Context())
	var measures sync.WaitGroup
	measures.Go(func() { m.pauses(ctx) })
	defer measures.Wait()
	defer stop()
	for failed := m.episode(); failed != ""; failed = m.episode() {
		paused := time.Duration(m.paused.Load())
		if paused < m.skip/8 || m.skip > 4*skip {
			t.Fatalf("%s\nthe machine stood still for %v at most", failed, paused)
		}
		t.Logf("begins anew with twice the times: the machine stood still for %v; %s", paused, failed)
		for _, p := range m.procs {
			p.Kill(t)
		}
		m.skip *= 2
	}
	bed.Unlock(t, lockIt(t, bed.Client(t, m.s.Addr()).FairLock(name)))
	nothingLeft(t, m.s)
}
