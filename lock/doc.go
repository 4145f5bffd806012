// Package lock holds what every lock kind of redlatch shares with its users:
// the [Locker] and [Hold] interfaces, the options and the errors.
//
// It is a leaf: it imports nothing else of the module, so that a user's own
// lock type can satisfy [Locker] without pulling in a Redis client. The root
// package re-exports all of it; most programs never import this package.
package lock
