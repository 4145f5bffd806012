package main

import (
	"context"
	"fmt"
)

// audit is what the books say after the sale.
type audit struct {
	Sold  int // orders, all users together
	Left  int // what the shop believes to have in stock
	Twice int // users with more than one order

	// Problems says what is wrong, in words; empty: the books are exact.
	Problems []string
}

// open fills the shelves.
func (s *shop) open(ctx context.Context) error {
	for shelf := range s.shelves {
		if err := s.writeStock(ctx, shelf, s.filledWith(shelf)); err != nil {
			return fmt.Errorf("fill the shelves: %w", err)
		}
	}
	return nil
}

// close removes the shop's keys.
func (s *shop) close(ctx context.Context) error {
	keys := []string{s.customersKey(), s.couponsKey()}
	for shelf := range s.shelves {
		keys = append(keys, s.stockKey(shelf), s.ordersKey(shelf))
	}
	return s.redis.Do(ctx, s.redis.B().Del().Key(keys...).Build()).Error()
}

// audit reads the books of a shop in which nobody works any more.
func (s *shop) audit(ctx context.Context) (audit, error) {
	var a audit
	perUser := map[string]int64{}
	for shelf := range s.shelves {
		left, err := s.readStock(ctx, shelf)
		if err != nil {
			return a, fmt.Errorf("audit: %w", err)
		}
		orders, err := s.redis.Do(ctx, s.redis.B().Hgetall().Key(s.ordersKey(shelf)).Build()).AsIntMap()
		if err != nil {
			return a, fmt.Errorf("audit the orders: %w", err)
		}
		a.Left += left
		for user, n := range orders {
			a.Sold += int(n)
			perUser[user] += n
		}
	}
	for _, n := range perUser {
		if n > 1 {
			a.Twice++
		}
	}
	if n := a.Oversold(s.Stock); n > 0 {
		a.Problems = append(a.Problems, fmt.Sprintf("%s oversold", thousands(n)))
	}
	if off := a.Sold + a.Left - s.Stock; off != 0 {
		a.Problems = append(a.Problems, fmt.Sprintf("stock off by %s", thousands(off)))
	}
	if a.Twice > 0 {
		a.Problems = append(a.Problems, thousands(a.Twice)+" "+plural(a.Twice, "user", "users")+" ordered twice")
	}
	coupons, err := s.auditCoupons(ctx, perUser)
	a.Problems = append(a.Problems, coupons...)
	return a, err
}

// Oversold says how many more were sold than there were.
func (a audit) Oversold(stock int) int { return max(0, a.Sold-stock) }

// Exact reports whether stock and orders fit each other in every respect.
func (a audit) Exact() bool { return len(a.Problems) == 0 }
