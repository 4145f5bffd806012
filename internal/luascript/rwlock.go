package luascript

// The scripts of the read-write lock; rwlock/doc.go says how they work together.
var (
	RWRead         = load("rw_read", "common", "clock", "hold", "whose", "counter", "traces", "rw_call")
	RWWrite        = load("rw_write", "common", "clock", "hold", "whose", "counter", "token", "traces", "rw_call")
	RWReenter      = load("rw_reenter", "common", "clock", "first")
	RWRenew        = load("rw_renew", "common", "clock", "first")
	RWRefresh      = load("rw_refresh", "common", "clock")
	RWLease        = load("rw_lease", "common", "clock")
	RWFree         = load("rw_free", "common", "first")
	RWReadRelease  = load("rw_read_release", "common", "clock", "leave", "hold", "foreign", "rw_call")
	RWWriteRelease = load("rw_write_release", "common", "clock", "leave", "rw_call")
	RWState        = load("rw_state", "common", "clock", "hold", "foreign")
)
