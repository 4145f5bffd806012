package luascript

// The scripts of the read-write lock; rwlock/doc.go says how they work together.
var (
	RWRead         = load("rw_read")
	RWWrite        = load("rw_write")
	RWReenter      = load("rw_reenter")
	RWRenew        = load("rw_renew")
	RWRefresh      = load("rw_refresh")
	RWLease        = load("rw_lease")
	RWFree         = load("rw_free")
	RWReadRelease  = load("rw_read_release")
	RWWriteRelease = load("rw_write_release")
	RWForce        = load("rw_force")
	RWState        = load("rw_state")
)
