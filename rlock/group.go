package rlock

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/internal/luascript"
)

// AcquireAll implements kind.Group. The parts may be of any lock of this kind: what
// is specific to each is in the command that its own Acquire builds.
func (k *reentrant) AcquireAll(lease time.Duration, parts []kind.Part) conn.Command {
	cmd := conn.Command{
		Script: luascript.GroupAcquire, Keys: make([]string, 0, 4*len(parts)), Args: make([]string, 1, 1+6*len(parts)),
	}
	cmd.Args[0] = kind.Millis(lease)
	for i := range parts {
		p := &parts[i]
		of := p.Kind.(*reentrant)
		if p.Count > 0 {
			cmd.Keys = append(cmd.Keys, of.KeyOnly...)
			cmd.Args = append(cmd.Args, "1", p.Field.Name, strconv.Itoa(p.Count), "", "", "")
			continue
		}
		a := p.Attempt
		keys := of.acquireKeys(a)
		cmd.Keys = append(cmd.Keys, keys...)
		cmd.Args = append(cmd.Args, strconv.Itoa(len(keys)), a.Field, "0", of.fence, a.Trace, a.Place)
	}
	return cmd
}

// AcquiredAll implements kind.Group.
func (k *reentrant) AcquiredAll(parts []kind.Part, r conn.Reply) (out kind.Outcome, part int, tokens []uint64) {
	part = min(max(int(r.Int(1))-1, 0), len(parts)-1)
	switch r.Code {
	case 1, 2:
		out.Acquired, out.Renewed = true, r.Code == 2
		for i := range parts {
			if token := kind.Token(r, i+1); token != 0 {
				if tokens == nil {
					tokens = make([]uint64, len(parts))
				}
				tokens[i] = token
			}
		}
		return out, 0, tokens
	case -1:
		out.Void = true
	case -2:
		out.Gone = parts[part].Count > 0 // else nobody asked
	case -3:
		out.NoLock = true
	default:
		out.Remaining, out.Holder, out.Trace = kind.Remaining(r.Int(2)), r.Str(3), r.Str(4)
		out.Foreign, out.LookIn = kind.Foreign(out.Holder), time.Duration(r.Int(5))*time.Millisecond
	}
	return out, part, nil
}

// ReleaseAll implements kind.Group.
func (k *reentrant) ReleaseAll(cmds []conn.Command) conn.Command {
	all := conn.Command{
		Script: luascript.GroupRelease, Keys: make([]string, 0, 3*len(cmds)), Args: make([]string, 0, 9*len(cmds)),
	}
	for i := range cmds {
		all.Keys = append(all.Keys, cmds[i].Keys...)
		all.Args = append(append(all.Args, strconv.Itoa(len(cmds[i].Keys))), cmds[i].Args...)
		for len(all.Args) < 9*(i+1) {
			all.Args = append(all.Args, "")
		}
	}
	return all
}
