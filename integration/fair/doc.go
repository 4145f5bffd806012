// Package fair holds the tests of FairLock against real servers and over several
// processes.
package fair
