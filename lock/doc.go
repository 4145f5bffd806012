// Package lock defines what all lock kinds have in common: the [Locker] and [Hold]
// interfaces, the options and the errors.
//
// It imports nothing else of the module, so that a lock type of your own can
// implement [Locker] without a Redis client. The root package re-exports all of it;
// most programs never import this package.
package lock
