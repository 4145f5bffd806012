package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// setnxLease is longer than an ordinary sale and shorter than a slow one.
const setnxLease = 15 * time.Millisecond

// setnx is the lock that everybody writes first: SET with NX and an expiry to
// take it, DEL to give it back. When a sale takes longer than the lease, the
// next one enters beside it; and when the slow one ends, its DEL removes the
// lock of whoever holds it by then, which lets in one more, and so on.
type setnx struct {
	shop *shop
	key  string
	id   string
	last *atomic.Int64
}

func newSetNX(w *worker) (strategy, error) {
	return setnx{shop: w.shop, key: w.shop.tag + ":setnx", id: strconv.Itoa(w.job.Process), last: new(atomic.Int64)}, nil
}

func (l setnx) serve(ctx context.Context, c click, book *notebook) (_ outcome, err error) {
	clicked := time.Now()
	token := fmt.Sprintf("%s-%d", l.id, l.last.Add(1))
	if ok, err := l.acquire(ctx, token); err != nil || !ok {
		return turnedAway, err
	}
	book.entered(0, clicked)
	result, err := l.shop.sell(ctx, 0, c, l.shop.hasOrder)
	if err != nil {
		return 0, err
	}
	// The blind DEL. GETDEL does the same and says what it has deleted, so that
	// the demo can count how often that was the lock of another.
	deleted, err := l.shop.redis.Do(ctx, l.shop.redis.B().Getdel().Key(l.key).Build()).ToString()
	if rueidis.IsRedisNil(err) {
		return result, nil // the lease had ended, and nobody held the lock
	}
	if err == nil && deleted != token {
		book.stolen++
	}
	return result, err
}

// acquire asks again and again, until the shop closes.
func (l setnx) acquire(ctx context.Context, token string) (bool, error) {
	for {
		err := l.shop.redis.Do(ctx, l.shop.redis.B().Set().Key(l.key).Value(token).Nx().PxMilliseconds(setnxLease.Milliseconds()).Build()).Error()
		if !rueidis.IsRedisNil(err) {
			return err == nil, err
		}
		if l.shop.patience() == 0 {
			return false, nil
		}
		time.Sleep(2*time.Millisecond + rand.N(16*time.Millisecond))
	}
}
