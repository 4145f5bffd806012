package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/fairlock"
)

// locked serves each click alone with what its sale touches: it locks, sells, and
// unlocks. The strategies with locks differ only in these three.
type locked struct {
	shop  *shop
	lock  func(shelf int, c click) redlatch.Locker
	first func(c click) int // the shelf at which a click begins
	sell  func(ctx context.Context, shelf int, c click) (outcome, error)
}

// serve goes on to the next shelf while they are sold out.
func (l *locked) serve(ctx context.Context, c click, notes *result) (outcome, error) {
	for i := range l.shop.shelves {
		got, err := l.serveFrom(ctx, (l.first(c)+i)%l.shop.shelves, c, notes)
		if err != nil || got != soldOut {
			return got, err
		}
	}
	return soldOut, nil
}

func (l *locked) serveFrom(ctx context.Context, shelf int, c click, notes *result) (got outcome, err error) {
	since := time.Now()
	const watchdog = 0 // renews the lock until Unlock
	// Without a closing time this would be Lock(ctx).
	hold, err := l.lock(shelf, c).TryLock(ctx, l.shop.patience(), watchdog)
	switch closed := l.shop.patience() == 0; {
	case errors.Is(err, redlatch.ErrUnavailable) && closed, errors.Is(err, redlatch.ErrNotAcquired):
		// The buyer's turn did not come. A server that is slow when the shop closes is no failure.
		return turnedAway, nil
	case err != nil:
		return 0, err
	}
	// The error of Unlock counts: it says when the lock was lost on the way,
	// and then others may have been inside too.
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	notes.waited(time.Since(since))

	// hold.Context() carries the owner, and it ends if the lock is lost.
	return l.sell(hold.Context(), shelf, c)
}

// hasOrder is a check that protects itself: it locks the shelf, whoever calls
// it. Called by the holder, with the context of its hold, it re-enters the
// lock; with a lock that is not re-entrant the sale would wait for itself here.
func (l *locked) hasOrder(ctx context.Context, shelf, user int) (already bool, err error) {
	err = redlatch.Do(ctx, l.lock(shelf, click{user: user}), func(ctx context.Context) error {
		already, err = l.shop.hasOrder(ctx, shelf, user)
		return err
	})
	return already, err
}

// locks connects a redlatch client whose commands are counted like the shop's. It
// closes with the worker.
func (w *worker) locks() (err error) {
	config := redlatch.Config{Redis: w.option()}
	if w.job.Kill {
		config.LeaseTime = killLease
	}
	w.client, err = redlatch.New(config)
	return err
}

// lockName is the name of a shelf's lock. A lock is a value without state: making
// one costs nothing, and two of one name are the same lock.
func (w *worker) lockName(shelf int) string { return fmt.Sprintf("%s:lock:%d", w.tag, shelf) }

// byShelf locks nothing but the shelf. A click begins at the user's own: all clicks of a
// user take the same way, and a shelf that is sold out stays so: all of them end at the
// same shelf. So it is enough to look for the user's order there, under its lock.
func (w *worker) byShelf(lock func(name string) redlatch.Locker) (seller, error) {
	l := &locked{shop: w.shop, first: func(c click) int { return c.user }}
	l.lock = func(shelf int, _ click) redlatch.Locker { return lock(w.lockName(shelf)) }
	l.sell = func(ctx context.Context, shelf int, c click) (outcome, error) {
		return w.sell(ctx, shelf, c, l.hasOrder)
	}
	return l.serve, w.locks()
}

func rLock(w *worker) (seller, error) {
	return w.byShelf(func(name string) redlatch.Locker { return w.client.RLock(name) })
}

// fairLock serves the buyers in the order of their clicks, over all processes:
// nobody waits much longer than the others, and every turn costs a hand-over to
// whoever is next, wherever that is. Compare both with rlock.
//
// A killed process leaves its waiters in the queue, too. They are skipped once
// they have been silent for as long as the lease of -kill.
func fairLock(w *worker) (seller, error) {
	return w.byShelf(func(name string) redlatch.Locker { return w.client.FairLock(name, fairlock.WithSkipAfter(killLease)) })
}

// readWriteLock lets buyers write under the write lock while people who only look read
// stock and orders, one after the other, under the read lock: many at once, and never in
// the middle of a sale.
func readWriteLock(w *worker) (seller, error) {
	w.look = func(ctx context.Context, notes *result) error {
		return w.client.ReadWriteLock(w.lockName(0)).ReadLock().Do(ctx, func(ctx context.Context) error {
			stock, noStock := w.read(ctx, w.stockKey(), 0, 0)
			off, noOrders := w.misfit(ctx, 0, stock)
			if err := errors.Join(noStock, noOrders); err != nil {
				return err
			}
			notes.Views++
			if off != 0 {
				notes.Torn++
			}
			return nil
		})
	}
	return w.byShelf(func(name string) redlatch.Locker { return w.client.ReadWriteLock(name).WriteLock() })
}

// multiLock locks the shelf and the user together, both or none, in one step. Sales
// that share neither run side by side. A click begins at any shelf: a user's second click
// may well be served from another one, at the same time. The lock of the user keeps them
// apart.
func multiLock(w *worker) (seller, error) {
	l := &locked{shop: w.shop, first: func(c click) int { return c.nr }, sell: w.sellAnywhere}
	l.lock = func(shelf int, c click) redlatch.Locker {
		return redlatch.MultiLock(w.client.RLock(w.lockName(shelf)), w.client.RLock(fmt.Sprintf("%s:lock:user:%d", w.tag, c.user)))
	}
	return l.serve, w.locks()
}
