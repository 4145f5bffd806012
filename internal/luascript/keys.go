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

// WaitKey is the list of the clients that wait for a plain lock, each with the time in µs of its
// first refusal; of those that were called and have lost, that less a constant.
func WaitKey(key string) string { return Derive("redlatch_wait", key) }

// CallChannel is where a client is called when it is its turn to ask for a lock; append the
// client's id.
func CallChannel(key string) string { return Derive("redlatch_wake", key) + ":" }

// VoidKey is a short-lived set of acquisitions that were given up while one of
// their commands may still be on its way; see release.lua.
func VoidKey(key string) string { return Derive("redlatch_void", key) }

// TraceKey holds the sampled trace context of the holder.
func TraceKey(key string) string { return Derive("redlatch_trace", key) }

// RWChannel is where both modes of a read-write lock publish.
func RWChannel(key string) string { return Derive("redisson_rwlock", key) }

// RWTimeoutPrefix begins the names of the keys that hold the leases of read
// holds: <prefix>:<field>:rwlock_timeout:<i>, i from 1 to the field's count.
func RWTimeoutPrefix(key string) string {
	if strings.Contains(key, "{") {
		return key
	}
	return "{" + key + "}"
}

// RWTimeoutKey holds the lease of all read holds of one redlatch acquisition.
func RWTimeoutKey(key, field string) string {
	return Suffix(key, field+":rwlock_timeout:1")
}

// RWLeasesKey is a sorted set of our holds, hash field -> end of lease in ms.
func RWLeasesKey(key string) string { return Derive("redlatch_rw_leases", key) }

// RWWritersKey is a sorted set of waiting writers, field -> since when in µs.
func RWWritersKey(key string) string { return Derive("redlatch_rw_writers", key) }

// RWMarksKey is a sorted set of waiting writers, field -> alive until in ms.
func RWMarksKey(key string) string { return Derive("redlatch_rw_marks", key) }

// RWReadersKey is a sorted set of waiting readers, field -> alive until in ms.
func RWReadersKey(key string) string { return Derive("redlatch_rw_readers", key) }

// RWTurnKey is a sorted set of the readers whose turn it is, field -> alive
// until in ms.
func RWTurnKey(key string) string { return Derive("redlatch_rw_turn", key) }
