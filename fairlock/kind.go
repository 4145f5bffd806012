package fairlock

import (
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// kind implements engine.Queuer for one key.
type kind struct {
	keys    []string // as in fair_queue.lua
	head    []string // its ARGV[1..3]
	fence   string   // "-", or the counter's TTL as the scripts take it
	skip    time.Duration
	skipArg string

	spec     pubsub.Spec
	foreign  string   // where Redisson calls our waiters: a field follows
	patterns []string // that; nil on sharded channels, which have none
}

func newKind(c *engine.Core, key string, set lock.Settings) (*kind, error) {
	skip, err := skipAfter(set)
	if err != nil {
		return nil, err
	}
	grants := luascript.GrantChannel(key)
	k := &kind{
		keys: []string{
			key, luascript.FairQueueKey(key), luascript.FairTimeoutKey(key), luascript.FairWantsKey(key),
			luascript.TokenKey(key), luascript.TraceKey(key), luascript.VoidKey(key),
		},
		head:  []string{c.Topology().Publish(), grants, luascript.LockChannel(key) + ":"},
		fence: "-", skip: skip, skipArg: engine.Millis(skip),
		foreign: luascript.LockChannel(key) + ":",
	}
	if set.Fenced {
		k.fence = engine.FenceArg(c.FenceTTL())
	}
	mine := grants + c.ID()
	if !c.Topology().Sharded {
		k.patterns = []string{globEscape(k.foreign+c.ID()) + ":*"}
	}
	k.spec = pubsub.Spec{
		ID: mine, Channels: []string{mine}, Slot: luascript.Slot(key), KeyedMiss: true,
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

// globEscape makes text match only itself in a pattern.
func globEscape(text string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`).Replace(text)
}

// Type implements engine.Kind.
func (k *kind) Type() string { return "fair" }

// Mode implements engine.Kind.
func (k *kind) Mode() lock.Mode { return lock.ModeLock }

// waiter is what a waiting acquisition knows of its place, in Attempt.Data.
type waiter struct {
	place int64 // its number on the server; 0: none
	// seen is when the last command was sent after which the server counted this
	// very place as alive for the skip time; see the package comment.
	seen time.Time
}

func (k *kind) command(s *luascript.Script, args ...string) conn.Command {
	all := make([]string, 0, len(k.head)+len(args))
	return conn.Command{Script: s, Keys: k.keys, Args: append(append(all, k.head...), args...)}
}

// Acquire implements engine.Kind.
func (k *kind) Acquire(a *engine.Attempt) conn.Command {
	queue := k.skipArg
	if a.Wait == 0 {
		queue = "0"
	}
	return k.command(luascript.FairAcquire, a.Field, engine.Millis(a.Lease), k.fence, a.Trace, queue)
}

// Acquired implements engine.Kind.
func (k *kind) Acquired(a *engine.Attempt, r conn.Reply) engine.Outcome {
	switch r.Code {
	case 1, 2:
		return engine.Outcome{Acquired: true, Renewed: r.Code == 2, Token: uint64(r.Int(1))} // #nosec G115 -- never negative
	case -1:
		return engine.Outcome{Void: true}
	}
	out := engine.Outcome{Remaining: engine.Remaining(r.Int(1)), Holder: r.Str(2), Trace: r.Str(3)}
	if place := r.Int(4); place != 0 {
		// A place that stood already, though no answer told of it: a lost one did.
		out.Renewed = a.Data == nil && r.Int(5) == 0
		a.Data = &waiter{place: place, seen: a.Sent}
		out.Queued, out.Watched = true, true
		out.Position = int(r.Int(5))
		out.RefreshIn = lookAfter(r.Int(6))
		if r.Int(7) != 0 {
			if out.Patterns = k.patterns; out.Patterns == nil {
				out.Channels = []string{k.foreign + a.Field}
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
	return time.Duration(ms+1) * time.Millisecond
}

// Every implements engine.Queuer: four refreshes may fail before the fifth comes
// too late.
func (k *kind) Every() time.Duration { return k.skip / 5 }

// Refresh implements engine.Queuer.
func (k *kind) Refresh(a *engine.Attempt) engine.Item {
	return engine.Item{
		Script: luascript.FairRefresh, Keys: k.keys, Head: k.head, Shared: true,
		Args: []string{a.Field, k.skipArg}, Replies: 3,
	}
}

// Refreshed implements engine.Queuer.
func (k *kind) Refreshed(a *engine.Attempt, vals []conn.Value, sent time.Time) (wake bool, next time.Duration) {
	if w, ok := a.Data.(*waiter); ok && vals[0].Int == 1 && vals[2].Int == w.place {
		w.seen = sent
	}
	return vals[0].Int != 1, lookAfter(vals[1].Int)
}

// Granted implements engine.Queuer. A grant counts only for the place that it
// was made for: an old message must not meet a newer place.
func (k *kind) Granted(a *engine.Attempt, payloads []string) (engine.Outcome, bool) {
	w, ok := a.Data.(*waiter)
	if !ok {
		return engine.Outcome{}, false
	}
	for _, p := range payloads {
		_, rest, _ := strings.Cut(p, " ")
		place, token, _ := strings.Cut(rest, " ")
		if place != strconv.FormatInt(w.place, 10) {
			continue // a call to try, or a grant of long ago
		}
		n, err := strconv.ParseUint(token, 10, 64)
		if err != nil {
			continue
		}
		return engine.Outcome{Acquired: true, Token: n, Granted: w.seen, Lease: min(a.Lease, k.skip)}, true
	}
	return engine.Outcome{}, false
}

// Reenter implements engine.Kind.
func (k *kind) Reenter(s *engine.Session, count int, lease time.Duration) conn.Command {
	return conn.Command{
		Script: luascript.Reenter, Keys: k.keys[:1],
		Args: []string{s.Field, strconv.Itoa(count), engine.Millis(lease)},
	}
}

// Release implements engine.Kind: the last one hands the lock over. A partial one
// does not concern the queue, and is that of a plain lock.
func (k *kind) Release(s *engine.Session, count int, lease, void time.Duration) conn.Command {
	if count > 0 {
		return engine.Lowering(conn.Command{
			Script: luascript.Release, Keys: k.keys[:1],
			Args: []string{s.Field, strconv.Itoa(count), engine.Millis(lease), "", "", "0", "0"},
		}, s, count)
	}
	return k.command(luascript.FairRelease, s.Field, engine.Millis(void), "0", flag(s.Traced))
}

// Abandon implements engine.Kind: a grant is handed on, a place is left.
func (k *kind) Abandon(a *engine.Attempt, void time.Duration) conn.Command {
	return k.command(luascript.FairRelease, a.Field, engine.Millis(void), "1", flag(len(a.Trace) > 1))
}

func flag(b bool) string {
	if b {
		return "1"
	}
	return "0"
}

// Renew implements engine.Kind.
func (k *kind) Renew(s *engine.Session, lease, _ time.Duration) engine.Item {
	ms := engine.Millis(lease)
	if s.Traced && lease > 0 {
		return engine.Item{
			Script: luascript.Renew, Keys: []string{k.keys[0], k.keys[5]},
			Args: []string{s.Field, ms, "", ms}, Replies: 2,
		}
	}
	return engine.Item{Script: luascript.Renew, Keys: k.keys[:1:1], Args: []string{s.Field, ms}, Replies: 1}
}

// Wait implements engine.Kind: a message is for one waiter.
func (k *kind) Wait(a *engine.Attempt) (pubsub.Spec, []pubsub.Option) {
	return k.spec, []pubsub.Option{pubsub.Keyed(a.ID)}
}

// maxShown is how many waiters State lists.
const maxShown = 1000

// State implements engine.Kind.
func (k *kind) State() conn.Command {
	return k.command(luascript.FairState, flag(k.fence != "-"), strconv.Itoa(maxShown))
}

// ReadState implements engine.Kind.
func (k *kind) ReadState(r conn.Reply) (lock.State, error) {
	if r.Code < 0 || len(r.Vals) < 5 {
		return engine.ReadPlainState(conn.Reply{Code: -1})
	}
	n := 5 + int(r.Int(4))
	plain := conn.Reply{Code: r.Code, Vals: append(append([]conn.Value{}, r.Vals[:3]...), r.Vals[min(n, len(r.Vals)):]...)}
	st, err := engine.ReadPlainState(plain)
	if err != nil {
		return st, err
	}
	st.QueueLength = int(r.Int(3))
	for i := 5; i < n && i < len(r.Vals); i++ {
		st.Queue = append(st.Queue, lock.OwnerState{Owner: r.Str(i), Mode: lock.ModeLock})
	}
	return st, nil
}

// ForceUnlock implements engine.Kind.
func (k *kind) ForceUnlock() conn.Command { return k.command(luascript.FairForce) }
