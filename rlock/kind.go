package rlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/lock"
)

// kind implements engine.Kind for one key.
type kind struct {
	key     string
	channel string
	void    string
	trace   string
	token   string // "" when not fenced
	fence   string // the counter's TTL as the scripts take it
	publish string

	// prebuilt; commands only read them
	keys    [2][]string // of Acquire, without and with the trace
	keyOnly []string
	spec    pubsub.Spec
}

func newKind(c *engine.Core, key string, set lock.Settings) *kind {
	k := &kind{
		key: key, channel: luascript.LockChannel(key), void: luascript.VoidKey(key), trace: luascript.TraceKey(key),
		publish: c.Topology().Publish(),
	}
	if set.Fenced {
		k.token, k.fence = luascript.TokenKey(key), engine.FenceArg(c.FenceTTL())
	}
	acquire := []string{k.key, k.void}
	if k.token != "" {
		acquire = append(acquire, k.token)
	}
	k.keys = [2][]string{acquire, append(acquire[:len(acquire):len(acquire)], k.trace)}
	k.keyOnly = []string{k.key}
	k.spec = pubsub.Spec{
		ID: k.channel, Channels: []string{k.channel}, Slot: luascript.Slot(k.key), Route: wakeOne, Herd: true,
	}
	return k
}

// wakeOne: a message wakes the waiter that has waited longest in each process.
func wakeOne(_, _ string) pubsub.Wake { return pubsub.Wake{One: true} }

// Type implements engine.Kind.
func (k *kind) Type() string { return "reentrant" }

// Fenced reports whether acquisitions get tokens.
func (k *kind) Fenced() bool { return k.token != "" }

// Mode implements engine.Kind.
func (k *kind) Mode() lock.Mode { return lock.ModeLock }

// Acquire implements engine.Kind.
func (k *kind) Acquire(a *engine.Attempt) conn.Command {
	keys := k.keys[0]
	if a.Trace != "" {
		keys = k.keys[1]
	}
	return conn.Command{Script: luascript.Acquire, Keys: keys, Args: []string{a.Field, engine.Millis(a.Lease), k.fence, a.Trace}}
}

// Acquired implements engine.Kind.
func (k *kind) Acquired(_ *engine.Attempt, r conn.Reply) engine.Outcome {
	switch r.Code {
	case 1, 2:
		return engine.Outcome{Acquired: true, Renewed: r.Code == 2, Token: uint64(r.Int(1))} // #nosec G115 -- never negative
	case -1:
		return engine.Outcome{Void: true}
	}
	return engine.Outcome{Remaining: engine.Remaining(r.Int(1)), Holder: r.Str(2), Trace: r.Str(3)}
}

// Reenter implements engine.Kind.
func (k *kind) Reenter(s *engine.Session, count int, lease time.Duration) conn.Command {
	return conn.Command{
		Script: luascript.Reenter, Keys: k.keyOnly,
		Args: []string{s.Field, strconv.Itoa(count), engine.Millis(lease)},
	}
}

// Release implements engine.Kind.
func (k *kind) Release(s *engine.Session, count int, lease, void time.Duration) conn.Command {
	return engine.Lowering(k.release(s.Field, count, lease, void, s.Traced), s, count)
}

// Abandon implements engine.Kind.
func (k *kind) Abandon(a *engine.Attempt, void time.Duration) conn.Command {
	return k.release(a.Field, 0, 0, void, len(a.Trace) > 1)
}

func (k *kind) release(field string, count int, lease, void time.Duration, traced bool) conn.Command {
	keys, left := k.keyOnly, "0"
	if void > 0 || traced {
		keys = []string{k.key}
		if void > 0 {
			keys = append(keys, k.void)
		}
		if traced {
			keys, left = append(keys, k.trace), "1"
		}
	}
	return conn.Command{
		Script: luascript.Release, Keys: keys,
		Args: []string{field, strconv.Itoa(count), engine.Millis(lease), k.channel, k.publish, engine.Millis(void), left},
	}
}

// Renew implements engine.Kind.
func (k *kind) Renew(s *engine.Session, lease, _ time.Duration) engine.Item {
	ms := engine.Millis(lease)
	if s.Traced && lease > 0 {
		return engine.Item{
			Script: luascript.Renew, Keys: []string{k.key, k.trace},
			Args: []string{s.Field, ms, "", ms}, Replies: 2,
		}
	}
	return engine.Item{Script: luascript.Renew, Keys: k.keyOnly, Args: []string{s.Field, ms}, Replies: 1}
}

// Wait implements engine.Kind: waiters stand in line.
func (k *kind) Wait(*engine.Attempt) (pubsub.Spec, []pubsub.Option) { return k.spec, nil }

// State implements engine.Kind.
func (k *kind) State() conn.Command {
	if k.token != "" {
		return conn.Command{Script: luascript.State, Keys: []string{k.key, k.token}, Args: []string{"1"}}
	}
	return conn.Command{Script: luascript.State, Keys: []string{k.key}, Args: []string{"0"}}
}

// ReadState implements engine.Kind.
func (k *kind) ReadState(r conn.Reply) (lock.State, error) { return engine.ReadPlainState(r) }

// ForceUnlock implements engine.Kind.
func (k *kind) ForceUnlock() conn.Command {
	return conn.Command{Script: luascript.Force, Keys: []string{k.key, k.trace}, Args: []string{k.channel, k.publish}}
}
