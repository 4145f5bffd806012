package desk

import (
	"fmt"
	"strings"
	"time"
)

// world is clients with their tables, a server, and what is under way between them. All that happens is a step of
// an item; what chooses the next one is the caller's: at random in TestWorlds, every order in TestSearch.
type world struct {
	p       profile
	r       rng
	now     Time // true time
	srv     server
	clients []*client
	items   []*item
	steps   int
	spins   int  // steps at the same instant
	last    Time // that instant
	tracing bool
	trace   []string
	failed  string // the first violation
	calm    bool   // the end: no trouble any more, users only leave

	locks    map[string]*truth
	lost     map[*Hold]Why
	answered *Command // whose answer is being handed in
	serverD  Time     // the server's clock beside the true one
	grants   int
}

// truth is what is true of a lock, whoever knows it.
type truth struct {
	epoch   int           // how often the server lost data, or was told to
	forgot  bool          // it lost what it was to refuse, too
	granted map[field]int // the epoch of each grant
	free    Time          // since when nobody holds it; -1: somebody does
	waits   Time          // since when a client that could take it waits
	live    []*tenant     // whose contexts are alive
}

// tenant is a hold as its user has it.
type tenant struct {
	c    *client
	h    *Hold
	u    *user
	gone Time // since when the server does not hold it, and was told to forget it; 0: it does
}

// client is a process.
type client struct {
	id      int
	t       *Table
	rate    float64       // of its clocks
	wall    time.Duration // its wall clock beside its monotonic one
	base    Time          // true time when it began
	stands  Time          // it does not run until then
	broke   Time          // what was known before may not hold
	doubts  map[string]Time
	moved   Time // and answers to what was sent before are none
	users   []*user
	subs    map[string]*[2]bool // what the server sends it: calls, and messages for all
	asked   map[*Request]*user
	session map[uint64]*Session
	owned   map[uint64]Owner // who had a session last
	closed  bool
}

// user is a goroutine that takes locks.
type user struct {
	c       *client
	owner   Owner
	waits   []*Request
	holds   []*Hold
	unlocks int
	leaves  Time // when it gives up
}

// kindOf is what an item is about.
type kindOf uint8

const (
	queued    kindOf = iota // a command in a lane
	wired                   // a command on its way
	stray                   // a command that runs after its client was told that it failed
	replied                 // an answer on its way
	message                 // a message on its way
	sub                     // a subscription on its way
	confirmed               // its confirmation
	acts                    // a user
	foreigner               // another library's client
	happens                 // a trouble of the world
)

// item is what can happen next.
type item struct {
	kind   kindOf
	at     Time
	c      *client
	cmd    *Command
	answer Answer
	key    string
	place  Place
	others bool
	u      *user
	id     uint64
}

// rng is splitmix64: fast, and a seed is one number.
type rng uint64

func (r *rng) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}
func (r *rng) n(n int) int            { return int(r.next() % uint64(n)) }
func (r *rng) upTo(d Time) Time       { return Time(r.next() % uint64(d+1)) }
func (r *rng) luck(perMille int) bool { return perMille > 0 && int(r.next()%1000) < perMille }

func newWorld(p profile, seed uint64) *world {
	w := &world{p: p, r: rng(seed), locks: map[string]*truth{}, lost: map[*Hold]Why{}}
	w.srv = server{keys: map[string]*lockState{}, counts: !p.uncounted, came: 1000, hears: w.hears, tells: w.tells, granted: w.tookHold}
	for i := range p.clients {
		c := &client{id: i, rate: 1}
		if p.drift {
			c.rate += float64(w.r.n(8001)-4000) / 1e6
		}
		w.start(c)
		w.clients = append(w.clients, c)
	}
	if p.others > 0 {
		w.push(&item{kind: foreigner, key: "a", at: w.r.upTo(10 * ms)})
	}
	if p.trouble > 0 {
		w.push(&item{kind: happens, at: w.r.upTo(p.trouble)})
	}
	return w
}

const ms = time.Millisecond

// start is a new process in a client's place.
func (w *world) start(c *client) {
	c.base = w.now
	c.wall = time.Hour
	c.t = New(Config{Lease: w.p.lease, Tenure: w.p.tenure, Seed: w.r.next()})
	c.subs, c.asked, c.session, c.owned, c.users = map[string]*[2]bool{}, map[*Request]*user{}, map[uint64]*Session{}, map[uint64]Owner{}, nil
	c.doubts = map[string]Time{}
	for i := range w.p.users {
		u := &user{c: c, owner: Owner(i + 1), leaves: never}
		c.users = append(c.users, u)
		w.push(&item{kind: acts, c: c, u: u, at: w.now + w.r.upTo(5*ms)})
	}
}

func (w *world) push(i *item) { w.items = append(w.items, i) }

// clock is what a client reads.
func (c *client) clock(now Time) Now {
	mono := Time(float64(now-c.base) * c.rate)
	return Now{Mono: mono, Wall: mono + c.wall}
}

// truly is the true time of a client's instant.
func (c *client) truly(mono Time) Time { return c.base + Time(float64(mono)/c.rate) + 1 }

func (w *world) lock(key string) *truth {
	l := w.locks[key]
	if l == nil {
		l = &truth{granted: map[field]int{}, free: -1, waits: -1}
		w.locks[key] = l
	}
	return l
}

// tookHold: the server made a hold.
func (w *world) tookHold(key string, f field) {
	l := w.lock(key)
	l.granted[f] = l.epoch
	w.grants++
	if f.client == foreign || w.clients[f.client].closed {
		return
	}
	if s := w.clients[f.client].session[f.id]; s != nil && s.phase == gone && !l.forgot {
		w.fail("the lock was taken for s%d, which is gone", f.id)
	}
}

func (w *world) hears(id int, key string, at Place) bool {
	c := w.clients[id]
	if s := c.subs[key]; s == nil || !s[0] {
		return false
	}
	if !w.trouble(w.p.silent) {
		w.push(&item{kind: message, c: c, key: key, place: at, at: w.now + w.lag()})
	}
	return true
}

func (w *world) tells(key string) (heard bool) {
	for _, c := range w.clients {
		if s := c.subs[key]; s != nil && s[1] {
			heard = true
			if !w.trouble(w.p.silent) {
				w.push(&item{kind: message, c: c, key: key, others: true, at: w.now + w.lag()})
			}
		}
	}
	return heard || w.p.others > 0 && w.r.luck(300)
}

func (w *world) trouble(perMille int) bool { return !w.calm && !w.p.ordered && w.r.luck(perMille) }

func (w *world) lag() Time {
	if w.trouble(w.p.slow) {
		return w.r.upTo(w.p.lease / 2)
	}
	return 50*time.Microsecond + w.r.upTo(w.p.lag)
}

func (w *world) fail(format string, args ...any) {
	if w.failed == "" {
		w.failed = fmt.Sprintf(format, args...)
	}
}

func (w *world) note(format string, args ...any) {
	if w.tracing {
		w.trace = append(w.trace, fmt.Sprintf("%12v ", w.now)+fmt.Sprintf(format, args...))
	}
}

// after carries out what a client's table wants done.
func (w *world) after(c *client) {
	for _, x := range c.t.Effects() {
		if w.tracing && x.Kind != Arm {
			w.note("      client %d: %v", c.id, x)
		}
		switch x.Kind {
		case Send:
			if s := x.Command.Session; s != nil {
				c.session[s.field] = s
				w.alone(x.Command)
			}
			w.push(&item{kind: queued, c: c, cmd: x.Command, at: w.now + w.r.upTo(20*time.Microsecond)})
		case Cancel:
			for _, i := range w.items {
				if i.cmd == x.Command && i.kind == queued {
					i.kind, i.answer = replied, Answer{Verdict: NotRun}
				}
			}
		case Listen:
			w.push(&item{kind: sub, c: c, key: x.Key, others: x.Others, at: w.now + w.lag()})
		case Unlisten:
			if s := c.subs[x.Key]; s != nil {
				s[index(x.Others)] = false
			}
		case End:
			w.ended(c, x)
		case Grant:
			w.grantTo(c, x)
		case Reject:
			w.rejects(c, x)
		case Unlocked:
			u := w.userOf(c, x.Hold)
			if u == nil || u.unlocks == 0 {
				w.fail("client %d: an Unlock of h%d has two results", c.id, x.Hold.id)
				break
			}
			u.unlocks--
			u.forget(x.Hold)
			if why := w.lost[x.Hold]; x.Why == OK && why != OK {
				w.fail("client %d: h%d is %s, and its Unlock says nothing", c.id, x.Hold.id, whys[why])
			}
			delete(w.lost, x.Hold)
		case Extended, Drained, Arm:
		}
	}
}

func index(others bool) int {
	if others {
		return 1
	}
	return 0
}

func (w *world) userOf(c *client, h *Hold) *user {
	for _, u := range c.users {
		for _, o := range u.holds {
			if o == h {
				return u
			}
		}
	}
	return nil
}

func (u *user) forget(h *Hold) {
	for i, o := range u.holds {
		if o == h {
			u.holds = append(u.holds[:i], u.holds[i+1:]...)
			return
		}
	}
}

// String is the end of what happened.
func (w *world) String() string {
	return strings.Join(w.trace[max(0, len(w.trace)-60):], "\n")
}
