package rwlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// keys is what both modes of one lock share.
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
	skip    time.Duration
	prefer  bool
}

func newKeys(c *engine.Core, key string, set lock.Settings) (*keys, error) {
	k := &keys{
		lock: key, channel: luascript.RWChannel(key), void: luascript.VoidKey(key), trace: luascript.TraceKey(key),
		leases: luascript.RWLeasesKey(key), writers: luascript.RWWritersKey(key), marks: luascript.RWMarksKey(key),
		readers: luascript.RWReadersKey(key), turn: luascript.RWTurnKey(key), prefix: luascript.RWTimeoutPrefix(key),
		publish: c.Topology().Publish(), skip: set.SkipAfter, prefer: set.PreferReaders,
	}
	switch {
	case k.skip == 0:
		k.skip = DefaultSkipAfter
	case k.skip < MinSkipAfter:
		return nil, &lock.InvalidOptionError{Option: "WithSkipAfter", Reason: "it is below " + MinSkipAfter.String() + ": living waiters would be passed over"}
	}
	if set.Fenced {
		k.token, k.fence = luascript.TokenKey(key), engine.FenceArg(c.FenceTTL())
	}
	return k, nil
}

// waiting is what an acquisition that waits remembers between its attempts; it
// is the Attempt's Data.
type waiting struct {
	came  string    // a reader: when the server refused it first, µs
	until time.Time // when the holder's lease ends, as far as told
	held  bool      // somebody held the lock then
	alien bool      // a reader: it was a writer of another library
}

func data(a *engine.Attempt) *waiting {
	w, _ := a.Data.(*waiting)
	if w == nil {
		w = &waiting{}
		a.Data = w
	}
	return w
}

// place is how long the place of an attempt on the server lives, as the scripts
// take it.
func (k *keys) place(a *engine.Attempt) string {
	if a.Wait == 0 {
		return "0"
	}
	return engine.Millis(k.skip)
}

// extra appends the optional keys, in the scripts' order.
func (k *keys) extra(list []string, a *engine.Attempt) []string {
	if k.token != "" {
		list = append(list, k.token)
	}
	if a.Trace != "" {
		list = append(list, k.trace)
	}
	return list
}

// busy reads the part of a refusal that both modes have in common.
func (k *keys) busy(a *engine.Attempt, r conn.Reply) engine.Outcome {
	w := data(a)
	out := engine.Outcome{
		Remaining: engine.Remaining(r.Int(1)), Holder: r.Str(2), Trace: r.Str(3),
		LookIn: time.Duration(r.Int(4)) * time.Millisecond, Queued: a.Wait != 0,
	}
	w.held = r.Int(1) != free
	w.until = time.Now().Add(out.Remaining)
	return out
}

// PTTL's answers for a key that has no TTL and for one that does not exist.
const (
	noTTL = -1
	free  = -2
)

// Every implements engine.Queuer.
func (k *keys) Every() time.Duration { return k.skip / 5 }

// refreshed decides whether what a refresh saw is a reason to try again: the
// place is gone, it is the waiter's turn, or the lock will be free earlier than
// it was told.
func (k *keys) refreshed(a *engine.Attempt, vals []conn.Value) bool {
	w := data(a)
	state, pttl := vals[0].Int, vals[1].Int
	switch {
	case state == 3 && !w.alien:
		// It stands behind a writer's mark: a message or its end tells.
	case state != 1:
		return true
	}
	switch pttl {
	case free:
		return w.held
	case noTTL:
		return false
	}
	const slack = 20 * time.Millisecond
	return w.held && time.Now().Add(engine.Remaining(pttl)+slack).Before(w.until)
}

// Granted implements engine.Queuer: no message is a grant.
func (k *keys) Granted(*engine.Attempt, []string) (engine.Outcome, bool) {
	return engine.Outcome{}, false
}

// spec tells the messages apart: 0 after the last read unlock wakes one writer of
// each process, 1 after a write unlock everybody who may enter.
func (k *keys) spec() pubsub.Spec {
	return pubsub.Spec{
		ID: k.channel, Channels: []string{k.channel}, Slot: luascript.Slot(k.lock),
		Route: func(_, payload string) pubsub.Wake {
			switch payload {
			case "0":
				return pubsub.Wake{One: true}
			case "1":
				return pubsub.Wake{One: true, All: true}
			}
			return pubsub.Wake{}
		},
	}
}

// State implements engine.Kind.
func (k *keys) State() conn.Command {
	cmd := conn.Command{
		Script: luascript.RWState, Keys: []string{k.lock, k.leases, k.writers, k.marks}, Args: []string{"0", k.prefix},
	}
	if k.token != "" {
		cmd.Keys, cmd.Args[0] = append(cmd.Keys, k.token), "1"
	}
	return cmd
}

func (k *keys) force(mode lock.Mode) conn.Command {
	return conn.Command{
		Script: luascript.RWForce, Keys: []string{k.lock, k.leases, k.readers, k.turn, k.trace},
		Args: []string{string(mode), k.channel, k.publish},
	}
}

func (k *keys) reenter(field, own string, count int, lease time.Duration) conn.Command {
	return conn.Command{
		Script: luascript.RWReenter, Keys: []string{k.lock, k.leases, own},
		Args: []string{field, strconv.Itoa(count), engine.Millis(lease)},
	}
}

func (k *keys) renew(s *engine.Session, field, own string, lease time.Duration) engine.Item {
	if s.Traced && lease > 0 {
		return engine.Item{
			Script: luascript.RWRenew, Keys: []string{k.lock, k.leases, own, k.trace, k.trace, k.trace},
			Args: []string{field, engine.Millis(lease), "", engine.Millis(lease)}, Replies: 2,
		}
	}
	return engine.Item{
		Script: luascript.RWRenew, Keys: []string{k.lock, k.leases, own},
		Args: []string{field, engine.Millis(lease)}, Replies: 1,
	}
}

func flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}
