package luascript

// The scripts of the plain lock. FairLock and the write lock share those that
// do not depend on how waiting is arranged.
var (
	Acquire   = load("acquire", "common", "hold", "whose", "counter", "token", "enlist")
	Reenter   = load("reenter", "common", "first")
	Release   = load("release", "common", "leave", "shrink", "wake", "enlist")
	WaitLeave = load("wait_leave", "wake")
	Renew     = load("renew", "common", "first")
	State     = load("state", "common", "hold", "alone")
)
