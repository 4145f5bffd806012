package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"
)

// With coupons a sale touches three things that others touch too, each of them
// with the same read, check and write as the stock:
//
//	the shelf    any of them: a buyer's second click goes to another one
//	the user     {tag}:customers, hash: user → shelf of the order
//	the coupon   {tag}:coupons, hash: coupon → the users who have used it
//
// The order of the writes is chosen for those who die between two of them: the
// entry of the customer says where the order would be, so it comes first, and
// counts for nothing while there is no order. The coupon comes last: who dies
// before has sold at the full price.

// couponUses is how often one coupon is good.
const couponUses = 3

// coupon returns the coupon that the user has; about four users share one.
func (s *shop) coupon(user int) int { return user % (s.Buyers/4 + 1) }

func (s *shop) customersKey() string { return s.tag + ":customers" }
func (s *shop) couponsKey() string   { return s.tag + ":coupons" }

// sellWithCoupon needs the shelf, the user and the user's coupon for itself.
func (s *shop) sellWithCoupon(ctx context.Context, shelf int, c click) (outcome, error) {
	user := strconv.Itoa(c.user)
	hasOrder := func(ctx context.Context, shelf, _ int) (bool, error) {
		at, err := s.redis.Do(ctx, s.redis.B().Hget().Key(s.customersKey()).Field(user).Build()).AsInt64()
		switch {
		case rueidis.IsRedisNil(err):
		case err != nil:
			return false, err
		default:
			// The entry says where the order would be. If it is not there, the
			// shelf was empty, or who served the user died.
			if already, err := s.hasOrder(ctx, int(at), c.user); err != nil || already {
				return already, err
			}
		}
		return false, s.redis.Do(ctx, s.redis.B().Hset().Key(s.customersKey()).FieldValue().FieldValue(user, strconv.Itoa(shelf)).Build()).Error()
	}
	result, err := s.sell(ctx, shelf, c, hasOrder)
	if err != nil || result != bought {
		return result, err
	}
	return bought, s.useCoupon(ctx, strconv.Itoa(s.coupon(c.user)), user)
}

// useCoupon gives the user a discount if the coupon is still good.
func (s *shop) useCoupon(ctx context.Context, coupon, user string) error {
	list, err := s.redis.Do(ctx, s.redis.B().Hget().Key(s.couponsKey()).Field(coupon).Build()).ToString()
	if err != nil && !rueidis.IsRedisNil(err) {
		return err
	}
	users := strings.Fields(list)
	if len(users) >= couponUses {
		return nil
	}
	list = strings.Join(append(users, user), " ")
	return s.redis.Do(ctx, s.redis.B().Hset().Key(s.couponsKey()).FieldValue().FieldValue(coupon, list).Build()).Error()
}

// auditCoupons returns what is wrong with the coupons, given the users who have
// orders; nothing, where a sale had no coupons.
func (s *shop) auditCoupons(ctx context.Context, orders map[string]int64) ([]string, error) {
	coupons, err := s.redis.Do(ctx, s.redis.B().Hgetall().Key(s.couponsKey()).Build()).AsStrMap()
	if err != nil || len(coupons) == 0 {
		return nil, err
	}
	buyers := map[string]int{} // by coupon
	for user := range orders {
		n, err := strconv.Atoi(user)
		if err != nil {
			return nil, fmt.Errorf("audit the coupons: %w", err)
		}
		buyers[strconv.Itoa(s.coupon(n))]++
	}
	wrong := 0
	for coupon, n := range buyers {
		users := strings.Fields(coupons[coupon])
		unique := map[string]bool{}
		for _, user := range users {
			if orders[user] > 0 {
				unique[user] = true
			}
		}
		// Every use is of a user with an order, once, and while the coupon is
		// good every order uses it, unless its process was killed before.
		want := min(n, couponUses)
		if len(unique) != len(users) || len(users) > want || len(users) < want && !s.repair {
			wrong++
		}
	}
	if wrong == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("%s coupons wrong", thousands(wrong))}, nil
}
