package fairlock

import (
	"crypto/rand"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// fair implements kind.Queuer and kind.Splitter for one key.
type fair struct {
	kind.Plain
	traits  *kind.Traits
	keys    []string // as in fair_keys.lua
	head    []string // its ARGV[1..3]
	fence   string   // "-", or the counter's TTL as the scripts take it
	skip    time.Duration
	skipArg string

	spec     pubsub.Spec
	foreign  string   // where Redisson calls our waiters: a field follows
	patterns []string // that; nil on sharded channels, which have none
}

var (
	_ kind.Queuer   = (*fair)(nil)
	_ kind.Splitter = (*fair)(nil)
)

var traits = [...]kind.Traits{
	{Type: string(lock.KindFair), Mode: lock.ModeLock, Queued: true},
	{Type: string(lock.KindFair), Mode: lock.ModeLock, Queued: true, Fenced: true},
}

func newKind(c *engine.Core, key string, set settings.Lock) (kind.Kind, error) {
	if err := kind.Only(set, "FairLock", true, false); err != nil {
		return nil, err
	}
	skip, err := kind.SkipAfter(set)
	if err != nil {
		return nil, err
	}
	grants := luascript.GrantChannel(key)
	k := &fair{
		Plain:  kind.Plain{KeyOnly: []string{key}, Traced: []string{key, luascript.TraceKey(key)}},
		traits: &traits[0],
		keys: []string{
			key, luascript.FairQueueKey(key), luascript.FairTimeoutKey(key), luascript.FairWantsKey(key),
			luascript.TokenKey(key), luascript.TraceKey(key), luascript.VoidKey(key),
		},
		head:  []string{c.Topology().Publish(), grants, luascript.LockChannel(key) + ":"},
		fence: "-", skip: skip, skipArg: kind.Millis(skip),
		foreign: luascript.LockChannel(key) + ":",
	}
	if set.Fenced {
		k.traits, k.fence = &traits[1], kind.FenceArg(c.FenceTTL())
	}
	mine := grants + c.ID()
	if !c.Topology().Sharded {
		k.patterns = []string{luascript.Glob.Replace(k.foreign+c.ID()) + ":*"}
	}
	k.spec = pubsub.Spec{
		ID: mine, Channels: []string{mine}, Slot: luascript.Slot(key),
		Route: func(channel, payload string) pubsub.Wake {
			if channel == mine {
				id, _, _ := strings.Cut(payload, " ")
				return pubsub.Wake{Key: id}
			}
			// Redisson's call: the waiter's field is at the end of the channel.
			if i := strings.LastIndexByte(payload, 0); i >= 0 { // the lock's name may have some, too
				channel = payload[:i]
			}
			return pubsub.Wake{Key: channel[strings.LastIndexByte(channel, '-')+1:]}
		},
	}
	return k, nil
}

// Traits implements kind.Kind.
func (k *fair) Traits() *kind.Traits { return k.traits }

// waiter is what a waiting acquisition knows of its place, in Attempt.Data.
type waiter struct {
	place int64 // its number on the server; 0: none
	// nonce stands in the place, and the message of its grant brings it back: whoever may publish, but
	// can't read the queue, does not know it. It is asked with, and believed once; "": the next command
	// makes a new one.
	nonce string
	// seen is when the last command was sent after which the server counted this
	// very place as alive for the skip time; see doc.go.
	seen time.Time
}

func (k *fair) command(s *luascript.Script, args ...string) conn.Command {
	all := make([]string, 0, len(k.head)+len(args))
	return conn.Command{Script: s, Keys: k.keys, Args: append(append(all, k.head...), args...)}
}

// Acquire implements kind.Kind.
func (k *fair) Acquire(a *kind.Attempt) conn.Command {
	skip, nonce := "0", "-"
	if a.Wait != 0 {
		w, ok := a.Data.(*waiter)
		if !ok {
			w = &waiter{}
			a.Data = w
		}
		if w.nonce == "" {
			w.nonce = rand.Text()
		}
		skip, nonce = k.skipArg, w.nonce
	}
	args := []string{a.Entry, kind.Millis(a.Lease), k.fence, a.Trace, skip, nonce}
	return k.command(luascript.FairAcquire, kind.Unless(args, a.Entry, a.Field)...)
}

// Acquired implements kind.Kind.
func (k *fair) Acquired(a *kind.Attempt, r conn.Reply) kind.Outcome {
	w, waits := a.Data.(*waiter)
	stood := waits && w.place != 0
	if out, done := kind.Answered(r); done {
		if f := r.Str(2); out.Renewed && kind.EntryOf(f) == a.Entry {
			a.Field = f // a grant's tells for how long it had waited
		}
		if stood {
			out.Renewed = false // its place was handed the lock: that is no lost command's doing
		}
		return out
	}
	out := kind.Outcome{Remaining: kind.Remaining(r.Int(1)), Holder: r.Str(2), Trace: r.Str(3)}
	if place := r.Int(4); place != 0 && waits {
		// A place that stood already, though no answer told of it: a lost one did.
		out.Renewed = !stood && r.Int(5) == 0
		w.place, w.seen = place, a.Sent
		out.Queued, out.Watched = true, true
		out.Position = int(r.Int(5))
		out.RefreshIn = lookAfter(r.Int(6))
		if r.Int(7) != 0 {
			if out.Patterns = k.patterns; out.Patterns == nil {
				out.Channels = []string{k.foreign + a.Entry}
			}
		}
	}
	return out
}

// lookAfter reads the script's pause; one that has just ended still needs a
// moment until it has ended on the server.
func lookAfter(ms int64) time.Duration {
	if ms <= 0 {
		return 0
	}
	return time.Duration(min(ms, 1<<40)+1) * time.Millisecond // whatever stands there: what is added to it does not overflow
}

// Every implements kind.Queuer: four refreshes may fail before the fifth comes
// too late.
func (k *fair) Every() time.Duration { return k.skip / kind.PlaceLives }

// Refresh implements kind.Queuer.
func (k *fair) Refresh(a *kind.Attempt) kind.Item {
	return kind.Item{
		Script: luascript.FairRefresh, Keys: k.keys, Head: k.head, Shared: true,
		Args: []string{a.Entry, k.skipArg}, Replies: 3,
	}
}

// Refreshed implements kind.Queuer.
func (k *fair) Refreshed(a *kind.Attempt, vals []conn.Value, sent time.Time) (wake bool, next time.Duration) {
	if w, ok := a.Data.(*waiter); ok && vals[0].Int == 1 && vals[2].Int == w.place {
		w.seen = sent
	}
	return vals[0].Int != 1, lookAfter(vals[1].Int)
}

// Granted implements kind.Queuer. A grant counts only for the place that it
// was made for: an old message must not meet a newer place, and nobody else's is one.
func (k *fair) Granted(a *kind.Attempt, payloads []string) (kind.Outcome, bool) {
	w, ok := a.Data.(*waiter)
	if !ok || w.place == 0 || w.nonce == "" {
		return kind.Outcome{}, false
	}
	var room [20]byte
	mine := strconv.AppendInt(room[:0], w.place, 10)
	for _, p := range payloads {
		_, rest, _ := strings.Cut(p, " ")
		place, rest, _ := strings.Cut(rest, " ")
		nonce, rest, ok := strings.Cut(rest, " ")
		if !ok || place != string(mine) || nonce != w.nonce {
			continue // a call to try, a grant of long ago, or somebody else's words
		}
		w.nonce = "" // who listened knows it now
		token, rest, _ := strings.Cut(rest, " ")
		waited, last, _ := strings.Cut(rest, " ") // who had it before, and what it left
		n, err := strconv.ParseUint(token, 10, 64)
		ms, werr := strconv.ParseInt(waited, 10, 64)
		if err != nil || werr != nil {
			break
		}
		a.Field = kind.Waited(a.Entry, ms)
		before, _, _ := strings.Cut(last, " ")
		return kind.Outcome{
			Acquired: true, Token: n, Granted: w.seen, Lease: min(a.Lease, k.skip), Holder: before, Trace: last,
		}, true
	}
	return kind.Outcome{}, false
}

// Release implements kind.Kind: the last one hands the lock over. A partial one
// does not concern the queue.
func (k *fair) Release(f kind.Field, count int, void time.Duration) conn.Command {
	if count > 0 {
		return kind.Partial(k.KeyOnly, f.Name, count)
	}
	return k.give(f, void, false)
}

// Abandon implements kind.Kind: a grant is handed on, a place is left.
func (k *fair) Abandon(a *kind.Attempt, void time.Duration) conn.Command {
	return k.give(a.Named(), void, true)
}

func (k *fair) give(f kind.Field, void time.Duration, undo bool) conn.Command {
	args := []string{f.Name, kind.Millis(void), kind.Flag(undo), kind.Flag(f.Traced)}
	return k.command(luascript.FairRelease, kind.Unless(args, f.Name, kind.EntryOf(f.Name))...)
}

// ReleaseSplit implements kind.Splitter: the lock is free, and the release that
// follows hands it over.
func (k *fair) ReleaseSplit(f kind.Field, count int) conn.Command {
	return kind.Partial(k.KeyOnly, f.Name, count)
}

// Wait implements kind.Kind: a message is for one waiter.
func (k *fair) Wait(a *kind.Attempt) (pubsub.Spec, []pubsub.Option) {
	return k.spec, []pubsub.Option{pubsub.Keyed(a.ID)}
}

// maxShown is how many waiters State lists.
const maxShown = 1000

// State implements kind.Kind.
func (k *fair) State() conn.Command {
	return k.command(luascript.FairState, kind.Flag(k.fence != "-"), strconv.Itoa(maxShown))
}

// ReadState implements kind.Kind.
func (k *fair) ReadState(r conn.Reply) (lock.State, error) {
	if r.Code < 0 || len(r.Vals) < 5 {
		return kind.ReadPlainState(conn.Reply{Code: -1})
	}
	n := 5 + int(min(max(r.Int(4), 0), int64(len(r.Vals)-5)))
	plain := conn.Reply{Code: r.Code, Vals: append(append([]conn.Value{}, r.Vals[:3]...), r.Vals[n:]...)}
	st, err := kind.ReadPlainState(plain)
	if err != nil {
		return st, err
	}
	st.QueueLength = int(r.Int(3))
	for i := 5; i < n; i++ {
		st.Queue = append(st.Queue, kind.WaiterOf(r.Str(i), lock.ModeLock))
	}
	return st, nil
}
