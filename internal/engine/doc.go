// Package engine is what all lock kinds share: owners and their sessions, one
// acquire-and-wait loop, holds with their local deadlines, and one watchdog per
// client. A kind tells it, through [Kind], which scripts to run, what their
// answers mean and whom a message wakes.
//
// # One acquisition
//
//	        ┌────────────── busy ───────────────┐
//	        ▼                                    │
//	try ── gate ── command ── answer ── acquired ── session + hold
//	        ▲          │         │
//	        │          │         └─ transient error: pause, try again
//	        │          └─ caller gone: the command's goroutine takes over and
//	        │             gives back what it gets
//	        └── woken by: a message, a (re)connected subscription, the end of the
//	            holder's lease, another acquisition of the same owner, the
//	            watchdog's refresh of a queue place
//
// Whoever is asked first is the server: the client decides nothing but when to
// ask. A command that was sent can't be taken back, so its answer is always
// awaited by somebody; see [Core.fly].
//
// # Who guards what
//
// A slot's gate admits one command per client, lock and owner at a time; it is
// held while the command is under way, by whoever waits for the answer. Core.mu
// guards sessions, holds and the watchdog's heap; nothing blocks under it and no
// user code runs under it. Hub.mu guards the subscriptions. They are taken in
// that order, gate first, and never the other way round.
//
// # The local deadline
//
//	until = instant before the command was sent + lease - drift(lease)
//
// where the command is the last acquisition, re-entry or renewal that the server
// confirmed. The server sets the lease later than that instant, so it can't run
// out before. The deadline counts on the monotonic and on the wall clock,
// whichever passes first.
package engine
