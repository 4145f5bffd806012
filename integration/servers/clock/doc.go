// Package clock tests what a step of a server's wall clock does to locks: each
// server runs with a clock of its own that the test sets.
package clock
