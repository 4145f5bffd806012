package luascript

// The scripts that find out by themselves which kind of lock they stand before.
var (
	Inspect  = load("inspect", "common", "clock", "token", "enter", "fair_queue", "hold", "alone", "any_lock")
	ForceAny = load("force_any", "common", "clock", "token", "enter", "fair_queue", "hold", "alone", "any_lock")
)
