package main

import (
	"context"
	"errors"
	"math/rand/v2"
	"strconv"
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

// name is one of n names.
func (s *shop) name(kind string, n int) string {
	return s.tag + kind + strconv.Itoa(rand.N(n)) //nolint:gosec // a load
}

// pause works for about d.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d/2 + rand.N(d)): //nolint:gosec // a load
	case <-ctx.Done():
	}
}

// busy is a section that works for about d.
func busy(d time.Duration) func(context.Context) error {
	return func(ctx context.Context) error {
		pause(ctx, d)
		return nil
	}
}

// sell serves one click, under the lock of the thing.
func (s *shop) sell(ctx context.Context, t *till) error {
	thing := s.name("item:", things)
	l := t.RLock(thing, redlatch.Fenced())
	return l.Do(ctx, func(ctx context.Context) error { return s.sale(ctx, t, l, thing+":stock", thing+":orders") })
}

// sale sells one to a buyer, if there is one left and the buyer has none yet.
func (s *shop) sale(ctx context.Context, t *till, l redlatch.Locker, stockKey, ordersKey string) error {
	b := t.goods.B()
	left, err := t.goods.Do(ctx, b.Get().Key(stockKey).Build()).AsInt64()
	if rueidis.IsRedisNil(err) || err == nil && left == 0 {
		return write(ctx, t, // it goes on sale
			b.Del().Key(ordersKey).Build(),
			b.Set().Key(stockKey).Value(strconv.Itoa(stock)).Build())
	}
	if err != nil {
		return err
	}
	buyer := strconv.Itoa(rand.N(buyers)) //nolint:gosec // a load
	// A function of its own asks for the buyer's order. It does not know whether its
	// caller holds the lock: it re-enters.
	var has bool
	if err := redlatch.Do(ctx, l, func(ctx context.Context) (err error) {
		has, err = t.goods.Do(ctx, b.Sismember().Key(ordersKey).Member(buyer).Build()).AsBool()
		return err
	}); err != nil || has {
		return err
	}
	pause(ctx, 15*time.Millisecond) // the payment
	if ctx.Err() != nil {
		return context.Cause(ctx) // the lock is lost, or the program ends: nothing may be written
	}
	// Both or, if the server fails, what has to be put right by hand: not one of them
	// because the program ends in between.
	if err := write(context.WithoutCancel(ctx), t,
		b.Set().Key(stockKey).Value(strconv.FormatInt(left-1, 10)).Build(),
		b.Sadd().Key(ordersKey).Member(buyer).Build()); err != nil {
		return err
	}
	s.sold.Add(1)
	orders, err := t.goods.Do(ctx, b.Scard().Key(ordersKey).Build()).AsInt64()
	if err == nil && orders+left-1 != stock {
		s.wrong.Add(1)
	}
	return err
}

func write(ctx context.Context, t *till, commands ...rueidis.Completed) (err error) {
	for _, answer := range t.goods.DoMulti(ctx, commands...) {
		err = errors.Join(err, answer.Error())
	}
	return err
}

// clear removes what the sales left on the server.
func (s *shop) clear(goods rueidis.Client) error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	var keys []string
	for i := range things {
		thing := s.tag + "item:" + strconv.Itoa(i)
		keys = append(keys, thing+":stock", thing+":orders")
	}
	return goods.Do(ctx, goods.B().Del().Key(keys...).Build()).Error()
}

// queueUp waits its turn.
func (s *shop) queueUp(ctx context.Context, t *till) error {
	return t.FairLock(s.tag+"checkout:0").Do(ctx, busy(10*time.Millisecond))
}

// browse reads the catalogue while nobody writes it.
func (s *shop) browse(ctx context.Context, t *till) error {
	return t.ReadWriteLock(s.name("catalogue:", 2)).ReadLock().Do(ctx, busy(8*time.Millisecond))
}

// restock writes it.
func (s *shop) restock(ctx context.Context, t *till) error {
	pause(ctx, 100*time.Millisecond)
	return t.ReadWriteLock(s.name("catalogue:", 2)).WriteLock().Do(ctx, busy(30*time.Millisecond))
}

// bundle sells two things at once.
func (s *shop) bundle(ctx context.Context, t *till) error {
	return redlatch.MultiLock(t.RLock(s.name("item:", things)), t.RLock(s.name("coupon:", 3))).Do(ctx, busy(10*time.Millisecond))
}

// glance gives up soon, or at once.
func (s *shop) glance(ctx context.Context, t *till) error {
	const watchdog = 0
	wait := time.Duration(rand.N(2)) * 5 * time.Millisecond //nolint:gosec // a load
	err := t.RLock(s.name("item:", things)).TryDo(ctx, wait, watchdog, busy(1))
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return nil
	}
	return err
}

// nightly is a long job; now and then an operator takes its lock away.
func (s *shop) nightly(ctx context.Context, t *till) error {
	l := t.RLock(s.tag + "job:0")
	h, err := l.Lock(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = h.Unlock(ctx) }() // lost, most of the time: that is the point
	pause(h.Context(), lease)
	if s.nights.Add(1)%2 == 1 {
		if _, err := l.ForceUnlock(ctx); err != nil {
			return err
		}
		<-h.Context().Done()
	}
	return nil
}
