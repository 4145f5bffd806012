package luascript

// The scripts of the history of evictions.
var (
	HistoryAdd  = load("history_add")
	HistoryRead = load("history_read")
)

// HistoryKey is the stream of the evictions under a prefix: one for all its locks, so that nobody has to look for
// those of locks that are gone.
func HistoryKey(prefix string) string { return Derive("redlatch_history", prefix) }
