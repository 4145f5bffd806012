package luascript

// The scripts of what runs at most once per period.
var (
	Once      = load("once", "common", "hold", "whose")
	OnceUndo  = load("once_undo", "common", "first")
	OnceReset = load("once_reset")
	OnceLast  = load("once_last")
)

// OnceKey says when the last run's period began.
func OnceKey(key string) string { return Derive("redlatch_once", key) }
