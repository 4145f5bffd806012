package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// locked serves each click alone with its shelf: it locks the shelf, sells,
// and unlocks. The strategies rlock, rlock-segmented, fair and rw differ only
// in the kind of lock and in the number of shelves.
type locked struct {
	shop   *shop
	client *redlatch.Client
	lock   func(name string) redlatch.Locker
}

func newRLock(w *worker) (strategy, error) {
	client, err := w.locks()
	return &locked{w.shop, client, func(name string) redlatch.Locker { return client.RLock(name) }}, err
}

// locks connects a redlatch client whose commands are counted like the shop's.
func (w *worker) locks() (*redlatch.Client, error) {
	option, err := rueidis.ParseURL(w.job.URL)
	if err != nil {
		return nil, err
	}
	w.counter.watch(&option)
	// What the client says at level Info (a grant that came too late was given back)
	// would tear the table.
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	return redlatch.New(redlatch.Config{Redis: option, LeaseTime: w.job.Lease, Logger: log})
}

func (l *locked) close() { l.client.Close() }

// shelf returns the lock of a shelf. A lock is a value without state: making
// one costs nothing, and two of one name are the same lock.
func (l *locked) shelf(i int) redlatch.Locker { return l.lock(l.shop.lockName(i)) }

// serve begins at the user's own shelf and goes on to the next while they are
// sold out. All clicks of a user take the same way, and a shelf that is sold
// out stays so: all of them end at the same shelf. So it is enough to look for
// the user's order there, under that shelf's lock.
func (l *locked) serve(ctx context.Context, c click, book *notebook) (outcome, error) {
	for i := range l.shop.shelves {
		result, err := l.serveFrom(ctx, (c.user+i)%l.shop.shelves, c, book)
		if err != nil || result != soldOut {
			return result, err
		}
	}
	return soldOut, nil
}

func (l *locked) serveFrom(ctx context.Context, shelf int, c click, book *notebook) (result outcome, err error) {
	since := time.Now()
	// Without a closing time this would be Lock(ctx). The lease of 0 stands for one
	// that is renewed until Unlock.
	hold, err := l.shelf(shelf).TryLock(ctx, l.shop.patience(), 0)
	if err != nil {
		return notServed(err, l.shop)
	}
	// The error of Unlock counts: it says when the lock was lost on the way,
	// and then others may have been inside too.
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	book.entered(shelf, since)

	// hold.Context() carries the owner, and it ends if the lock is lost.
	return l.shop.sell(hold.Context(), shelf, c, l.hasOrder)
}

// notServed tells a buyer whose turn did not come from a failure. A server that is
// slow when the shop closes is none.
func notServed(err error, s *shop) (outcome, error) {
	if errors.Is(err, redlatch.ErrUnavailable) && s.patience() > 0 {
		return 0, err
	}
	if errors.Is(err, redlatch.ErrNotAcquired) || errors.Is(err, redlatch.ErrUnavailable) {
		return turnedAway, nil
	}
	return 0, err
}

// hasOrder is a check that protects itself: it locks the shelf, whoever calls
// it. Called by the holder, with the context of its hold, it re-enters the
// lock; with a lock that is not re-entrant the sale would wait for itself here.
func (l *locked) hasOrder(ctx context.Context, shelf, user int) (already bool, err error) {
	hold, err := l.shelf(shelf).Lock(ctx)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	return l.shop.hasOrder(hold.Context(), shelf, user)
}
