package rlock

import (
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/engine"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/pubsub"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// reentrant implements kind.Group and kind.Splitter for one key.
type reentrant struct {
	kind.Plain
	traits  *kind.Traits
	channel string
	publish string
	fence   string // the counter's TTL as the scripts take it; "" when not fenced

	// prebuilt; commands only read them
	acquire [2][]string // keys of Acquire, without and with the trace
	release [4][]string // keys of the last Release: +1 with the void set, +2 with the trace
	counts  string      // whether receivers are counted, as the scripts take it
	leave   conn.Command
	state   conn.Command
	spec    pubsub.Spec
}

var (
	_ kind.Caller   = (*reentrant)(nil)
	_ kind.Group    = (*reentrant)(nil)
	_ kind.Splitter = (*reentrant)(nil)
)

// Fenced locks are not passed on: the tokens of one process would run ahead of
// the counter.
var (
	plainTraits  = kind.Traits{Type: string(lock.KindReentrant), Mode: lock.ModeLock, Passes: true}
	fencedTraits = kind.Traits{Type: string(lock.KindReentrant), Mode: lock.ModeLock, Fenced: true}
)

func newKind(c *engine.Core, key string, set settings.Lock) (kind.Kind, error) {
	if err := kind.Only(set, "RLock", false, false); err != nil {
		return nil, err
	}
	void, trace, wait := luascript.VoidKey(key), luascript.TraceKey(key), luascript.WaitKey(key)
	calls := luascript.CallChannel(key)
	k := &reentrant{
		Plain:  kind.Plain{KeyOnly: []string{key}, Traced: []string{key, trace}},
		traits: &plainTraits, channel: luascript.LockChannel(key), publish: c.Topology().Publish(),
		counts:  c.Topology().Counts(),
		acquire: [2][]string{{key, void, wait}, {key, void, trace, wait}},
		release: [4][]string{{key, wait}, {key, void, wait}, {key, trace, wait}, {key, void, trace, wait}},
		state:   conn.Command{Script: luascript.State, Keys: []string{key}, Args: []string{"0"}},
	}
	if set.Fenced {
		token := luascript.TokenKey(key)
		k.traits, k.fence = &fencedTraits, kind.FenceArg(c.FenceTTL())
		k.acquire = [2][]string{{key, void, token, wait}, {key, void, token, trace, wait}}
		k.state = conn.Command{Script: luascript.State, Keys: []string{key, token}, Args: []string{"1"}}
	}
	k.leave = conn.Command{
		Script: luascript.WaitLeave, Keys: []string{key, wait}, Args: []string{c.ID(), calls, k.publish, k.counts},
	}
	mine := calls + c.ID()
	k.spec = pubsub.Spec{
		ID: mine, Channels: []string{mine}, Slot: luascript.Slot(key), Foreign: k.channel,
		Route: func(channel, payload string) pubsub.Wake {
			if channel == mine {
				return pubsub.Wake{One: true, Place: payload}
			}
			return pubsub.Wake{One: true, Foreign: true}
		},
		Unheard: func() { c.Leave(k.leave, mine) },
	}
	return k, nil
}

// Traits implements kind.Kind.
func (k *reentrant) Traits() *kind.Traits { return k.traits }

// acquireKeys are the keys of Acquire.
func (k *reentrant) acquireKeys(a *kind.Attempt) []string {
	if a.Trace != "" {
		return k.acquire[1]
	}
	return k.acquire[0]
}

// Acquire implements kind.Kind. What the script takes as given is not sent.
func (k *reentrant) Acquire(a *kind.Attempt) conn.Command {
	n := 2
	switch {
	case a.Trace != "":
		n = 5
	case k.fence != "":
		n = 4
	case a.Place != "0":
		n = 3
	}
	a.Args = [...]string{a.Field, kind.Millis(a.Lease), a.Place, k.fence, a.Trace}
	return conn.Command{Script: luascript.Acquire, Keys: k.acquireKeys(a), Args: a.Args[:n]}
}

// Acquired implements kind.Kind.
func (k *reentrant) Acquired(_ *kind.Attempt, r conn.Reply) kind.Outcome {
	if out, done := kind.Answered(r); done {
		return out
	}
	return kind.Outcome{
		Remaining: kind.Remaining(r.Int(1)), Holder: r.Str(2), Foreign: kind.Foreign(r.Str(2)), Trace: r.Str(3),
		LookIn: time.Duration(r.Int(4)) * time.Millisecond,
	}
}

// Release implements kind.Kind. What the script takes as given is not sent.
func (k *reentrant) Release(f kind.Field, count int, void time.Duration) conn.Command {
	if count > 0 {
		return kind.Partial(k.KeyOnly, f.Name, count)
	}
	which, n := 0, 5
	if void > 0 {
		which, n = 1, 6
	}
	if f.Traced {
		which, n = which+2, 7
	}
	if k.counts == "0" {
		n = 8
	}
	room := f.Room
	if room == nil {
		room = new([8]string)
	}
	*room = [...]string{f.Name, "0", k.channel, k.publish, f.Listed, kind.Millis(void), kind.Flag(f.Traced), k.counts}
	return conn.Command{Script: luascript.Release, Keys: k.release[which], Args: room[:n]}
}

// Leave implements kind.Caller.
func (k *reentrant) Leave() conn.Command { return k.leave }

// Abandon implements kind.Kind.
func (k *reentrant) Abandon(a *kind.Attempt, void time.Duration) conn.Command {
	return k.Release(a.Named(), 0, void)
}

// ReleaseSplit implements kind.Splitter: the trace is left, and whoever waits is called by the
// command that follows.
func (k *reentrant) ReleaseSplit(f kind.Field, count int) conn.Command {
	if count > 0 {
		return k.Release(f, count, 0)
	}
	return conn.Command{
		Script: luascript.Release, Keys: k.KeyOnly, Args: []string{f.Name, "0", k.channel, k.publish},
	}
}

// Wait implements kind.Kind: waiters stand in line.
func (k *reentrant) Wait(*kind.Attempt) (pubsub.Spec, []pubsub.Option) { return k.spec, nil }

// State implements kind.Kind.
func (k *reentrant) State() conn.Command { return k.state }

// ReadState implements kind.Kind.
func (k *reentrant) ReadState(r conn.Reply) (lock.State, error) { return kind.ReadPlainState(r) }
