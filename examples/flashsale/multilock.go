package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redlatch/redlatch"
)

// multi locks the shelf, the user and the user's coupon together, all or none,
// in one step. Sales that share none of the three run side by side.
type multi struct {
	shop   *shop
	client *redlatch.Client
}

func newMulti(w *worker) (strategy, error) {
	client, err := w.locks()
	return &multi{w.shop, client}, err
}

func (m *multi) close() { m.client.Close() }

// serve begins at any shelf: a user's second click may well be served from
// another one, at the same time. The lock of the user keeps them apart.
func (m *multi) serve(ctx context.Context, c click, book *notebook) (outcome, error) {
	for i := range m.shop.shelves {
		result, err := m.serveFrom(ctx, (c.nr+i)%m.shop.shelves, c, book)
		if err != nil || result != soldOut {
			return result, err
		}
	}
	return soldOut, nil
}

func (m *multi) serveFrom(ctx context.Context, shelf int, c click, book *notebook) (result outcome, err error) {
	since := time.Now()
	hold, err := redlatch.MultiLock(
		m.client.RLock(m.shop.lockName(shelf)),
		m.client.RLock(fmt.Sprintf("%s:lock:user:%d", m.shop.tag, c.user)),
		m.client.RLock(fmt.Sprintf("%s:lock:coupon:%d", m.shop.tag, m.shop.coupon(c.user))),
	).TryLock(ctx, m.shop.patience(), 0)
	if err != nil {
		return notServed(err, m.shop)
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()
	book.entered(shelf, since)
	return m.shop.sellWithCoupon(hold.Context(), shelf, c)
}
