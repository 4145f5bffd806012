package luascript

// The scripts of MultiLock and QuorumLock.
var (
	GroupAcquire = load("group_acquire", "common", "hold", "whose", "token", "enter")
	GroupRelease = load("group_release", "common", "leave")
	RaiseToken   = load("raise_token")
	Server       = load("server")
)
