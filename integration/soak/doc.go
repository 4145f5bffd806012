// Package soak lets processes take locks of all kinds at random for a while, on
// few names and through faults: they are killed and frozen, their connections
// cut, their waits cancelled. What happens inside the sections is recorded on the
// server; the test checks the record.
//
// It runs for some seconds with the other tests, and for as long as REDLATCH_SOAK
// says (a duration) with make soak.
package soak
