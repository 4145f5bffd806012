package kind

import (
	"math"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/lock"
)

// Millis is d in whole milliseconds, rounded up: what the server is told is
// never shorter than what the client counts on. It is 2 at least: a script that counts in whole
// milliseconds takes up to one away, and what is taken off a lease of 1 ms for drift is half of that.
func Millis(d time.Duration) string {
	if d == 0 {
		return "0"
	}
	if m := lastMillis.Load(); m != nil && m.d == d {
		return m.text
	}
	m := &millis{d, millisText(d)}
	lastMillis.Store(m)
	return m.text
}

// lastMillis is the text that was made last: nearly always that of LeaseTime.
var lastMillis atomic.Pointer[millis]

type millis struct {
	d    time.Duration
	text string
}

func millisText(d time.Duration) string {
	if d > math.MaxInt64-time.Millisecond {
		d -= time.Millisecond // rounding up must not turn the longest durations negative
	}
	return strconv.FormatInt(max(2, int64((d+time.Millisecond-1)/time.Millisecond)), 10)
}

// FenceArg is the fencing counter's TTL as the scripts take it.
func FenceArg(ttl time.Duration) string {
	if ttl < 0 {
		return "-1"
	}
	return Millis(ttl)
}

// Flag is a truth value as the scripts take it.
func Flag(on bool) string {
	if on {
		return "1"
	}
	return "0"
}

// Token reads the fencing token at position i of a reply. One that is none is larger than
// conn.LastToken.
func Token(r conn.Reply, i int) uint64 { return uint64(r.Int(i)) } // #nosec G115 -- a negative one is larger

// Remaining turns a PTTL into a duration: 0 for a key without one, and never 0
// for a key with one, however soon it ends.
func Remaining(pttl int64) time.Duration {
	if pttl < 0 {
		return 0
	}
	return time.Duration(min(max(pttl, 1), farMs)) * time.Millisecond
}

// farMs is a hundred years: nobody waits that long, and what is added to it does
// not overflow.
const farMs = 100 * 365 * 24 * 3600 * 1000

// NoLock is the error for a key that holds no lock of the kind asked for.
func NoLock(what string) error {
	return &lock.InvalidNameError{Reason: "its key is not a " + what}
}

// WaiterOf is what a State says of a waiter as it stands on the wire.
func WaiterOf(entry string, mode lock.Mode) lock.Waiter {
	id, _ := lock.ParseOwner(entry)
	return lock.Waiter{Owner: entry, Process: lock.Process{ClientID: id.Client}, Mode: mode, AskedSince: id.AskedSince}
}

// HolderOf begins what it says of a holder.
func HolderOf(field string, mode lock.Mode) lock.Holder {
	id, _ := lock.ParseOwner(field)
	return lock.Holder{
		Owner: field, Process: lock.Process{ClientID: id.Client}, Mode: mode, AskedSince: id.AskedSince, HeldSince: id.HeldSince,
	}
}

// ReadPlainState reads the reply of state.lua.
func ReadPlainState(r conn.Reply) (lock.State, error) {
	if r.Code < 0 {
		return lock.State{}, NoLock("lock")
	}
	st := lock.State{Token: r.Token(2)}
	if r.Code == 0 {
		return st, nil
	}
	st.Held, st.Mode, st.Remaining = true, lock.ModeLock, Remaining(r.Int(1))
	for i := 3; i+1 < len(r.Vals); i += 2 {
		count, err := strconv.Atoi(r.Str(i + 1))
		if err != nil {
			return lock.State{}, NoLock("lock")
		}
		o := HolderOf(r.Str(i), lock.ModeLock)
		o.Count, o.Remaining = count, st.Remaining
		st.Holders = append(st.Holders, o)
	}
	return st, nil
}

// Waited is the field of an acquisition that gets the lock after waiting for so many ms: its entry, and ".<ms>". The
// time is for people. Nothing is decided by it, but two fields with one entry are one acquisition's.
func Waited(entry string, ms int64) string {
	if ms <= 0 {
		return entry
	}
	return entry + "." + strconv.FormatInt(ms, 10)
}

// Unless are a command's args, and behind them a last one if it is not what the script takes as given.
func Unless(args []string, given, last string) []string {
	if last == given {
		return args
	}
	return append(args, last)
}

// EntryOf is the entry of an acquisition's field.
func EntryOf(field string) string {
	id := strings.LastIndexByte(field, '-') + 1
	if seq := strings.IndexByte(field[id:], '.') + 1; seq > 0 {
		if ms := strings.IndexByte(field[id+seq:], '.'); ms >= 0 {
			return field[:id+seq+ms]
		}
	}
	return field
}

// lastCode is the largest code of an answer: a larger integer alone is a token, and says that the lock was acquired.
const lastCode = 1000

// Answered reads the codes that the scripts that acquire have in common; done is
// false for a refusal, which each kind reads by itself.
func Answered(r conn.Reply) (out Outcome, done bool) {
	if len(r.Vals) == 0 && r.Code > lastCode && r.Code <= conn.LastToken {
		return Outcome{Acquired: true, Token: uint64(r.Code)}, true
	}
	switch r.Code {
	case 1, 2:
		return Outcome{Acquired: true, Renewed: r.Code == 2, Token: Token(r, 1)}, true
	case -1:
		return Outcome{Void: true}, true
	case -3:
		return Outcome{NoLock: true}, true
	}
	return Outcome{}, false
}

// Partial sets the count of a field, in every kind by the same command of one key:
// keys is the lock's. Count 0 ends it and tells nobody.
func Partial(keys []string, field string, count int) conn.Command {
	return conn.Command{
		Script: luascript.Release, Keys: keys, Args: []string{field, strconv.Itoa(count)},
	}
}

// RenewOne keeps a field by a command of one key: keys is the lock's.
func RenewOne(keys []string, field string, lease time.Duration) conn.Command {
	return conn.Command{Script: luascript.Renew, Keys: keys, Args: []string{field, Millis(lease)}}
}

// Plain is what the kinds have in common whose holds stand in the lock's hash alone. Commands only read its keys.
type Plain struct {
	KeyOnly []string // the lock
	Traced  []string // the lock and its trace
}

// Reenter implements Kind.
func (p *Plain) Reenter(f Field, count int, lease time.Duration) conn.Command {
	return conn.Command{Script: luascript.Reenter, Keys: p.KeyOnly, Args: []string{f.Name, strconv.Itoa(count), Millis(lease)}}
}

// Renew implements Kind.
func (p *Plain) Renew(f Field, lease time.Duration) Item {
	return RenewBy(luascript.Renew, p.KeyOnly, p.Traced, f, lease)
}

// RenewSplit implements Splitter: a queue does not matter to a holder, and the trace is left.
func (p *Plain) RenewSplit(f Field, lease time.Duration) []conn.Command {
	return []conn.Command{RenewOne(p.KeyOnly, f.Name, lease)}
}

// RenewBy keeps a field by a script that takes these keys, and those of traced for one that left its trace.
func RenewBy(s *luascript.Script, keys, traced []string, f Field, lease time.Duration) Item {
	ms := Millis(lease)
	if f.Traced && lease > 0 {
		return Item{Script: s, Keys: traced, Args: []string{f.Name, ms, "", ms}, Replies: 2}
	}
	return Item{Script: s, Keys: keys, Args: []string{f.Name, ms}, Replies: 1}
}
