// Package examples is the root of the runnable examples; each lives in a
// folder of its own (go run ./examples/flashsale).
//
// It is a module of its own, so that what an example needs (an embedded
// server, exporters) never becomes a dependency of the SDK.
package examples
