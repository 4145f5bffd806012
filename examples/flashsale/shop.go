package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// shop is the application: stock and orders in Redis, and a sale that is
// deliberately not atomic. It knows nothing of locks.
//
// The goods lie on one or more shelves. A shelf is a stock and the orders that
// were served from it, and whoever changes one must be alone with it:
//
//	{tag}:stock            hash: shelf → how many are left
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
	repair bool

	// halfway is called in the middle of a sale: the stock is written, the order
	// is not. A worker that is to be killed dies there.
	halfway func(shelf int)

	mu      sync.Mutex
	repairs []repair // guarded by mu
}

// repair is a half-done sale put right.
type repair struct {
	Shelf int
	At    time.Time
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

func (s *shop) stockKey() string           { return s.tag + ":stock" }
func (s *shop) customersKey() string       { return s.tag + ":customers" }
func (s *shop) ordersKey(shelf int) string { return fmt.Sprintf("%s:orders:%d", s.tag, shelf) }

// filledWith says how many goods the shelf had in the beginning.
func (s *shop) filledWith(shelf int) int { return (s.Stock + s.shelves - 1 - shelf) / s.shelves }

// open fills the shelves.
func (s *shop) open(ctx context.Context) error {
	var err error
	for shelf := range s.shelves {
		err = errors.Join(err, s.write(ctx, s.stockKey(), shelf, s.filledWith(shelf)))
	}
	return err
}

// close removes the shop's keys.
func (s *shop) close(ctx context.Context) error {
	keys := []string{s.stockKey(), s.customersKey()}
	for shelf := range s.shelves {
		keys = append(keys, s.ordersKey(shelf))
	}
	return s.redis.Do(ctx, s.redis.B().Del().Key(keys...).Build()).Error()
}

// check is a rule that a sale asks: does the user have an order already?
type check func(ctx context.Context, shelf, user int) (bool, error)

// sell is one sale: read the stock, check, think, write the stock back, record
// the order. Between any two of these lines others may do the same, unless the
// caller sees to it that they do not.
func (s *shop) sell(ctx context.Context, shelf int, c click, hasOrder check) (outcome, error) {
	stock, err := s.read(ctx, s.stockKey(), shelf, 0)
	if err == nil && s.repair {
		stock, err = s.reconcile(ctx, shelf, stock)
	}
	if err != nil {
		return 0, err
	}
	if already, err := hasOrder(ctx, shelf, c.user); err != nil || already {
		return ordered, err
	}
	if stock <= 0 {
		return soldOut, nil
	}
	s.think(c)
	if err := s.write(ctx, s.stockKey(), shelf, stock-1); err != nil {
		return 0, err
	}
	s.halfway(shelf)
	return bought, s.recordOrder(ctx, shelf, c.user)
}

// read returns a number in a hash, or what stands for one that is missing.
func (s *shop) read(ctx context.Context, key string, field, missing int) (int, error) {
	n, err := s.redis.Do(ctx, s.redis.B().Hget().Key(key).Field(strconv.Itoa(field)).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		return missing, nil
	}
	return int(n), err
}

func (s *shop) write(ctx context.Context, key string, field, n int) error {
	return s.redis.Do(ctx, s.redis.B().Hset().Key(key).FieldValue().FieldValue(strconv.Itoa(field), strconv.Itoa(n)).Build()).Error()
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

// misfit says by how many the shelf's stock is larger than its orders leave.
func (s *shop) misfit(ctx context.Context, shelf, stock int) (int, error) {
	orders, err := s.redis.Do(ctx, s.redis.B().Hlen().Key(s.ordersKey(shelf)).Build()).AsInt64()
	return stock + int(orders) - s.filledWith(shelf), err
}

// reconcile puts right what a process that died in the middle of a sale has
// left. The lock keeps others out until the lease ends; it can't finish the
// dead one's work. So the application needs a rule, and this is the shop's:
// the order is the truth, it is written last, and the stock follows from it.
// Whoever comes next, alone with the shelf, sees a stock that does not fit the
// orders and corrects it: the sale never happened, its buyer may come again.
func (s *shop) reconcile(ctx context.Context, shelf, stock int) (int, error) {
	off, err := s.misfit(ctx, shelf, stock)
	if err != nil || off == 0 {
		return stock, err
	}
	s.mu.Lock()
	s.repairs = append(s.repairs, repair{shelf, time.Now()})
	s.mu.Unlock()
	return stock - off, s.write(ctx, s.stockKey(), shelf, stock-off)
}

// audit reads the books of a shop in which nobody works any more.
func (s *shop) audit(ctx context.Context, r *row) error {
	perUser := map[string]int64{}
	for shelf := range s.shelves {
		left, noStock := s.read(ctx, s.stockKey(), shelf, 0)
		orders, noOrders := s.redis.Do(ctx, s.redis.B().Hgetall().Key(s.ordersKey(shelf)).Build()).AsIntMap()
		if err := errors.Join(noStock, noOrders); err != nil {
			return err
		}
		r.left += left
		for user, n := range orders {
			r.sold += int(n)
			perUser[user] += n
		}
	}
	for _, n := range perUser {
		if n > 1 {
			r.twice++
		}
	}
	return nil
}

// sellAnywhere sells to a user who may have an order at another shelf. It needs the
// shelf and the user for itself. A third key says at which shelf the order would be:
//
//	{tag}:customers        hash: user → shelf
//
// It is written first, and counts for nothing while there is no order: the shelf may be
// empty, or who serves the user die.
func (s *shop) sellAnywhere(ctx context.Context, shelf int, c click) (outcome, error) {
	return s.sell(ctx, shelf, c, func(ctx context.Context, shelf, user int) (bool, error) {
		at, err := s.read(ctx, s.customersKey(), user, shelf)
		if err != nil {
			return false, err
		}
		if already, err := s.hasOrder(ctx, at, user); err != nil || already {
			return already, err
		}
		return false, s.write(ctx, s.customersKey(), user, shelf)
	})
}
