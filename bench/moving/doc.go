// Package moving holds the tests behind docs/moving: what redlatch and the
// libraries that a service comes from do to each other's locks, with the real
// libraries on a real server.
package moving
