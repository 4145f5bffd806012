// Package examples is the root of the runnable examples; each lives in a
// folder of its own and finds or starts a Redis for itself:
//
//	go run ./examples/basic      Lock, Do, TryLock, re-entry
//	go run ./examples/cron       a job that runs once per tick, however many replicas there are
//	go run ./examples/fencing    a write that comes too late is refused
//	go run ./examples/flashsale  the demo: many processes, with and without locks
//
// It is a module of its own, so that what an example needs (an embedded
// server, exporters) never becomes a dependency of the SDK.
package examples
