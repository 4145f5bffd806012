// Package inspect looks at locks of whatever kind, lists those of a deployment and
// takes one away from its holder, for operators. It knows the scripts that find the
// kind by themselves, and how to read what they answer.
package inspect

import (
	"cmp"
	"strconv"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// Most is how many holders and how many waiters an inspection shows.
const Most = 1000

// few is how many of each are asked for where many locks are looked at.
const few = 16

// keys are those of a lock of any kind, in the order of any_lock.lua.
func keys(key string) []string {
	return []string{
		key, luascript.FairQueueKey(key), luascript.FairTimeoutKey(key), luascript.FairWantsKey(key),
		luascript.TokenKey(key), luascript.TraceKey(key), luascript.VoidKey(key),
		luascript.RWLeasesKey(key), luascript.RWWritersKey(key), luascript.RWMarksKey(key),
		luascript.RWReadersKey(key), luascript.RWTurnKey(key), luascript.WaitKey(key),
	}
}

func args(topo conn.Topology, key string, own ...string) []string {
	return append([]string{
		topo.Publish(), luascript.GrantChannel(key), luascript.LockChannel(key) + ":",
		luascript.LockChannel(key), luascript.RWChannel(key), luascript.RWTimeoutPrefix(key),
	}, own...)
}

// LookCommand asks for the state of whatever stands at key.
func LookCommand(topo conn.Topology, key string, most int) conn.Command {
	n := strconv.Itoa(most)
	return conn.Command{Script: luascript.Inspect, Keys: keys(key), Args: args(topo, key, n, n)}
}

var kindOf = map[int64]lock.Kind{0: lock.KindNone, 1: lock.KindReentrant, 2: lock.KindFair, 3: lock.KindReadWrite}

// errNoLock is what stands at a key that is no lock.
func errNoLock(name string) error {
	return &lock.InvalidNameError{Name: name, Reason: "its key is no lock, or one of another kind"}
}

// ReadLook reads the reply of LookCommand: a *lock.InvalidNameError when the key is no
// lock. Where the owners run is not known yet.
func ReadLook(r conn.Reply, name, key string) (lock.Inspection, error) {
	if r.Code < 0 || len(r.Vals) < 9 {
		return lock.Inspection{}, errNoLock(name)
	}
	in := lock.Inspection{
		Name: name, Key: key, Kind: kindOf[r.Code], At: plausible(r.Int(1)),
		Remaining: milliseconds(r.Int(2)), Token: r.Token(3),
		Processes: int(r.Int(5)), HolderCount: int(r.Int(7)),
		Holders: []lock.Holder{}, Queue: []lock.Waiter{},
	}
	if in.HolderCount > 0 { // else it is free
		in.Mode = cmp.Or(lock.Mode(r.Str(4)), lock.ModeLock)
	}
	traced, traceparent, _ := strings.Cut(r.Str(6), " ")
	at := 9
	for range shown(r, 8) {
		field := r.Str(at)
		h := lock.Holder{Owner: field, Mode: in.Mode, Remaining: milliseconds(r.Int(at + 2))}
		h.Count, _ = strconv.Atoi(r.Str(at + 1))
		if n := r.Int(at + 1); n > 0 {
			h.Count = int(n)
		}
		if in.Mode == lock.ModeWrite && !strings.HasSuffix(field, ":write") {
			h.Mode = lock.ModeRead
		}
		h.Owner = strings.TrimSuffix(field, ":write")
		if id, ok := lock.ParseOwner(field); ok {
			h.ClientID, h.AskedSince, h.HeldSince = id.Client, id.AskedSince, id.HeldSince
		}
		if h.Owner == traced {
			h.TraceID = traceID(traceparent)
		}
		in.Holders = append(in.Holders, h)
		at += 3
	}
	in.QueueLength = int(r.Int(at))
	at += 2
	for range shown(r, at-1) {
		w := lock.Waiter{Owner: r.Str(at), Mode: lock.Mode(r.Str(at + 1))}
		if id, ok := lock.ParseOwner(w.Owner); ok {
			w.ClientID, w.AskedSince = id.Client, id.AskedSince
		}
		if us, err := strconv.ParseInt(r.Str(at+2), 10, 64); err == nil {
			w.AskedSince = plausible(us / 1000) // as exact as At, and so not after it
		}
		in.Queue = append(in.Queue, w)
		at += 3
	}
	for k := range max(0, min(r.Int(at), int64(len(r.Vals)-at-1)/2)) {
		n := at + 1 + 2*int(k)
		us, _ := strconv.ParseInt(r.Str(n+1), 10, 64) // else it is not known
		in.Waiting = append(in.Waiting, lock.WaitingProcess{Process: lock.Process{ClientID: r.Str(n)}, AskedSince: plausible(us / 1000)})
	}
	if in.Kind == lock.KindFair {
		in.Processes = processes(in.Queue)
	}
	return in, nil
}

// shown is the number of rows that a reply says to follow at i, and has.
func shown(r conn.Reply, i int) int {
	return int(max(0, min(r.Int(i), int64(len(r.Vals)-i-1)/3)))
}

// The times that may stand in a lock's keys: others come from a clock that was never set, or from
// somebody who wrote there. Years of five digits can't be told in JSON.
var (
	timesFrom = time.Date(2020, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
	timesTo   = time.Date(2100, 1, 1, 0, 0, 0, 0, time.UTC).UnixMilli()
)

// plausible is the time of ms; zero: not known.
func plausible(ms int64) time.Time {
	if ms < timesFrom || ms >= timesTo {
		return time.Time{}
	}
	return time.UnixMilli(ms).UTC()
}

// processes counts those that the waiters are of.
func processes(queue []lock.Waiter) int {
	seen := map[string]bool{}
	for _, w := range queue {
		seen[w.ClientID] = true
	}
	return len(seen)
}

// milliseconds is a TTL: 0 for one that has no end.
func milliseconds(ms int64) time.Duration {
	const century = 100 * 365 * 24 * 3600 * 1000
	return time.Duration(min(max(ms, 0), century)) * time.Millisecond
}

// traceID is the trace of a W3C traceparent, or "".
func traceID(parent string) string {
	parts := strings.Split(parent, "-")
	if len(parts) < 4 || len(parts[1]) != 32 || strings.Trim(parts[1], "0123456789abcdef") != "" {
		return ""
	}
	return parts[1]
}
