package main

import "github.com/redlatch/redlatch"

// newFair serves the buyers in the order of their clicks, over all processes:
// nobody waits much longer than the others, and every turn costs a hand-over to
// whoever is next, wherever that is. The demo compares both with rlock.
func newFair(w *worker) (strategy, error) {
	client, err := w.locks()
	return &locked{w.shop, client, func(name string) redlatch.Locker { return client.FairLock(name) }}, err
}
