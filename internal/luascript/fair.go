package luascript

// The scripts of the fair lock. Re-entry and renewal do not depend on the queue:
// they are the plain lock's.
var (
	FairAcquire = load("fair_acquire", "common", "clock", "fair_keys", "hold", "whose", "counter", "token", "enter", "fair_scores", "fair_queue", "fair_mend", "fair_life")
	FairRelease = load("fair_release", "common", "clock", "fair_keys", "enter", "leave", "fair_queue", "fair_scores", "counter", "token", "fair_life", "fair_mend", "fair_leave")
	FairRefresh = load("fair_refresh", "common", "clock", "first", "fair_keys", "hold", "whose", "counter", "token", "enter", "fair_scores", "fair_queue", "fair_life", "fair_mend")
	FairState   = load("fair_state", "common", "clock", "fair_keys", "fair_scores", "hold", "alone")
)

// FairQueueKey is the list of a fair lock's waiters.
func FairQueueKey(key string) string { return Derive("redisson_lock_queue", key) }

// FairTimeoutKey is when Redisson may drop each of them.
func FairTimeoutKey(key string) string { return Derive("redisson_lock_timeout", key) }

// FairWantsKey is until when each redlatch waiter counts as alive, and what it
// wants.
func FairWantsKey(key string) string { return Derive("redlatch_fair", key) }

// GrantChannel is where a client gets the grants for its waiters; append the
// client's id.
func GrantChannel(key string) string { return Derive("redlatch_grant", key) + ":" }
