package luascript

// The scripts of MultiLock and QuorumLock.
var (
	GroupAcquire = load("group_acquire", "common", "hold", "whose", "counter", "token", "enter", "traces", "enlist")
	GroupRelease = load("group_release", "common", "leave", "shrink", "wake", "enlist")
	RaiseToken   = load("raise_token", "counter")
	Server       = load("server")
)
