package inspect

import (
	"cmp"
	"strings"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/internal/quote"
	"github.com/redlatch/redlatch/internal/settings"
	"github.com/redlatch/redlatch/lock"
)

// Evicted is what a forced unlock came to.
type Evicted struct {
	Kind    lock.Kind // of what stood there
	Count   int       // holds that were ended
	Owners  []string  // of them, at most 16, as on the wire
	Refused error     // the server did so, and refused the message or the next one's hold: a *lock.ServerError
}

// Owner is the first of the owners, as it may be shown, or "".
func (e Evicted) Owner() string {
	if len(e.Owners) == 0 {
		return ""
	}
	return quote.Text(e.Owners[0])
}

// Note is what an observation reports.
func (e Evicted) Note() observe.Note { return observe.Note{Owner: e.Owner(), Count: e.Count} }

// Which is what a forced unlock may end, as force_any.lua takes it.
type Which string

// Holds of a lock of any kind, of a plain or fair lock, of a read-write lock, and those of
// one of its modes.
const (
	Any       Which = ""
	Exclusive Which = "lock"
	ReadWrite Which = "rw"
	Reads     Which = "read"
	Writes    Which = "write"
)

// In is what is held in this mode.
func In(mode lock.Mode) Which {
	return map[lock.Mode]Which{lock.ModeNone: Any, lock.ModeLock: Exclusive, lock.ModeRead: Reads, lock.ModeWrite: Writes}[mode]
}

// ForceCommand takes the lock at key away from all owners, or from those of set only.
func ForceCommand(topo conn.Topology, key string, which Which, set settings.Force) conn.Command {
	only := ""
	if set.Bound {
		only = "1"
	}
	own := append([]string{string(which), only, luascript.CallChannel(key), topo.Counts()}, set.Owners...)
	return conn.Command{Script: luascript.ForceAny, Keys: keys(key), Args: args(topo, key, own...)}
}

// ReadForce reads the reply to a ForceCommand: a *lock.InvalidNameError if the key is not a
// lock of the kind asked for, a *lock.OtherOwnerError if others than owners hold it, Evicted.Refused if what it tells
// was done and nobody could be woken.
func ReadForce(cmd conn.Command, r conn.Reply, name string, owners []string) (Evicted, error) {
	switch r.Code {
	case 0, 1:
	case -2:
		return Evicted{Kind: kindOf[r.Int(1)]}, &lock.OtherOwnerError{Name: name, Owner: strings.Join(owners, ", "), Holder: plain(r.Str(2))}
	case -4:
		k := kindOf[r.Int(1)]
		return Evicted{Kind: k}, &lock.InvalidNameError{Name: name, Reason: "its key is held as a " + string(k) + " lock"}
	default:
		return Evicted{}, errNoLock(name)
	}
	e, refused := Evicted{Kind: kindOf[r.Int(1)]}, r.Str(2)
	if r.Code == 1 {
		e.Count, refused = int(r.Int(2)), r.Str(3)
		for i := 4; i < len(r.Vals); i++ {
			e.Owners = append(e.Owners, plain(r.Str(i)))
		}
	}
	if refused != "" {
		e.Refused = &lock.ServerError{Name: name, Op: "wake the waiters after the forced unlock", Err: conn.RefusalOf(cmd, quote.Line(refused))}
	}
	return e, e.Refused
}

// plain is the owner of a field: a write hold's has more.
func plain(field string) string { return cmp.Or(strings.TrimSuffix(field, ":write"), field) }
