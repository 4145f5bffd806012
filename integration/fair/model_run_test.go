package fair

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

// How the model runs, is compared with the lock, and begins anew where the machine kept a
// process from running.

// pausedError ends an episode in which the machine kept a process from running.
type pausedError string

// fail ends the test, or the episode if a process did not run for so long that it may
// have lost what it had.
func (m *model) fail(format string, args ...any) {
	m.t.Helper()
	text := fmt.Sprintf("step %d: %s\nqueue on the server: %v\nlast steps:\n%s", m.step, fmt.Sprintf(format, args...),
		m.s.List(m.t, "LRANGE", queueKey, "0", "-1"), strings.Join(m.log, "\n"))
	who, from, limit := m.procs, m.agreed, m.pause()
	if m.holder != nil && m.since.Before(from) {
		from = m.since
	}
	from = from.Add(-m.lease)
	if m.lost() { // only its own process can be why
		who, from, limit = []*modelProc{m.kept.proc}, m.kept.from, m.kept.limit
	}
	if i, d := m.paused(who, from); d > limit {
		panic(pausedError(fmt.Sprintf("process %d did not run for %v of %v\n%s", i, d, m.lease, text)))
	}
	m.t.Fatal(text)
}

// paused asks processes for how much of a lease each did not run, since an instant. It
// returns the one that did so for longest.
func (m *model) paused(who []*modelProc, from time.Time) (most int, longest time.Duration) {
	m.t.Helper()
	for _, p := range who {
		select {
		case <-p.p.Done(): // killed by the model
			continue
		default:
		}
		if !p.awake { // freezeLong was under way
			p.p.Thaw(m.t)
			p.stops[len(p.stops)-1].to = time.Now().UnixMicro()
		}
		m.nextID++
		id := m.nextID
		p.p.Send(m.t, "pauses %d %d", id, from.UnixMicro())
		if d := longestPause(m.pausesOf(id), p.stops, m.lease); d > longest {
			most, longest = slices.Index(m.procs, p), d
		}
	}
	return most, longest
}

func (m *model) pausesOf(id int) []span {
	m.t.Helper()
	timer := time.NewTimer(time.Minute)
	defer timer.Stop()
	for {
		select {
		case e := <-m.events:
			words := append(strings.Fields(e.line), "")
			if words[0] != "pauses" || words[1] != strconv.Itoa(id) {
				continue // the episode is over in any case
			}
			all, err := parsePauses(words[2])
			if err != nil {
				m.t.Fatal(err)
			}
			return all
		case <-timer.C:
			m.t.Fatal("a process does not tell when it was paused")
		}
	}
}

// eventually waits until ok is true, for at most limit.
func (m *model) eventually(limit time.Duration, what string, ok func() bool) {
	m.t.Helper()
	start, lost := time.Now(), m.busy.slack()
	for !ok() {
		if time.Since(start) > limit+m.busy.slack()-lost {
			m.fail("not within %v: %s", limit, what)
		}
		time.Sleep(2 * time.Millisecond)
	}
}

// queueNow is the queue with the number of its scores at the end, of one moment.
const queueNow = `local all = redis.call('LRANGE', KEYS[1], 0, -1)
all[#all + 1] = tostring(redis.call('ZCARD', KEYS[2]))
return all`

// check compares the queue on the server with the model's.
func (m *model) check() {
	now := time.Now()
	all := m.s.List(m.t, "EVAL", queueNow, "2", queueKey, scoresKey)
	list, scores := all[:len(all)-1], all[len(all)-1]
	at := -1
	for _, w := range m.queue {
		if !w.proc.awake {
			continue
		}
		i := slices.Index(list, w.field)
		if i <= at {
			m.fail("waiter %d (%s) has place %d, and the one before it %d", w.id, w.field, i, at)
		}
		at = i
	}
	if scores != strconv.Itoa(len(list)) {
		m.fail("%s scores for a list of %d", scores, len(list))
	}
	m.agreed = now
}

type op struct {
	weight int
	name   string
	do     func()
}

func (m *model) act(ops []op) {
	total := 0
	for _, o := range ops {
		total += o.weight
	}
	n := m.rnd.IntN(total)
	for _, o := range ops {
		if n -= o.weight; n < 0 {
			m.did[o.name]++
			o.do()
			return
		}
	}
}

// episode goes on with new processes and an empty queue, to the last step and until all
// have left. It returns why it ended before if that was the machine's doing.
func (m *model) episode(steps int) (paused string) {
	defer func() {
		switch r := recover().(type) {
		case nil:
		case pausedError:
			paused = string(r)
		default:
			panic(r)
		}
	}()
	m.s.Do(m.t, "FLUSHALL")
	m.holder, m.queue, m.kept = nil, nil, nil
	for _, p := range m.procs {
		m.start(p)
	}
	m.agreed = time.Now()
	ops := []op{
		{400, "arrive", m.arrive}, {380, "release", m.release}, {120, "give up", m.giveUp},
		{60, "give up at the grant", m.giveUpAtTheGrant}, {2, "keep", m.keep},
		{6, "kill", m.kill}, {5, "freeze shortly", m.freezeShortly}, {4, "freeze long", m.freezeLong},
	}
	for m.step < steps {
		m.step++
		m.act(ops)
		m.check()
	}
	// the end: all leave, nothing stays but what the dead are allowed to leave
	for m.holder != nil {
		m.release()
	}
	m.eventually(2*m.skip+m.lease, "the lock is free", func() bool { return m.s.Int(m.t, "EXISTS", name) == 0 })
	return ""
}

// Whatever happens in whatever order, whoever is inside is who the model of the queue says.
func TestRandomStepsAgainstAModel(t *testing.T) {
	t.Parallel() // it waits, for the most part
	steps := 3000
	if text := os.Getenv("FAIR_STEPS"); text != "" {
		steps, _ = strconv.Atoi(text)
	}
	m := &model{
		modelTimes: modelFirst,
		t:          t, s: testbed.Standalone(t), rnd: seeded(t), events: make(chan modelEvent, 4096), busy: newMeter(t), did: map[string]int{},
	}
	for range 4 {
		m.procs = append(m.procs, &modelProc{})
	}
	for paused := m.episode(steps); paused != ""; paused = m.episode(steps) {
		if m.skip >= modelLast {
			t.Fatalf("the machine keeps the processes from running: %d of %d steps were made; %s", m.step, steps, paused)
		}
		m.skip, m.lease = 2*m.skip, 2*m.lease
		t.Logf("begins anew with twice the times: %s", paused)
		for _, p := range m.procs {
			p.p.Kill(t)
			p.serial++
		}
	}
	t.Logf("%v", m.did)
	bed.Unlock(t, lockIt(t, dial(t, m.s.Addr()).FairLock(name)))
	m.s.Do(t, "DEL", recordKey)
	nothingLeft(t, m.s)
}
