package luascript

// The scripts of what runs at most once per period.
var (
	Once     = load("once")
	OnceUndo = load("once_undo")
)

// OnceKey says when the last run's period began.
func OnceKey(key string) string { return Derive("redlatch_once", key) }
