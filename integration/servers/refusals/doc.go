// Package refusals tests the scripts alone, as a server runs them: what those of a
// holder answer when it refuses writes, has no memory left or moves the slot, what is
// refused as no lock, and that leases only rise.
package refusals
