package luascript

import "strings"

// Keys and channels. The redisson_* names are Redisson's, so that both libraries
// mean the same lock; the redlatch_* names are ours and unknown to it. All keys
// of one lock hash to one slot.

// Derive builds a key or channel name that belongs to the lock at key: with a
// hash tag around the key when it has none, else as it is.
func Derive(prefix, key string) string {
	if strings.Contains(key, "{") {
		return prefix + ":" + key
	}
	return prefix + ":{" + key + "}"
}

// Suffix builds a key name in Redisson's other form, the tag first.
func Suffix(key, suffix string) string {
	if strings.Contains(key, "{") {
		return key + ":" + suffix
	}
	return "{" + key + "}:" + suffix
}

// LockChannel is where unlock messages of plain locks are published; a fair
// waiter of Redisson listens on it followed by ":" and its owner.
func LockChannel(key string) string { return Derive("redisson_lock__channel", key) }

// TokenKey is the fencing counter, shared with Redisson's fenced lock.
func TokenKey(key string) string { return Derive("redisson_lock_token", key) }

// VoidKey is a short-lived set of acquisitions that were given up while one of
// their commands may still be on its way; see release.lua.
func VoidKey(key string) string { return Derive("redlatch_void", key) }

// TraceKey holds the sampled trace context of the holder.
func TraceKey(key string) string { return Derive("redlatch_trace", key) }
