package main

import (
	"context"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"
)

// With coupons a sale touches three things that others touch too, each of them
// with the same read, check and write as the stock:
//
//	the shelf    any of them: a buyer's second click goes to another one
//	the user     {tag}:customers, hash: user → shelf of the order
//	the coupon   {tag}:coupons, hash: coupon → uses left; several users share one
//
// {tag}:granted counts the discounts that were given per coupon, so that the
// audit can tell whether a coupon was used too often.

// couponUses is how often one coupon is good.
const couponUses = 3

// coupon returns the coupon that the user has; about four users share one.
func (s *shop) coupon(user int) int { return user % (s.Buyers/4 + 1) }

func (s *shop) customersKey() string { return s.tag + ":customers" }
func (s *shop) couponsKey() string   { return s.tag + ":coupons" }
func (s *shop) grantedKey() string   { return s.tag + ":granted" }

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
	return bought, s.useCoupon(ctx, strconv.Itoa(s.coupon(c.user)))
}

// useCoupon gives a discount if the coupon is still good.
func (s *shop) useCoupon(ctx context.Context, coupon string) error {
	left, err := s.redis.Do(ctx, s.redis.B().Hget().Key(s.couponsKey()).Field(coupon).Build()).AsInt64()
	if rueidis.IsRedisNil(err) {
		left, err = couponUses, nil
	}
	if err != nil || left == 0 {
		return err
	}
	if err := s.redis.Do(ctx, s.redis.B().Hset().Key(s.couponsKey()).FieldValue().FieldValue(coupon, strconv.FormatInt(left-1, 10)).Build()).Error(); err != nil {
		return err
	}
	return s.redis.Do(ctx, s.redis.B().Hincrby().Key(s.grantedKey()).Field(coupon).Increment(1).Build()).Error()
}

// auditCoupons returns what is wrong with the coupons; nothing, where a sale
// had none.
func (s *shop) auditCoupons(ctx context.Context) ([]string, error) {
	granted, err := s.redis.Do(ctx, s.redis.B().Hgetall().Key(s.grantedKey()).Build()).AsIntMap()
	if err != nil {
		return nil, fmt.Errorf("audit the coupons: %w", err)
	}
	left, err := s.redis.Do(ctx, s.redis.B().Hgetall().Key(s.couponsKey()).Build()).AsIntMap()
	if err != nil {
		return nil, fmt.Errorf("audit the coupons: %w", err)
	}
	wrong := 0
	for coupon, n := range granted {
		if n+left[coupon] != couponUses {
			wrong++
		}
	}
	if wrong == 0 {
		return nil, nil
	}
	return []string{fmt.Sprintf("%s coupons wrong", thousands(wrong))}, nil
}
