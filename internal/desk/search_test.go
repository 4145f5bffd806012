package desk

import (
	"slices"
	"testing"
	"time"
)

// small is a world of which every order of events is tried, to a depth.
type small struct {
	name   string
	users  [][]string // of each client: what each user does, one letter a step
	depth  int        // so many events
	tenure Time
	lose   int // so many commands or answers are lost, or run late
	miss   int // so many messages are lost
	leave  int // so many callers leave
	pass   int // so often all leases may pass
	force  int // so often the lock is forced open
	cut    int // so many subscriptions break
	notRun int // so many commands did not run
	timers int // so often the time goes on to what comes next
	settle int // the first users of so many clients ask, one after the other, and all of that is answered, before the search begins
	lies   Time
}

// smalls: L lock, T a single attempt, F with a fixed lease, G fenced, N lock again while inside, X extend, U unlock.
var smalls = []small{
	{name: "two and two", users: [][]string{{"LU", "LU"}, {"LU", "LU"}}, depth: 14, timers: 1, lies: 320 * ms},
	{name: "two and two, no tenure", users: [][]string{{"LU", "LU"}, {"LU"}}, tenure: -1, depth: 18, timers: 1, lies: 320 * ms},
	{name: "one lost", users: [][]string{{"LU", "LU"}, {"LU"}}, depth: 13, lose: 1, timers: 3, lies: 4 * time.Second},
	{name: "one lost alone", users: [][]string{{"LU", "LU"}}, depth: 22, lose: 2, timers: 4, lies: 4 * time.Second},
	{name: "one lost, one leaves", users: [][]string{{"LU", "LU"}, {"LU"}}, depth: 12, lose: 1, leave: 1, timers: 2, lies: 4 * time.Second},
	{name: "a leaver", users: [][]string{{"LU", "LU"}, {"LU", "LU"}}, depth: 13, leave: 2, timers: 1, lies: 320 * ms},
	{name: "an expiry", users: [][]string{{"LU", "LU"}, {"LU"}}, depth: 14, pass: 1, timers: 2, lies: 1300 * ms},
	{name: "an expiry and one lost", users: [][]string{{"LU"}, {"LU"}}, depth: 16, pass: 1, lose: 1, timers: 3, lies: 4 * time.Second},
	{name: "a message lost", users: [][]string{{"LU", "LU"}, {"LU"}}, depth: 16, miss: 1, timers: 2, lies: 1300 * ms},
	{name: "deaf", users: [][]string{{"LU"}, {"LU"}}, depth: 18, cut: 1, timers: 2, lies: 1300 * ms},
	{name: "forced", users: [][]string{{"LU", "LU"}, {"LU"}}, depth: 14, force: 1, timers: 2, lies: 12 * time.Second},
	{name: "nested", users: [][]string{{"LNUU", "LU"}, {"LU"}}, depth: 15, timers: 1, leave: 1, lies: 1300 * ms},
	{name: "nested, one lost", users: [][]string{{"LNUU"}, {"LU"}}, depth: 16, lose: 1, timers: 3, lies: 4 * time.Second},
	{name: "nested before a line, one lost", users: [][]string{{"LNUU", "LU"}}, depth: 20, lose: 1, timers: 3, lies: 4 * time.Second},
	{name: "did not run, one leaves", users: [][]string{{"LU"}, {"LU", "LU"}}, depth: 18, notRun: 1, leave: 1, timers: 2, lies: 320 * ms},
	{name: "nested, one lost, forced", users: [][]string{{"LNUU"}, {"L"}}, depth: 18, lose: 1, force: 1, timers: 3, lies: 12 * time.Second},
	{name: "settled", users: [][]string{{"LU", "LU"}, {"LU"}, {"LU"}}, settle: 3, depth: 24, timers: 1, lies: 320 * ms},
	{name: "settled, one leaves", users: [][]string{{"LU"}, {"LU"}, {"LU"}}, settle: 3, depth: 24, leave: 1, notRun: 1, timers: 1, lies: 320 * ms},
	{name: "settled, one lost", users: [][]string{{"LU"}, {"LU", "LU"}, {"LU"}}, settle: 3, depth: 24, lose: 1, leave: 1, timers: 3, lies: 4 * time.Second},
	{name: "settled, an expiry", users: [][]string{{"LU", "LU"}, {"LU"}, {"LU"}}, settle: 3, depth: 24, pass: 1, lose: 1, timers: 2, lies: 4 * time.Second},
	{name: "single attempts", users: [][]string{{"TU", "LU"}, {"TU"}}, depth: 15, lose: 1, timers: 2, lies: 4 * time.Second},
	{name: "other wishes", users: [][]string{{"FU", "LU"}, {"GU"}}, depth: 15, timers: 2, lies: 1300 * ms},
	{name: "extended", users: [][]string{{"FXU", "LU"}, {"LU"}}, depth: 15, lose: 1, timers: 2, lies: 4 * time.Second},
}

// choice is what happens next: an item, and how; or one of what no item stands for.
type choice struct {
	item int8
	how  int8
}

const (
	plainly    = int8(iota) // as it should
	unsent                  // of a command: lost on its way
	unheard                 // its answer is lost
	late                    // it runs after its client was told that it failed
	leaves                  // of a user: its caller leaves
	timePasses              // no item: what comes next by time
	leasePasses
	forcedOpen
	cutOff
	refusedForNow // of a command: it did not run
)

// searched is a world and what is left of its budgets.
type searched struct {
	*world
	s    small
	left [8]int
	at   map[*user]int // how far each user is
}

const (
	toLose = iota
	toMiss
	toLeave
	toPass
	toForce
	toCut
	toTime
	toRefuse
)

func newSearched(s small) *searched {
	p := profile{clients: len(s.users), keys: []string{"a"}, lease: 3 * time.Second, tenure: 6 * ms, lies: s.lies, ordered: true, noReply: s.lose}
	if s.tenure < 0 {
		p.tenure = 0
	}
	w := &searched{world: newWorld(p, 1), s: s, left: [8]int{s.lose, s.miss, s.leave, s.pass, s.force, s.cut, s.timers, s.notRun}, at: map[*user]int{}}
	for n, c := range w.clients {
		for i := range s.users[n] {
			u := &user{c: c, owner: Owner(i + 1), leaves: never}
			c.users = append(c.users, u)
			w.push(&item{kind: acts, c: c, u: u, id: uint64(i)})
		}
	}
	for n := range s.settle {
		for _, i := range w.items {
			if i.kind == acts && i.c == w.clients[n] {
				w.user(i, plainly)
				break
			}
		}
		for k := 0; k < len(w.items); k++ {
			if w.items[k].kind != acts {
				w.now += 10 * time.Microsecond
				w.step(k)
				k = -1
			}
		}
	}
	return w
}

func (w *searched) script(i *item) string { return w.s.users[i.c.id][i.id][w.at[i.u]:] }

// idle is a hold that a user could unlock.
func (u *user) idle() *Hold {
	for _, h := range u.holds {
		if h.state != unlocking {
			return h
		}
	}
	return nil
}

// choices are all that can happen next.
func (w *searched) choices() (all []choice) {
	quiet := true // nothing is on its way: where a free lock must be taken at once, time passes only then
	for n, i := range w.items {
		k := int8(n)
		quiet = quiet && i.kind == acts
		switch i.kind {
		case acts:
			script := w.script(i)
			switch {
			case len(i.u.waits) > 0:
				if w.left[toLeave] > 0 {
					all = append(all, choice{k, leaves})
				}
			case script != "" && (script[0] != 'N' && script[0] != 'X' && script[0] != 'U' || i.u.idle() != nil):
				all = append(all, choice{k, plainly})
			}
			continue
		case wired:
			if w.left[toRefuse] > 0 {
				all = append(all, choice{k, refusedForNow})
			}
			if w.left[toLose] > 0 {
				all = append(all, choice{k, unsent}, choice{k, unheard}, choice{k, late})
			}
		case message:
			if w.left[toMiss] > 0 {
				all = append(all, choice{k, unsent})
			}
		case queued, stray, replied, sub, confirmed, foreigner, happens:
		}
		all = append(all, choice{k, plainly})
	}
	for n, how := range [...]int8{toPass: leasePasses, toForce: forcedOpen, toCut: cutOff, toTime: timePasses} {
		if how != plainly && w.left[n] > 0 && (how != leasePasses || w.srv.key("a").count > 0) && (how != timePasses || w.s.lies > time.Second || quiet) {
			all = append(all, choice{-1, how})
		}
	}
	return all
}

// take makes a choice.
func (w *searched) take(ch choice) {
	w.now += 10 * time.Microsecond
	if ch.item < 0 {
		w.pass(ch.how)
	} else {
		i := w.items[ch.item]
		switch {
		case i.kind == acts:
			w.user(i, ch.how)
		case ch.how == unsent && i.kind == message:
			w.left[toMiss]--
			w.note("lost: message to client %d", i.c.id)
			w.remove(int(ch.item))
		case ch.how == refusedForNow:
			w.left[toRefuse]--
			w.note("did not run: %s of client %d", i.cmd, i.c.id)
			i.kind, i.answer = replied, Answer{Verdict: NotRun}
		case ch.how == unsent || ch.how == late:
			w.left[toLose]--
			w.note("lost, late=%t: %s of client %d", ch.how == late, i.cmd, i.c.id)
			if ch.how == late {
				w.push(&item{kind: stray, c: i.c, cmd: i.cmd})
			}
			i.kind, i.answer = replied, Answer{}
		default:
			w.step(int(ch.item))
			if ch.how == unheard {
				w.left[toLose]--
				i.answer = Answer{}
			}
		}
	}
	for n := 0; n < len(w.items); n++ { // what is sent is written at once, and a subscription is confirmed with it
		if k := w.items[n].kind; k == queued || k == confirmed {
			w.step(n)
			n = -1
		}
	}
	for _, c := range w.clients {
		c.t.seed = 1 // what only spreads load makes no states
	}
	w.check()
}

func (w *searched) remove(n int) {
	last := len(w.items) - 1
	w.items[n] = w.items[last]
	w.items = w.items[:last]
}

// user is the next step of one.
func (w *searched) user(i *item, how int8) {
	u, now := i.u, i.c.clock(w.now)
	if how == leaves {
		w.left[toLeave]--
		r := u.waits[len(u.waits)-1]
		w.note("client %d: r%d leaves", i.c.id, r.id)
		i.c.t.Leave(now, r)
		w.after(i.c)
		return
	}
	step := w.script(i)[0]
	w.at[u]++
	v := Wish{Owner: u.owner}
	switch step {
	case 'U':
		h := u.idle()
		u.unlocks++
		w.note("client %d: h%d is unlocked", i.c.id, h.id)
		i.c.t.Unlock(now, h)
	case 'X':
		w.note("client %d: h%d is extended", i.c.id, u.idle().id)
		i.c.t.Extend(now, &Extension{Hold: u.idle(), Lease: 2 * w.p.lease})
	default:
		v.Once, v.Fenced = step == 'T', step == 'G'
		if step == 'F' {
			v.Lease = w.p.lease / 3
		}
		r := i.c.t.Arrive(now, "a", v)
		u.waits, i.c.asked[r] = append(u.waits, r), u
		w.note("client %d: r%d arrives %c", i.c.id, r.id, step)
	}
	w.after(i.c)
}

// pass is what no item stands for.
func (w *searched) pass(how int8) {
	switch how {
	case timePasses:
		w.left[toTime]--
		first, c := never, (*client)(nil)
		for _, o := range w.clients {
			if at := o.t.armed; at != never && o.truly(at) < first {
				first, c = o.truly(at), o
			}
		}
		if c != nil {
			w.now = max(w.now, first)
			w.note("client %d: tick", c.id)
			c.t.Tick(c.clock(w.now))
			w.after(c)
		}
	case leasePasses:
		w.left[toPass]--
		w.note("a lease passes")
		w.now += w.p.lease
		for _, c := range w.clients {
			c.t.Tick(c.clock(w.now))
			w.after(c)
		}
	case forcedOpen:
		w.left[toForce]--
		w.lose("forced open", "a")
		w.srv.now = w.now
		w.srv.force("a")
	case cutOff:
		w.left[toCut]--
		w.cut(w.clients[0])
		w.after(w.clients[0])
	}
}

// replay makes the choices of a path.
func replay(s small, path []choice, tracing bool) *searched {
	w := newSearched(s)
	w.tracing = tracing
	for _, ch := range path {
		w.take(ch)
	}
	return w
}

// search tries every order, the short ones first, and returns the first violation; most bounds the states.
func search(s small, most int) (states, depth int, bad string, path []choice) {
	seen := map[uint64]bool{}
	level := [][]choice{nil}
	for depth = 0; depth < s.depth && len(level) > 0; depth++ {
		var next [][]choice
		for _, path := range level {
			w := replay(s, path, false)
			for _, ch := range w.choices() {
				longer := slices.Concat(path, []choice{ch})
				w := replay(s, longer, false)
				if w.failed != "" {
					return states, depth + 1, w.failed, longer
				}
				if h := w.hash(); !seen[h] {
					seen[h] = true
					states++
					next = append(next, longer)
				}
			}
			if states >= most {
				return states, depth, "", nil
			}
		}
		level = next
	}
	return states, depth, "", nil
}

// In small worlds every order of events keeps the promises, to the depth that is said.
func TestSearch(t *testing.T) {
	most := number(t, "REDLATCH_DESK_STATES", 2000)
	for _, s := range smalls {
		t.Run(s.name, func(t *testing.T) {
			began := time.Now()
			states, depth, bad, path := search(s, most)
			if bad != "" {
				t.Fatalf("after %d states, at depth %d: %s\n%v", states, depth, bad, replay(s, path, true))
			}
			t.Logf("%d states, every order to a depth of %d, %.0f states/s", states, depth, float64(states)/time.Since(began).Seconds())
		})
	}
}
