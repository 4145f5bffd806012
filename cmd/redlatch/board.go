package main

import (
	"cmp"
	"context"
	"errors"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	scan "github.com/redlatch/redlatch/internal/inspect"
)

// turn is one holder of a lock, as far as it was seen.
type turn struct {
	Owner string        `json:"owner"`
	Mode  redlatch.Mode `json:"mode"`
	Who   string        `json:"who"`
	From  time.Time     `json:"from"` // when it was seen first, by the server's clock
	To    time.Time     `json:"to"`   // when it was seen last, or seen to be gone
	Ended bool          `json:"ended"`
	Looks int           `json:"looks"` // at which it was seen; of one that was seen once it is not known how long it lasted
	// How it ended, as far as can be told: "" = released or handed over, "expired" = its lease
	// ran out, "forced" = this program took it away, "unseen" = at some time after To, when
	// nobody looked.
	How string `json:"how,omitempty"`

	lease  held // when it was seen last
	count  int
	client string // the process's name, as far as CLIENT LIST had it
}

// blind is how long after a look the end of a turn is not known any more.
const blind = 3 * time.Second

// watched is what was seen of one lock over time, and its row in a list, as the page gets it.
type watched struct {
	redlatch.Inspection
	row

	turns   []turn    // the last ones, oldest first
	changes int       // of holders
	first   time.Time // when it was seen first
	seen    time.Time // when it was in a list last, by our clock
}

// row is what a list tells of a lock besides.
type row struct {
	Who       string  `json:"who"`              // holds it, and how many more do
	HeldFor   float64 `json:"held_seconds"`     // of the holder that came first, as far as is known
	WaitedFor float64 `json:"waited_seconds"`   // that holder, before
	WaitsFor  float64 `json:"waiting_seconds"`  // of the waiter, or the process, that came first
	Waiters   int     `json:"waiters"`          // that the server knows: places in queues, or else processes
	Rate      float64 `json:"rate,omitempty"`   // turns per second over the last looks
	Server    string  `json:"server,omitempty"` // its deployment, in ls
}

// MarshalJSON implements json.Marshaler.
func (w watched) MarshalJSON() ([]byte, error) { return joined(w.Inspection, w.row) }

// maxTurns is how many turns of a lock are remembered, maxAllTurns those of all locks together, when they are many;
// those that last are in any case.
const (
	maxTurns    = 64
	maxAllTurns = maxRows * maxTurns
)

// see takes in a new look at the lock.
func (w *watched) see(in redlatch.Inspection) {
	w.first = cmp.Or(w.first, in.At)
	for i := range w.turns {
		if t := &w.turns[i]; !t.Ended && !slices.ContainsFunc(in.Holders, t.is) {
			t.end(in.At)
		}
	}
	w.Inspection, w.HeldFor, w.WaitedFor, w.WaitsFor, w.Waiters = in, 0, 0, 0, max(in.QueueLength, in.Processes, 0)
	for i, h := range in.Holders {
		for j := 0; h.Unlisted && h.Client == "" && j < len(w.turns); j++ { // it was killed: its turns know its name
			if t := w.turns[j]; strings.HasPrefix(t.Owner, h.ClientID) {
				h.Client = t.client
			}
		}
		in.Holders[i].Client = h.Client
		t := w.turn(h)
		if t == nil {
			w.turns = append(w.turns, turn{Owner: h.Owner, Mode: h.Mode, Who: whoOwns(h.Process, h.Owner), From: in.At})
			w.changes++
			t = &w.turns[len(w.turns)-1]
		}
		t.To, t.count, t.lease = in.At, h.Count, t.lease.seen(in.At, h.Remaining)
		t.client = cmp.Or(h.Client, t.client)
		t.Looks++
		if held := in.At.Sub(cmp.Or(h.HeldSince, t.From)).Seconds(); held > w.HeldFor {
			w.HeldFor, w.WaitedFor = held, waited(h).Seconds()
		}
	}
	waits := func(since time.Time) {
		if !since.IsZero() {
			w.WaitsFor = max(w.WaitsFor, in.At.Sub(since).Seconds())
		}
	}
	for _, q := range in.Queue {
		waits(q.AskedSince)
	}
	for _, p := range in.Waiting {
		waits(p.AskedSince)
	}
	switch w.Who = "free"; {
	case in.Kind == redlatch.KindUnknown:
		w.Who = in.Problem
	case len(in.Holders) > 0:
		w.Who = whoOwns(in.Holders[0].Process, in.Holders[0].Owner) + others(in)
	}
	w.forget(maxTurns)
}

// forget leaves the last turns, and those that last.
func (w *watched) forget(most int) {
	extra := len(w.turns) - most
	w.turns = slices.DeleteFunc(w.turns, func(t turn) bool {
		extra--
		return t.Ended && extra >= 0
	})
}

// turn is the present turn of a holder, nil if there is none.
func (w *watched) turn(h redlatch.Holder) *turn {
	if i := slices.IndexFunc(w.turns, func(t turn) bool { return t.is(h) }); i >= 0 {
		return &w.turns[i]
	}
	return nil
}

// is reports whether it is the present turn of a holder.
func (t *turn) is(h redlatch.Holder) bool { return !t.Ended && t.Owner == h.Owner && t.Mode == h.Mode }

// end is told of a look at which the holder was gone.
func (t *turn) end(at time.Time) {
	t.Ended = true
	switch {
	case t.How == "" && t.lease.over(at):
		t.How, t.To = "expired", t.lease.end
	case t.How == "" && at.Sub(t.To) > blind:
		t.How = "unseen"
	default:
		t.To = at
	}
}

// held is the lease of a holder, over all looks.
type held struct {
	end     time.Time     // zero: it has no end
	left    time.Duration // at the last look
	full    time.Duration // the most that was left of it at any look
	overdue bool          // it was said
}

// seen is the lease after a look.
func (l held) seen(at time.Time, left time.Duration) held {
	l.end, l.left, l.full = at.Add(left), left, max(l.full, left)
	if left == 0 {
		l.end = time.Time{}
	}
	return l
}

// late reports whether a living holder would have renewed by now. It does so at a third
// of its lease, so that two thirds are left, or more.
func (l held) late() bool { return !l.end.IsZero() && l.left < l.full/10*6 }

// over reports whether it ran out before a look, as far as can be told.
func (l held) over(at time.Time) bool { return l.late() && !at.Before(l.end) }

// board is all locks that were seen.
type board struct {
	locks map[string]*watched // by key
	more  int                 // locks that there are besides
	last  time.Time           // when the last look began
	took  time.Duration       // the last look
}

func newBoard() *board { return &board{locks: map[string]*watched{}} }

// see takes in a look at all locks that are held now. Those that it has not seen are forgotten after a while.
func (b *board) see(l *looked) {
	now, elapsed := l.began, l.began.Sub(b.last)
	see := func(w *watched, in redlatch.Inspection) {
		before := w.changes
		w.see(in)
		w.forget(min(maxTurns, max(maxAllTurns/len(b.locks), 1)))
		if elapsed > 0 { // the mean over about ten seconds
			turns := float64(max(w.changes-before, l.heard[w.Key])) // one that is passed on in a process has no message
			w.Rate += (turns/elapsed.Seconds() - w.Rate) * min(elapsed.Seconds()/10, 1)
		}
	}
	for _, in := range l.locks {
		w := b.locks[in.Key]
		if w == nil {
			w = &watched{}
			b.locks[in.Key] = w
		}
		see(w, in)
		w.seen = now
	}
	for key, w := range b.locks {
		switch {
		case w.seen.Equal(now):
		case now.Sub(w.seen) > time.Minute, len(b.locks) > 2*maxListed:
			delete(b.locks, key)
		default:
			at := cmp.Or(l.open[w.Name].At, w.At.Add(elapsed)) // about when this look began, and not when it missed the lock
			see(w, redlatch.Inspection{Name: w.Name, Key: w.Key, Kind: w.Kind, At: at})
		}
	}
	b.last, b.more, b.took = now, l.more, l.took
}

// detail is a lock in depth.
type detail struct {
	redlatch.Inspection
	past
}

type past struct {
	Names map[string]string `json:"names"` // of owners, as people see them
	Turns []turn            `json:"turns"`
	First time.Time         `json:"first"`
}

// MarshalJSON implements json.Marshaler.
func (d detail) MarshalJSON() ([]byte, error) { return joined(d.Inspection, d.past) }

// detail is what is known of a lock that was looked at in depth: its first parties.
func (b *board) detail(in redlatch.Inspection) detail {
	in.Holders, in.Queue = in.Holders[:min(len(in.Holders), maxParties)], in.Queue[:min(len(in.Queue), maxParties)]
	in.Waiting = in.Waiting[:min(len(in.Waiting), maxParties)]
	d := detail{in, past{Names: map[string]string{}, Turns: []turn{}}}
	for _, h := range in.Holders {
		d.Names[h.Owner] = whoOwns(h.Process, h.Owner)
	}
	for _, q := range in.Queue {
		d.Names[q.Owner] = whoOwns(q.Process, q.Owner)
	}
	if w := b.locks[in.Key]; w != nil {
		d.Turns, d.First = append(d.Turns, w.turns[max(len(w.turns)-maxTurns, 0):]...), w.first
	}
	return d
}

// maxRows bounds the list of the page, maxParties the holders and the queue that it shows of a lock.
const (
	maxRows    = 1000
	maxParties = 100
)

// overview is the list of the page.
type overview struct {
	Total int       `json:"total"`
	At    time.Time `json:"at"`
	Took  float64   `json:"took_seconds"` // the look
	Locks []watched `json:"locks"`
}

// overview is what the last look found: of the locks that there are besides nothing is known.
func (b *board) overview() overview {
	o := overview{At: time.Now(), Total: b.more, Took: b.took.Seconds(), Locks: []watched{}}
	for _, w := range b.sorted(0, false, "") {
		if !w.seen.Equal(b.last) {
			continue
		}
		o.Total++
		o.At = cmp.Or(w.At, o.At)
		if len(o.Locks) < maxRows {
			r := *w
			r.Holders, r.Queue, r.Waiting = r.Holders[:min(len(r.Holders), 1)], nil, nil
			o.Locks = append(o.Locks, r)
		}
	}
	return o
}

// orders are those of a list; the name decides between equals, and is the last one.
var orders = []struct {
	name  string
	first func(w *watched) float64 // the lock with the most is the first
}{
	{"waiters", func(w *watched) float64 { return float64(w.Waiters) }},
	{"turns/s", func(w *watched) float64 { return w.Rate }},
	{"longest held", func(w *watched) float64 { return w.HeldFor }},
	{"longest waiter", func(w *watched) float64 { return w.WaitsFor }},
	{"name", func(*watched) float64 { return 0 }},
}

// sorts are those of ls, by what --sort calls them.
var sorts = map[string]int{"waiters": 0, "held": 2, "waiter": 3, "name": 4}

// sorted are the locks whose names contain filter.
func (b *board) sorted(order int, reverse bool, filter string) []*watched {
	var out []*watched
	for _, w := range b.locks {
		if strings.Contains(strings.ToLower(w.Name), strings.ToLower(filter)) {
			out = append(out, w)
		}
	}
	inOrder(out, order)
	if reverse {
		slices.Reverse(out)
	}
	return out
}

func inOrder(locks []*watched, order int) {
	first := orders[order].first
	slices.SortFunc(locks, func(x, y *watched) int {
		return cmp.Or(cmp.Compare(first(y), first(x)), strings.Compare(x.Name, y.Name), strings.Compare(x.Server, y.Server))
	})
}

// budget is what all scans of a command take of a server's time, after the first 50 ms.
const budget = "at most 2 % of the server's time"

func newPace() *scan.Pace { return scan.NewPace(0.02, 50*time.Millisecond) }

// fullSpeed is the flag that lifts the budget.
func (a *app) fullSpeed(c *cobra.Command) {
	c.Flags().BoolVar(&a.full, "full-speed", false, "scan as fast as the server answers, instead of in "+budget)
}

// looked is what one look at the server came to: top and the page show what one said.
type looked struct {
	began time.Time
	took  time.Duration
	pause time.Duration                  // to make before the next one: no more than half of the time is for looks
	locks []redlatch.Inspection          // the first ones by name
	more  int                            // locks that there are besides
	open  map[string]redlatch.Inspection // those that were looked at in depth, by the names given
	heard map[string]int                 // messages of unlocks since the last look, by the lock's key
	err   error
}

// lookAll looks at all locks, and at some in depth: what can't be read of one of these is its Problem.
func lookAll(ctx context.Context, client *redlatch.Client, pattern string, open ...string) *looked {
	l := &looked{began: time.Now(), open: map[string]redlatch.Inspection{}}
	pace := scan.PaceOf(ctx)
	rested := pace.Rested()
	l.locks, l.more, l.err = list(ctx, client, pattern, maxListed, func(*redlatch.Inspection) (bool, error) { return true, nil })
	for _, name := range open {
		if _, have := l.open[name]; have || name == "" || l.err != nil {
			continue
		}
		in, err := look(ctx, client, name)
		switch {
		case isGone(err):
			l.err = err
		case err != nil:
			in.Kind, in.Problem = redlatch.KindUnknown, message(err)
		}
		in.Name, l.open[name] = name, in
	}
	for i, in := range l.locks { // the whole one, where there is one
		if whole := l.open[in.Name]; whole.Held() {
			l.locks[i] = whole
		}
	}
	l.took = time.Since(l.began)
	l.pause = l.took - (pace.Rested() - rested)
	return l
}

// isGone reports whether the server could not be reached.
func isGone(err error) bool { return errors.Is(err, redlatch.ErrUnavailable) }

// maxListed and maxMemory bound a list: more fills the memory, and nobody reads it.
const (
	maxListed = 10_000
	maxMemory = 32 << 20
)

// list collects the first locks by name, at most that many, of those that look keeps, and tells how many more there
// are.
func list(
	ctx context.Context, client *redlatch.Client, pattern string, most int, look func(*redlatch.Inspection) (bool, error),
) (locks []redlatch.Inspection, more int, err error) {
	locks = []redlatch.Inspection{}
	n, size := 0, 0
	for in, err := range client.Locks(ctx, pattern) {
		if err != nil {
			return nil, 0, err
		}
		if keep, err := look(&in); err != nil {
			return nil, 0, err
		} else if !keep {
			continue
		}
		n++
		locks = append(locks, shown(in))
		if size += sizeOf(in); len(locks) > 2*most || size > 2*maxMemory {
			locks, size = shorten(locks, most)
		}
	}
	locks, _ = shorten(locks, most)
	return locks, n - len(locks), nil
}

// shorten sorts locks by name and keeps the first ones: at most that many, in at most maxMemory; it tells how much.
func shorten(locks []redlatch.Inspection, most int) (kept []redlatch.Inspection, size int) {
	slices.SortFunc(locks, func(x, y redlatch.Inspection) int { return strings.Compare(x.Name, y.Name) })
	for i, in := range locks {
		n := sizeOf(in)
		if i == most || size+n > maxMemory {
			return slices.Clone(locks[:i]), size
		}
		size += n
	}
	return locks, size
}

// sizeOf is about the memory of what is known of a lock.
func sizeOf(in redlatch.Inspection) int {
	n := 300 + len(in.Name) + len(in.Key) + 250*len(in.Waiting)
	for _, h := range in.Holders {
		n += 250 + len(h.Owner)
	}
	for _, w := range in.Queue {
		n += 200 + len(w.Owner)
	}
	return n
}

// listener counts the messages of unlocks. It is safe for concurrent use.
type listener struct {
	mu     sync.Mutex
	counts map[string]int // guarded by mu; by the lock's key
	deaf   string         // guarded by mu; why it hears nothing
}

// channelOf is a channel of a lock: its key in braces, or one that contains a brace, and who is called.
var channelOf = regexp.MustCompile(`^\w+:(?:\{([^{]*)\}|(.*?))(?::[0-9a-f-]{36}(?::[^:]+)?)?$`)

// listen counts until ctx ends, or client. Each pattern is one more receiver of every message.
func (l *listener) listen(ctx context.Context, client rueidis.Client, clean func(string) string) {
	patterns := client.B().Psubscribe().Pattern("redisson_lock__channel:*", "redisson_rwlock:*", "redlatch_grant:*").Build()
	err := client.Receive(ctx, patterns, func(m rueidis.PubSubMessage) {
		l.mu.Lock()
		defer l.mu.Unlock()
		parts := channelOf.FindStringSubmatch(m.Channel)
		if parts != nil && len(l.counts) < maxListed {
			l.counts[exact(parts[1]+parts[2])]++
		}
	})
	l.mu.Lock()
	defer l.mu.Unlock()
	l.deaf = clean(message(cmp.Or(err, errors.New("the server has ended it"))))
}

// take moves the counts since the last call into a look, and tells why there are none.
func (l *listener) take(to *looked) (deaf string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	to.heard, l.counts = l.counts, map[string]int{}
	return l.deaf
}
