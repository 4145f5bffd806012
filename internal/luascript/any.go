package luascript

// The scripts that find out by themselves which kind of lock they stand before.
var (
	Inspect  = load("inspect", "common", "clock", "fair_keys", "fair_scores", "hold", "foreign", "alone", "any_lock")
	ForceAny = load("force_any", "common", "clock", "fair_keys", "counter", "token", "enter", "fair_scores", "fair_queue", "hold", "foreign", "alone", "any_lock", "wake", "rw_call")
)
