package luascript

import (
	"fmt"
	"slices"
	"strings"
)

// MaxKey is how long the key of a lock may be, in bytes.
const MaxKey = 1024

// prefixes begin the names of all derived keys and channels; a ":" follows.
var prefixes = []string{
	"redisson_lock__channel", "redisson_lock_queue", "redisson_lock_timeout", "redisson_lock_token",
	"redisson_unlock_latch", "redisson_rwlock",
	"redlatch_void", "redlatch_trace", "redlatch_wait", "redlatch_wake", "redlatch_fair", "redlatch_grant", "redlatch_rw_leases",
	"redlatch_rw_writers", "redlatch_rw_marks", "redlatch_rw_readers", "redlatch_rw_turn",
}

// timeoutMark is in the names of the keys that hold the leases of read holds.
const timeoutMark = ":rwlock_timeout:"

// CheckKey says why key can't be that of a lock; "" is fine. A lock's derived keys
// and channels must be its own, and lie in its slot where there are slots.
func CheckKey(key string, cluster bool) (reason string) {
	switch {
	case key == "":
		return "it is empty"
	case len(key) > MaxKey:
		return fmt.Sprintf("it is longer than %d bytes", MaxKey)
	case strings.Contains(key, timeoutMark):
		return fmt.Sprintf("it contains %q, as the keys that belong to read-write locks do", timeoutMark)
	}
	if prefix, _, ok := strings.Cut(key, ":"); ok && (slices.Contains(prefixes, prefix) || strings.HasPrefix(prefix, "redlatch_")) {
		return fmt.Sprintf("%q begins the names of keys that belong to other locks", prefix+":")
	}
	if !strings.ContainsAny(key, "{}") {
		return ""
	}
	if inner := key[1:]; key[0] == '{' && strings.HasSuffix(inner, "}") && !strings.Contains(inner, "{") {
		return fmt.Sprintf("its braces enclose the whole name, so its derived keys are those of %q", inner[:len(inner)-1])
	}
	if !cluster {
		return ""
	}
	const apart = "its braces put keys that belong together into different slots"
	slot := Slot(key)
	for _, prefix := range prefixes {
		if Slot(Derive(prefix, key)) != slot {
			return apart
		}
	}
	if Slot(Suffix(key, "x"+timeoutMark+"1")) != slot {
		return apart
	}
	return ""
}

// Glob makes a text mean itself in a pattern.
var Glob = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)
