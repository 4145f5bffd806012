package fair

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// The model: a FIFO queue with leases, over processes that die and freeze. Every
// step does something to the real thing and to the model; what enters, and when,
// must be what the model says.

// modelSlack is what five processes on a busy machine may add. Here it is about
// who enters and that somebody does; how soon is what other tests are about.
const modelSlack = 2 * time.Second

// modelTimes are those of an episode. One in which the machine keeps a process from running for longer than they
// allow says nothing, and begins anew with longer ones: a slow machine makes the test slower, not green.
type modelTimes struct{ skip, lease time.Duration }

var (
	modelFirst = modelTimes{1200 * time.Millisecond, 1300 * time.Millisecond}
	modelLast  = 8 * modelFirst.skip // to which a pause of a second is nothing
)

// pause is how much of a lease a process that the model did not stop may not
// run, at least, before something that is held may be lost. At worst half of the skip time
// is left of a grant, a quarter of that has passed when the watchdog confirms it, and
// then the model stops the process for short, once in a lease: an eighth of the skip time remains.
func (t modelTimes) pause() time.Duration { return t.skip / 8 }
func (t modelTimes) short() time.Duration { return t.skip / 4 }

// grant and renewed are the same for one that keeps the lock, while the model
// stops nobody: three eighths of the skip time remain when its grant is confirmed, and two
// thirds of the lease when a renewal is due.
func (t modelTimes) grant() time.Duration   { return t.skip / 4 }
func (t modelTimes) renewed() time.Duration { return t.lease / 2 }

type modelProc struct {
	p      *testbed.Process
	awake  bool
	serial int    // of the process: lines of a dead one are not the next one's
	stops  []span // when the model stopped it
}

type modelWaiter struct {
	id    int
	proc  *modelProc
	field string
}

type modelEvent struct {
	proc   *modelProc
	serial int
	line   string
}

type model struct {
	modelTimes

	t      *testing.T
	s      *testbed.Server
	rnd    *rand.Rand
	procs  []*modelProc
	queue  []*modelWaiter
	holder *modelWaiter
	since  time.Time // when the holder entered
	agreed time.Time // when the queue on the server was last found to be the model's
	events chan modelEvent
	busy   *meter
	nextID int
	step   int
	did    map[string]int
	log    []string
	kept   *keeping // while the holder keeps the lock for long
}

// keeping is a hold that lasts for long.
type keeping struct {
	proc  *modelProc
	from  time.Time     // it was granted later
	field []string      // on the server
	limit time.Duration // for how much of a lease the process may not run without losing it
}

func (m *model) note(format string, args ...any) {
	m.log = append(m.log, fmt.Sprintf("%d: ", m.step)+fmt.Sprintf(format, args...))
	m.log = m.log[max(0, len(m.log)-40):]
}

// holds notes who has the lock.
func (m *model) holds(w *modelWaiter) { m.holder, m.since = w, time.Now() }

func (m *model) stop(p *modelProc) {
	p.stops = append(p.stops, span{from: time.Now().UnixMicro()})
	p.p.Freeze(m.t)
}

func (m *model) start(p *modelProc) {
	p.p = testbed.Spawn(m.t, "fair", workerArgs{Addr: m.s.Addr(), Lease: m.lease, Skip: m.skip, Pulse: true})
	p.p.Expect(m.t, "ready")
	p.awake, p.stops = true, nil
	p.serial++
	process, serial := p.p, p.serial
	go func() { // ends with the process
		for line := range process.Lines() {
			m.events <- modelEvent{p, serial, line}
		}
	}()
}

// event waits for the next line of a living process.
func (m *model) event(limit time.Duration, what string) (string, int) {
	m.t.Helper()
	start, lost := time.Now(), m.busy.slack()
	timer := time.NewTimer(limit)
	defer timer.Stop()
	for {
		select {
		case e := <-m.events:
			if e.serial != e.proc.serial {
				continue
			}
			words := strings.Fields(e.line)
			id, err := strconv.Atoi(words[1])
			if err != nil {
				m.fail("%q", e.line)
			}
			m.note("  %s", e.line)
			return words[0], id
		case <-timer.C:
			if more := time.Until(start.Add(limit + m.busy.slack() - lost)); more > 0 {
				timer.Reset(more) // the machine was busy with others
				continue
			}
			m.fail("not within %v: %s", limit, what)
		}
	}
}

// first is who must enter next: the first whose process is awake.
func (m *model) first() *modelWaiter {
	for _, w := range m.queue {
		if w.proc.awake {
			return w
		}
	}
	return nil
}

func (m *model) remove(w *modelWaiter) {
	m.queue = slices.DeleteFunc(m.queue, func(x *modelWaiter) bool { return x == w })
}

// enters waits for the next one to enter, within limit.
func (m *model) enters(limit time.Duration) {
	m.t.Helper()
	w := m.first()
	if w == nil {
		m.holder = nil
		return
	}
	if w != m.queue[0] {
		limit += m.skip // who is first counts as alive for as long
	}
	what, id := m.event(limit+modelSlack, fmt.Sprintf("waiter %d enters", w.id))
	if what != "got" || id != w.id {
		m.fail("%s %d, and not waiter %d", what, id, w.id)
	}
	m.holds(w)
	m.remove(w)
}

func (m *model) arrive() {
	p := m.procs[m.rnd.IntN(len(m.procs))]
	if !p.awake || len(m.queue) >= 12 {
		return
	}
	m.nextID++
	w := &modelWaiter{id: m.nextID, proc: p}
	m.note("waiter %d of process %d arrives", w.id, slices.Index(m.procs, p))
	before := m.s.List(m.t, "LRANGE", queueKey, "0", "-1")
	p.p.Send(m.t, "lock %d", w.id)
	m.queue = append(m.queue, w)
	if m.holder == nil {
		// Nobody who is awake waits. Somebody may still count as alive, or hold the
		// lock in death.
		m.enters(m.lease + m.skip)
		return
	}
	m.eventually(5*time.Second, "a place", func() bool {
		now := m.s.List(m.t, "LRANGE", queueKey, "0", "-1")
		if len(now) == 0 || slices.Contains(before, now[len(now)-1]) {
			return false
		}
		w.field = now[len(now)-1]
		return true
	})
}

func (m *model) release() {
	if m.holder == nil || !m.holder.proc.awake {
		return
	}
	h := m.holder
	m.note("waiter %d releases", h.id)
	h.proc.p.Send(m.t, "unlock %d", h.id)
	// two lines, in any order: of the one who leaves and of the one who enters
	next := m.first()
	left, entered := false, next == nil
	limit := modelSlack
	if next != nil && next != m.queue[0] {
		limit += m.skip
	}
	for !left || !entered {
		switch what, id := m.event(limit, fmt.Sprintf("waiter %d left: %t, the next entered: %t", h.id, left, entered)); {
		case what == "unlocked" && id == h.id && !left:
			left = true
		case what == "got" && next != nil && id == next.id && !entered:
			entered = true
		default:
			m.fail("%s %d after the release by %d; the next is %v", what, id, h.id, next)
		}
	}
	m.holds(next)
	m.remove(next)
}

// keep lets one who is granted the lock keep it for two leases, while others come and
// leave: the grant must be confirmed, and then renewed. At the end it unlocks.
func (m *model) keep() {
	m.arrive() // so that somebody holds the lock
	m.arrive() // and somebody waits for it
	before := time.Now()
	m.release()
	if m.holder == nil {
		return // the queue is full of the dead
	}
	m.note("waiter %d keeps it", m.holder.id)
	m.kept = &keeping{proc: m.holder.proc, from: before, field: m.s.List(m.t, "HKEYS", name), limit: m.grant()}
	left := m.s.Int(m.t, "PTTL", name)
	for end := time.Now().Add(2 * m.lease); time.Now().Before(end); time.Sleep(50 * time.Millisecond) {
		m.step++
		m.act([]op{{30, "arrive", m.arrive}, {10, "give up", m.giveUp}})
		if m.lost() {
			m.fail("it does not hold it any more")
		}
		m.check()
		now := m.s.Int(m.t, "PTTL", name)
		if now > left {
			m.kept.limit = m.renewed()
		}
		left = now
	}
	m.kept = nil
	m.release()
}

// lost reports whether the lock is kept, but not with the one that keeps it.
func (m *model) lost() bool {
	return m.kept != nil && !slices.Equal(m.s.List(m.t, "HKEYS", name), m.kept.field)
}

func (m *model) giveUp() {
	var able []*modelWaiter
	for _, w := range m.queue {
		if w.proc.awake {
			able = append(able, w)
		}
	}
	if len(able) == 0 {
		return
	}
	w := able[m.rnd.IntN(len(able))]
	m.note("waiter %d gives up", w.id)
	w.proc.p.Send(m.t, "cancel %d", w.id)
	if what, id := m.event(modelSlack, "it gives up"); what != "err" || id != w.id {
		m.fail("%s %d", what, id)
	}
	m.remove(w)
	m.eventually(2*time.Second, "it has left the queue", func() bool {
		return !slices.Contains(m.s.List(m.t, "LRANGE", queueKey, "0", "-1"), w.field)
	})
}

// giveUpAtTheGrant: the first gives up at the moment in which it gets the lock.
func (m *model) giveUpAtTheGrant() {
	w := m.first()
	if m.holder == nil || !m.holder.proc.awake || w == nil || w != m.queue[0] {
		return
	}
	h := m.holder
	m.note("waiter %d releases while %d gives up", h.id, w.id)
	h.proc.p.Send(m.t, "unlock %d", h.id)
	w.proc.p.Send(m.t, "cancel %d", w.id)
	m.remove(w)
	next := m.first()
	limit := modelSlack
	if next != nil && next != m.queue[0] {
		limit += m.skip
	}
	for left, decided, got, entered := false, false, false, false; ; {
		switch what, id := m.event(limit, "release and giving up are over"); {
		case what == "unlocked" && id == h.id:
			left = true
		case what == "got" && id == w.id && !entered:
			decided, got = true, true
		case what == "err" && id == w.id:
			decided = true
		case what == "got" && next != nil && id == next.id && !got:
			entered = true
		default:
			m.fail("%s %d", what, id)
		}
		if left && decided && (got || entered || next == nil) {
			if got {
				m.holds(w)
			} else {
				m.holds(next)
				m.remove(next)
			}
			return
		}
	}
}

func (m *model) kill() {
	p := m.procs[m.rnd.IntN(len(m.procs))]
	if !p.awake {
		return
	}
	m.note("process %d dies", slices.Index(m.procs, p))
	p.p.Kill(m.t)
	p.awake = false
	p.serial++ // nothing that it said any more counts
	if m.holder != nil && m.holder.proc == p {
		m.enters(m.lease)
	}
	// From here on its waiters are history: those in front were dropped or will
	// be, like those of a process that is not there any more.
	ghost := &modelProc{}
	for _, w := range m.queue {
		if w.proc == p {
			w.proc = ghost
		}
	}
	m.start(p)
}

func (m *model) freezeShortly() {
	p := m.procs[m.rnd.IntN(len(m.procs))]
	if n := len(p.stops); !p.awake || n > 0 && p.stops[n-1].to > time.Now().Add(-m.lease).UnixMicro() {
		return // two stops within a lease take more of a grant than is sure to be left of it
	}
	m.note("process %d freezes for a moment", slices.Index(m.procs, p))
	m.stop(p)
	time.Sleep(m.short())
	p.p.Thaw(m.t)
	stop := &p.stops[len(p.stops)-1]
	stop.to = stop.from + m.short().Microseconds() // what came on top was the machine's doing
}

// freezeLong stops a process for longer than its places and its lease last,
// while the others go on.
func (m *model) freezeLong() {
	p := m.procs[m.rnd.IntN(len(m.procs))]
	if !p.awake {
		return
	}
	m.note("process %d freezes", slices.Index(m.procs, p))
	m.stop(p)
	p.awake = false
	frozen := time.Now()
	var lost *modelWaiter
	if m.holder != nil && m.holder.proc == p {
		lost = m.holder
		m.enters(m.lease)
	}
	for time.Since(frozen) < m.lease+100*time.Millisecond {
		m.step++
		m.act([]op{{30, "arrive", m.arrive}, {30, "release", m.release}, {10, "give up", m.giveUp}})
		time.Sleep(20 * time.Millisecond)
	}
	p.p.Thaw(m.t)
	p.awake = true
	p.stops[len(p.stops)-1].to = time.Now().UnixMicro()
	m.note("process %d goes on", slices.Index(m.procs, p))
	if lost != nil {
		p.p.Send(m.t, "unlock %d", lost.id)
		m.lostUnlock(lost)
	}
	m.resync(p)
}

// lostUnlock reads the answer to the unlock of a lost hold; a waiter that was
// frozen may enter a free lock meanwhile.
func (m *model) lostUnlock(lost *modelWaiter) {
	for {
		what, id := m.event(2*time.Second, "the lost hold's unlock")
		switch {
		case what == "err" && id == lost.id:
			return
		case what == "got" && m.holder == nil:
			m.entered(id)
		default:
			m.fail("%s %d, and not the loss of %d", what, id, lost.id)
		}
	}
}

func (m *model) entered(id int) {
	i := slices.IndexFunc(m.queue, func(w *modelWaiter) bool { return w.id == id })
	if i < 0 || !m.queue[i].proc.awake {
		m.fail("%d entered, who does not wait", id)
	}
	m.holds(m.queue[i])
	m.remove(m.holder)
}

// resync finds out where the waiters of a thawed process stand: where they were,
// or at the end if they had been dropped. The order of the others does not change.
func (m *model) resync(p *modelProc) {
	if m.holder == nil && m.first() != nil {
		what, id := m.event(m.lease+m.skip+modelSlack, "one of the thawed enters")
		if what != "got" {
			m.fail("%s %d", what, id)
		}
		m.entered(id)
	}
	place := func(w *modelWaiter, list []string) int { return slices.Index(list, w.field) }
	var list []string
	m.eventually(5*time.Second, "the thawed stand in the queue again", func() bool {
		list = m.s.List(m.t, "LRANGE", queueKey, "0", "-1")
		for _, w := range m.queue {
			if w.proc == p && place(w, list) < 0 {
				return false
			}
		}
		return true
	})
	m.queue = slices.DeleteFunc(m.queue, func(w *modelWaiter) bool { return place(w, list) < 0 && !w.proc.awake })
	var others []*modelWaiter
	for _, w := range m.queue {
		if w.proc != p {
			others = append(others, w)
		}
	}
	byPlace := func(a, b *modelWaiter) int { return place(a, list) - place(b, list) }
	if !slices.IsSortedFunc(others, byPlace) {
		m.fail("the order of those who were awake has changed")
	}
	slices.SortFunc(m.queue, byPlace)
}
