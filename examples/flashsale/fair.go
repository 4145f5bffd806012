package main

import (
	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
)

// newFair serves the buyers in the order of their clicks, over all processes:
// nobody waits much longer than the others, and every turn costs a hand-over to
// whoever is next, wherever that is. The demo compares both with rlock.
//
// A killed process leaves its waiters in the queue, too. They are skipped once
// they have been silent for as long as the lease of -kill.
func newFair(w *worker) (strategy, error) {
	client, err := w.locks()
	fairLock := func(name string) redlatch.Locker {
		return client.FairLock(name, fairlock.WithSkipAfter(killLease))
	}
	return &locked{w.shop, client, fairLock}, err
}
