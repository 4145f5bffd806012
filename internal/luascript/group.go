package luascript

// The scripts of MultiLock and QuorumLock.
var (
	GroupAcquire = load("group_acquire")
	GroupRelease = load("group_release")
	RaiseToken   = load("raise_token")
	Server       = load("server")
)
