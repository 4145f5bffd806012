package main

import (
	"context"
	"errors"
	"time"

	"github.com/redlatch/redlatch"
)

// rw lets buyers write under the write lock while browsers read under the read
// lock: many at once, and never in the middle of a sale.
type rw struct {
	locked
}

func newRW(w *worker) (strategy, error) {
	client, err := w.locks()
	writeLock := func(name string) redlatch.Locker { return client.ReadWriteLock(name).WriteLock() }
	return &rw{locked{w.shop, client, writeLock}}, err
}

func (s *rw) browse(ctx context.Context, done <-chan struct{}, book *notebook) error {
	for {
		select {
		case <-done:
			return nil
		case <-time.After(20 * time.Millisecond):
		}
		if err := s.look(ctx, book); err != nil {
			return err
		}
	}
}

// look reads stock and orders, one after the other, and checks that they fit.
func (s *rw) look(ctx context.Context, book *notebook) (err error) {
	hold, err := s.client.ReadWriteLock(s.shop.lockName(0)).ReadLock().Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	ctx = hold.Context()
	stock, err := s.shop.readStock(ctx, 0)
	if err != nil {
		return err
	}
	orders, err := s.shop.countOrders(ctx, 0)
	if err != nil {
		return err
	}
	book.views++
	if stock+orders != s.shop.filledWith(0) {
		book.torn++
	}
	return nil
}
