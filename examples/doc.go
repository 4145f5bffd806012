// Package examples is the root of the runnable examples, each in a folder of its
// own; README.md beside this file lists them.
//
// It is a module of its own, so that what an example needs (an embedded
// server, exporters, other clients) never becomes a dependency of the SDK.
package examples
