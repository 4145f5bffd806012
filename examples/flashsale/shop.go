package main

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// shop is the application: stock and orders in Redis, and a sale that is
// deliberately not atomic. It knows nothing of locks.
//
// The goods lie on one or more shelves. A shelf is a stock and the orders that
// were served from it, and whoever changes one must be alone with it:
//
//	{tag}:stock:<shelf>    how many are left, a number
//	{tag}:orders:<shelf>   hash: user → number of orders
//
// At any quiet moment stock + orders = what the shelf was filled with.
type shop struct {
	load
	redis   rueidis.Client
	tag     string
	shelves int
	closing time.Time // no buyer is let in any more; set before the first click

	// repair makes each sale look first whether the one before it was left
	// half done; see reconcile. Only -kill needs it.
	repair   bool
	repaired atomic.Int64

	// halfway, if set, is called in the middle of a sale: the stock is written,
	// the order is not. A worker that is to be killed dies there.
	halfway func(shelf int)
}

// outcome is what a buyer gets.
type outcome int

const (
	bought outcome = iota
	ordered
	soldOut
	turnedAway // the shop closed before the buyer's turn came
)

// patience is how long a buyer waits: until the shop closes.
func (s *shop) patience() time.Duration { return max(0, time.Until(s.closing)) }

func (s *shop) stockKey(shelf int) string  { return fmt.Sprintf("%s:stock:%d", s.tag, shelf) }
func (s *shop) ordersKey(shelf int) string { return fmt.Sprintf("%s:orders:%d", s.tag, shelf) }

// lockName is the name of the shelf's lock, for the strategies that take one.
func (s *shop) lockName(shelf int) string { return fmt.Sprintf("%s:lock:%d", s.tag, shelf) }

// filledWith says how many goods the shelf had in the beginning.
func (s *shop) filledWith(shelf int) int {
	n := s.Stock / s.shelves
	if shelf < s.Stock%s.shelves {
		n++
	}
	return n
}

// check is a rule that a sale asks: does the user have an order already?
type check func(ctx context.Context, shelf, user int) (bool, error)

// sell is one sale: read the stock, check, think, write the stock back, record
// the order. Between any two of these lines others may do the same, unless the
// caller sees to it that they do not.
func (s *shop) sell(ctx context.Context, shelf int, c click, hasOrder check) (outcome, error) {
	stock, err := s.readStock(ctx, shelf)
	if err != nil {
		return 0, err
	}
	if s.repair {
		if stock, err = s.reconcile(ctx, shelf, stock); err != nil {
			return 0, err
		}
	}
	if already, err := hasOrder(ctx, shelf, c.user); err != nil || already {
		return ordered, err
	}
	if stock <= 0 {
		return soldOut, nil
	}
	s.think(c)
	if err := s.writeStock(ctx, shelf, stock-1); err != nil {
		return 0, err
	}
	if s.halfway != nil {
		s.halfway(shelf)
	}
	return bought, s.recordOrder(ctx, shelf, c.user)
}

func (s *shop) readStock(ctx context.Context, shelf int) (int, error) {
	stock, err := s.redis.Do(ctx, s.redis.B().Get().Key(s.stockKey(shelf)).Build()).AsInt64()
	if err != nil {
		return 0, fmt.Errorf("read the stock: %w", err)
	}
	return int(stock), nil
}

func (s *shop) writeStock(ctx context.Context, shelf, stock int) error {
	return s.redis.Do(ctx, s.redis.B().Set().Key(s.stockKey(shelf)).Value(strconv.Itoa(stock)).Build()).Error()
}

// hasOrder looks the user up among the shelf's orders.
func (s *shop) hasOrder(ctx context.Context, shelf, user int) (bool, error) {
	return s.redis.Do(ctx, s.redis.B().Hexists().Key(s.ordersKey(shelf)).Field(strconv.Itoa(user)).Build()).AsBool()
}

// recordOrder counts orders instead of setting a flag, so that a second order
// of one user shows.
func (s *shop) recordOrder(ctx context.Context, shelf, user int) error {
	return s.redis.Do(ctx, s.redis.B().Hincrby().Key(s.ordersKey(shelf)).Field(strconv.Itoa(user)).Increment(1).Build()).Error()
}

func (s *shop) countOrders(ctx context.Context, shelf int) (int, error) {
	n, err := s.redis.Do(ctx, s.redis.B().Hlen().Key(s.ordersKey(shelf)).Build()).AsInt64()
	return int(n), err
}

// reconcile puts right what a process that died in the middle of a sale has
// left. The lock keeps others out until the lease ends; it can't finish the
// dead one's work. So the application needs a rule, and this is the shop's:
// the order is the truth, it is written last, and the stock follows from it.
// Whoever comes next, alone with the shelf, sees a stock that does not fit the
// orders and corrects it: the sale never happened, its buyer may come again.
func (s *shop) reconcile(ctx context.Context, shelf, stock int) (int, error) {
	orders, err := s.countOrders(ctx, shelf)
	if err != nil {
		return 0, fmt.Errorf("count the orders: %w", err)
	}
	right := s.filledWith(shelf) - orders
	if stock == right {
		return stock, nil
	}
	s.repaired.Add(1)
	return right, s.writeStock(ctx, shelf, right)
}
