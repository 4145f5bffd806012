package main

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// The flash sale: a few things, little of each, many buyers, one each. As in
// examples/flashsale a sale reads the stock, checks the buyer's orders, thinks, and
// writes both back, which is not atomic: the lock of the thing makes it exact.
// When a thing is sold out it goes on sale anew.
const (
	things = 4
	stock  = 100
	buyers = 150
)

// ledger is what the sales came to.
type ledger struct {
	sold, wrong atomic.Int64
}

// sell serves one click, under the lock of the thing.
func (s *shop) sell(ctx context.Context, t *till) error {
	thing := s.number(things)
	l := t.client.RLock(s.tag+"item:"+thing, redlatch.Fenced())
	return l.Do(ctx, func(ctx context.Context) error {
		return s.sale(ctx, t, l, thing)
	})
}

// sale sells one to a buyer, if there is one left and the buyer has none yet.
func (s *shop) sale(ctx context.Context, t *till, l redlatch.Locker, thing string) error {
	b := t.goods.B()
	stockKey, ordersKey := s.tag+"stock:"+thing, s.tag+"orders:"+thing
	left, err := t.goods.Do(ctx, b.Get().Key(stockKey).Build()).AsInt64()
	if rueidis.IsRedisNil(err) || err == nil && left == 0 {
		return s.openSale(ctx, t, stockKey, ordersKey)
	}
	if err != nil {
		return err
	}
	buyer := s.number(buyers)
	has, err := s.ordered(ctx, t, l, ordersKey, buyer)
	if has || err != nil {
		return err
	}
	pause(ctx, 15*time.Millisecond) // the payment
	if ctx.Err() != nil {
		return context.Cause(ctx) // the lock is lost, or the program ends: nothing may be written
	}
	// Both or, if the server fails, what has to be put right by hand: not one of them
	// because the program ends in between.
	for _, answer := range t.goods.DoMulti(context.WithoutCancel(ctx),
		b.Set().Key(stockKey).Value(strconv.FormatInt(left-1, 10)).Build(),
		b.Sadd().Key(ordersKey).Member(buyer).Build(),
	) {
		err = errors.Join(err, answer.Error())
	}
	if err != nil {
		return err
	}
	s.sold.Add(1)
	orders, err := t.goods.Do(ctx, b.Scard().Key(ordersKey).Build()).AsInt64()
	if err == nil && orders+left-1 != stock {
		s.wrong.Add(1)
	}
	return err
}

// ordered asks for the buyer's order under the lock, as a function of its own
// that does not know whether its caller holds it: it re-enters.
func (s *shop) ordered(ctx context.Context, t *till, l redlatch.Locker, ordersKey, buyer string) (bool, error) {
	h, err := l.Lock(ctx)
	if err != nil {
		return false, err
	}
	has, err := t.goods.Do(ctx, t.goods.B().Sismember().Key(ordersKey).Member(buyer).Build()).AsBool()
	return has, errors.Join(err, h.Unlock(ctx))
}

// openSale puts a thing on sale. The lock is the caller's.
func (s *shop) openSale(ctx context.Context, t *till, stockKey, ordersKey string) error {
	b := t.goods.B()
	err := t.goods.Do(ctx, b.Del().Key(ordersKey).Build()).Error()
	if err != nil {
		return err
	}
	return t.goods.Do(ctx, b.Set().Key(stockKey).Value(strconv.Itoa(stock)).Build()).Error()
}

// clear removes what the sales left on the server.
func (s *shop) clear() error {
	if len(s.tills) == 0 || s.tills[0].goods == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	goods := s.tills[0].goods
	var err error
	for i := range things {
		n := strconv.Itoa(i)
		for _, key := range []string{s.tag + "stock:" + n, s.tag + "orders:" + n} {
			err = errors.Join(err, goods.Do(ctx, goods.B().Del().Key(key).Build()).Error())
		}
	}
	return err
}
