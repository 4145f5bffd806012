package conn

import (
	"slices"
	"strings"

	"github.com/redlatch/redlatch/internal/quote"
)

// A SpoiledError says that a script met something at the keys of a lock that nobody of redlatch or
// Redisson writes there, and what helps. No retry does.
type SpoiledError struct {
	Keys []string // one of them is spoiled
	Err  error    // the server's answer
}

func (e *SpoiledError) Error() string {
	names := make([]string, len(e.Keys))
	for i, key := range e.Keys {
		names[i] = quote.Name(key)
	}
	of := "of these keys one holds what is not a lock's: look at them, and delete it: "
	if len(names) == 1 {
		of = "this key holds what is not a lock's: look at it, and delete it: "
	}
	return e.Err.Error() + "; " + of + strings.Join(names, ", ")
}

// Unwrap leads to the server's answer.
func (e *SpoiledError) Unwrap() error { return e.Err }

// spoiled names the keys of a command whose script failed for what stands there, or for lack of a right to them.
func spoiled(cmd Command, err error) error {
	if err == nil {
		return nil
	}
	text, ok := answerOf(err)
	switch {
	case !ok:
		return err
	case strings.Contains(text, "counter holds no number"):
		counters := slices.DeleteFunc(slices.Clone(cmd.Keys), func(key string) bool { return !strings.HasPrefix(key, "redisson_lock_token:") })
		if len(counters) > 0 {
			return &SpoiledError{counters, err}
		}
	case hasCode(text, "WRONGTYPE"), strings.Contains(text, "attempt to "): // Lua's own words
	default:
		return denied(cmd, err)
	}
	keys := slices.Clone(cmd.Keys)
	slices.Sort(keys)
	return &SpoiledError{slices.Compact(keys), err}
}
