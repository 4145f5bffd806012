package luascript

// The scripts of the plain lock. FairLock and the write lock share those that
// do not depend on how waiting is arranged.
var (
	Acquire = load("acquire")
	Reenter = load("reenter")
	Release = load("release")
	Renew   = load("renew")
	Force   = load("force")
	State   = load("state")
)
