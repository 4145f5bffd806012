// Package fairlock is the fair lock: exclusive and re-entrant like the plain one,
// and first come, first served over all processes and machines.
package fairlock
