package inspect

import (
	"errors"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/luascript"
	"github.com/redlatch/redlatch/internal/observe"
	"github.com/redlatch/redlatch/lock"
)

// Evicted is what a forced unlock came to.
type Evicted struct {
	Kind    lock.Kind // of what stood there
	Count   int       // holds that were ended
	Owners  []string  // of them, at most 16, as on the wire
	Refused error     // the server took the hold away and refused the message or the next one's hold
}

// Owner is the first of the owners, or "".
func (e Evicted) Owner() string {
	if len(e.Owners) == 0 {
		return ""
	}
	return e.Owners[0]
}

// Note is what an observation reports.
func (e Evicted) Note() observe.Note { return observe.Note{Owner: e.Owner(), Count: e.Count} }

// ForceCommand takes the lock at key away from owner, or from all owners if it is "": all
// holds (lock.ModeNone), or those of one mode of a read-write lock.
func ForceCommand(topo conn.Topology, key, owner string, mode lock.Mode) conn.Command {
	want := ""
	if mode == lock.ModeRead || mode == lock.ModeWrite {
		want = string(mode)
	}
	return conn.Command{Script: luascript.ForceAny, Keys: keys(key), Args: args(topo, key, want, owner)}
}

// ReadForce reads the reply of ForceCommand: a *lock.InvalidNameError if the key is not a
// lock, a *lock.OtherOwnerError if another owner holds it.
func ReadForce(r conn.Reply, name, owner string) (Evicted, error) {
	switch r.Code {
	case 0, 1:
	case -2:
		return Evicted{Kind: kindOf[r.Int(1)]}, &lock.OtherOwnerError{Name: name, Owner: owner, Holder: plain(r.Str(2))}
	default:
		return Evicted{}, errNoLock(name)
	}
	e := Evicted{Kind: kindOf[r.Int(1)]}
	if r.Code == 0 {
		return e, nil
	}
	e.Count = int(r.Int(2))
	if text := r.Str(3); text != "" {
		e.Refused = errors.New(text)
	}
	for i := 4; i < len(r.Vals); i++ {
		e.Owners = append(e.Owners, plain(r.Str(i)))
	}
	return e, nil
}

// plain is the owner of a field: a write hold's has more.
func plain(field string) string {
	const write = ":write"
	if len(field) > len(write) && field[len(field)-len(write):] == write {
		return field[:len(field)-len(write)]
	}
	return field
}
