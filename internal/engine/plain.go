package engine

import (
	"strconv"
	"time"

	"github.com/redlatch/redlatch/internal/conn"
	"github.com/redlatch/redlatch/lock"
)

// What the kinds whose lock is held by one owner have in common.

// FenceArg is the fencing counter's TTL as the scripts take it.
func FenceArg(ttl time.Duration) string {
	if ttl < 0 {
		return "-1"
	}
	return Millis(ttl)
}

// formatToken is a token as the scripts take it.
func formatToken(token uint64) string { return strconv.FormatUint(token, 10) }

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

// ReadPlainState reads the reply of state.lua.
func ReadPlainState(r conn.Reply) (lock.State, error) {
	if r.Code < 0 {
		return lock.State{}, &lock.InvalidNameError{Reason: "the key of this name is no lock"}
	}
	st := lock.State{Token: uint64(r.Int(2))} // #nosec G115 -- never negative
	if r.Code == 0 {
		return st, nil
	}
	st.Held, st.Mode, st.Remaining = true, lock.ModeLock, Remaining(r.Int(1))
	for i := 3; i+1 < len(r.Vals); i += 2 {
		count, err := strconv.Atoi(r.Str(i + 1))
		if err != nil {
			return lock.State{}, &lock.InvalidNameError{Reason: "the key of this name is no lock"}
		}
		st.Owners = append(st.Owners, lock.OwnerState{
			Owner: r.Str(i), Mode: lock.ModeLock, Count: count, Remaining: st.Remaining,
		})
	}
	return st, nil
}
