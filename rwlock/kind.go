package rwlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// keys is what both modes of one lock share; commands only read what is in it.
type keys struct {
	lock    string
	channel string
	void    string
	trace   string
	leases  string
	writers string
	marks   string
	readers string
	turn    string
	token   string // "" when not fenced
	prefix  string // of all timeout keys
	fence   string // the counter's TTL as the scripts take it
	publish string
	counts  string // whether receivers are counted, as the scripts take it
	skip    time.Duration
	skipArg string
	prefer  bool

	keyOnly []string // the lock
	// of a write hold, without and with the trace
	acquire, release, renewed [2][]string
	places                    [2][]string // of waiting readers, writers
	state                     conn.Command
	spec                      pubsub.Spec
	reads, writes             kind.Traits // of the two locks
}

func newKeys(c *engine.Core, key string, set settings.Lock) (*keys, error) {
	if err := kind.Only(set, "ReadWriteLock", true, true); err != nil {
		return nil, err
	}
	skip, err := kind.SkipAfter(set)
	if err != nil {
		return nil, err
	}
	k := &keys{
		lock: key, channel: luascript.RWChannel(key), void: luascript.VoidKey(key), trace: luascript.TraceKey(key),
		leases: luascript.RWLeasesKey(key), writers: luascript.RWWritersKey(key), marks: luascript.RWMarksKey(key),
		readers: luascript.RWReadersKey(key), turn: luascript.RWTurnKey(key), prefix: luascript.RWTimeoutPrefix(key),
		publish: c.Topology().Publish(), skip: skip, skipArg: kind.Millis(skip), prefer: set.PreferReaders,
		keyOnly: []string{key},
		counts:  c.Topology().Counts(),
	}
	if set.Fenced {
		k.token, k.fence = luascript.TokenKey(key), kind.FenceArg(c.FenceTTL())
	}
	k.acquire = k.both(k.token, k.lock, k.void, k.leases, k.writers, k.marks, k.turn)
	k.release = k.both("", k.lock, k.void, k.leases, k.readers, k.turn, k.writers, k.marks)
	k.renewed = [2][]string{{k.lock, k.leases, k.lock}, {k.lock, k.leases, k.lock, k.trace, k.trace, k.trace}}
	k.places = [2][]string{
		{k.readers, k.turn, k.lock, k.leases, k.writers, k.marks},
		{k.marks, k.writers, k.lock, k.leases},
	}
	k.state = conn.Command{
		Script: luascript.RWState, Keys: []string{k.lock, k.leases, k.writers, k.marks, k.readers, k.turn},
		Args: []string{"0", k.prefix},
	}
	if k.token != "" {
		k.state.Keys, k.state.Args[0] = append(k.state.Keys, k.token), "1"
	}
	k.reads = kind.Traits{Type: string(lock.ModeRead), Mode: lock.ModeRead, Fenced: set.Fenced}
	k.writes = kind.Traits{Type: string(lock.ModeWrite), Mode: lock.ModeWrite, Fenced: set.Fenced}
	if set.ShareReads {
		// Who enters past writers admits only those who would, too.
		k.reads.Shares = "reads"
		if k.prefer {
			k.reads.Shares, k.reads.Overtakes = "reads past writers", true
		}
		if k.token != "" { // and who has no token nobody who must have one
			k.reads.Shares += ", fenced"
		}
	}
	mine := luascript.CallChannel(key) + c.ID() + ":write"
	k.spec = pubsub.Spec{
		ID: k.channel, Channels: []string{mine}, Slot: luascript.Slot(key), Foreign: k.channel,
		Route: func(channel, payload string) pubsub.Wake {
			if channel == mine {
				return pubsub.Wake{One: true, Place: payload}
			}
			return route(payload)
		},
		Unheard: func() {}, // its mark is being taken back, which calls the next one
	}
	return k, nil
}

// both are a script's keys without and with the trace behind them.
func (k *keys) both(token string, list ...string) [2][]string {
	if token != "" {
		list = append(list, token)
	}
	return [2][]string{list, append(list[:len(list):len(list)], k.trace)}
}

// waiting is what an acquisition that waits remembers between its attempts; it
// is the Attempt's Data.
type waiting struct {
	came   string    // a reader: when the server refused it first, µs
	sent   time.Time // a reader: when the command was sent that was refused first
	until  time.Time // when the holder's lease ends at the earliest, as far as told
	held   bool      // the lock was held then
	marked bool      // a reader: only the mark of a writer was in the way
	often  bool      // a reader: its place is refreshed for that
}

func data(a *kind.Attempt) *waiting {
	w, _ := a.Data.(*waiting)
	if w == nil {
		w = &waiting{}
		a.Data = w
	}
	return w
}

// place is how long the place of an attempt on the server lives, as the scripts
// take it.
func (k *keys) place(a *kind.Attempt) string {
	if a.Wait == 0 {
		return "0"
	}
	return k.skipArg
}

// busy reads the part of a refusal that both modes have in common.
func (k *keys) busy(a *kind.Attempt, r conn.Reply) kind.Outcome {
	w := data(a)
	out := kind.Outcome{
		Remaining: kind.Remaining(r.Int(1)), Holder: r.Str(2), Trace: r.Str(3),
		LookIn: time.Duration(r.Int(4)) * time.Millisecond, Queued: a.Wait != 0,
	}
	w.held = r.Int(1) != free
	w.until = a.Sent.Add(out.Remaining)
	return out
}

// PTTL's answers for a key that has no TTL and for one that does not exist.
const (
	noTTL = -1
	free  = -2
)

// Every implements kind.Queuer.
func (k *keys) Every() time.Duration { return k.skip / kind.PlaceLives }

// refreshed decides whether what a refresh saw is a reason to try again: the
// place is gone, it is the waiter's turn, nothing is in a reader's way any more, or the lock
// will be free earlier than it was told.
func (k *keys) refreshed(a *kind.Attempt, vals []conn.Value) bool {
	w := data(a)
	state, pttl := vals[0].Int, vals[1].Int
	if state != 1 {
		return true
	}
	switch pttl {
	case free:
		return w.held
	case noTTL:
		return false
	}
	const slack = 20 * time.Millisecond
	return w.held && time.Now().Add(kind.Remaining(pttl)+slack).Before(w.until)
}

// Granted implements kind.Queuer: no message is a grant.
func (k *keys) Granted(*kind.Attempt, []string) (kind.Outcome, bool) {
	return kind.Outcome{}, false
}

// route tells the messages for all apart: 1 after a write unlock wakes all readers. A writer heeds them
// only after another library's hold: else it is called.
func route(payload string) pubsub.Wake {
	switch payload {
	case "0":
		return pubsub.Wake{One: true, Foreign: true}
	case "1":
		return pubsub.Wake{One: true, Foreign: true, All: true}
	}
	return pubsub.Wake{}
}

// State implements kind.Kind.
func (k *keys) State() conn.Command { return k.state }

// ReadState implements kind.Kind.
func (k *keys) ReadState(r conn.Reply) (lock.State, error) { return readState(r) }

func (k *keys) reenter(field, own string, count int, lease time.Duration) conn.Command {
	return conn.Command{
		Script: luascript.RWReenter, Keys: []string{k.lock, k.leases, own},
		Args: []string{field, strconv.Itoa(count), kind.Millis(lease)},
	}
}

// releaseSplit frees the lock if this is the only hold left. Otherwise the hold
// stays until the release that follows: other holds exist, and a new one can't
// enter before the slot is whole again.
func (k *keys) releaseSplit(field string, count int) conn.Command {
	if count > 0 {
		return kind.Partial(k.keyOnly, field, count)
	}
	return conn.Command{Script: luascript.RWFree, Keys: k.keyOnly, Args: []string{field}}
}

// renewSplit keeps the hash and the hold's end in the set; a read hold's timeout
// key, which only another library reads, comes third.
func (k *keys) renewSplit(field, own string, lease time.Duration) []conn.Command {
	cmds := []conn.Command{
		kind.RenewOne(k.keyOnly, field, lease),
		{Script: luascript.RWLease, Keys: []string{k.leases}, Args: []string{field, kind.Millis(lease)}},
	}
	if own != k.lock {
		cmds = append(cmds, kind.RenewOne([]string{own}, "", lease))
	}
	return cmds
}
