package rwlock

import (
	"strings"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/internal/kind"
	"github.com/redlatch/redlatch/lock"
)

// readState reads the reply of rw_state.lua.
func readState(r conn.Reply) (lock.State, error) {
	if r.Code == -3 {
		return lock.State{}, kind.NoLock("read-write lock")
	}
	st := lock.State{Token: r.Token(1)}
	mode, i := lock.Mode(r.Str(2)), 5
	for range min(r.Int(4), int64(len(r.Vals))/3) {
		o := kind.HolderOf(r.Str(i), lock.ModeRead)
		o.Count, o.Remaining = int(r.Int(i+1)), kind.Remaining(r.Int(i+2))
		// In write mode an owner has a field for each mode.
		if owner, ok := strings.CutSuffix(o.Owner, ":write"); ok && mode == lock.ModeWrite {
			o.Owner, o.Mode = owner, lock.ModeWrite
		}
		st.Holders = append(st.Holders, o)
		i += 3
	}
	if len(st.Holders) > 0 {
		st.Held, st.Mode, st.Remaining = true, mode, kind.Remaining(r.Code)
	}
	for ; i+1 < len(r.Vals); i += 2 {
		st.Queue = append(st.Queue, kind.WaiterOf(r.Str(i), lock.ModeWrite))
	}
	st.QueueLength = max(int(r.Int(3)), len(st.Queue)) // readers wait, too
	return st, nil
}
