package main

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/redis/rueidis"
)

// optimistic does without a lock: WATCH stock and orders, decide, and write in
// a transaction that fails when somebody else was faster. It is exact, and
// what it costs under contention are the attempts in vain.
type optimistic struct{ shop *shop }

func newOptimistic(w *worker) (strategy, error) { return optimistic{w.shop}, nil }

func (o optimistic) serve(ctx context.Context, c click, book *notebook) (result outcome, err error) {
	clicked := time.Now()
	// WATCH belongs to a connection, so a sale needs one for itself.
	err = o.shop.redis.Dedicated(func(conn rueidis.DedicatedClient) error {
		for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
			started := time.Now()
			done, err := o.attempt(ctx, conn, c, &result)
			if err != nil {
				return err
			}
			if done {
				// What was waited for is the attempt that counts.
				book.entered(0, clicked)
				book.entries[len(book.entries)-1].Wait = started.Sub(clicked)
				return nil
			}
			book.conflicts++
			if o.shop.patience() == 0 {
				result = turnedAway
				return nil
			}
			time.Sleep(rand.N(pause))
		}
	})
	return result, err
}

// attempt reports whether it was not in vain.
func (o optimistic) attempt(ctx context.Context, conn rueidis.DedicatedClient, c click, result *outcome) (bool, error) {
	stockKey, ordersKey, user := o.shop.stockKey(0), o.shop.ordersKey(0), strconv.Itoa(c.user)

	read := conn.DoMulti(ctx,
		conn.B().Watch().Key(stockKey, ordersKey).Build(),
		conn.B().Get().Key(stockKey).Build(),
		conn.B().Hexists().Key(ordersKey).Field(user).Build())
	if err := read[0].Error(); err != nil {
		return false, fmt.Errorf("watch: %w", err)
	}
	stock, err := read[1].AsInt64()
	if err != nil {
		return false, fmt.Errorf("read the stock: %w", err)
	}
	already, err := read[2].AsBool()
	if err != nil {
		return false, fmt.Errorf("look for the order: %w", err)
	}
	if already || stock <= 0 {
		*result = soldOut
		if already {
			*result = ordered
		}
		return true, conn.Do(ctx, conn.B().Unwatch().Build()).Error()
	}

	o.shop.think(c)
	if o.shop.halfway != nil {
		o.shop.halfway(0) // who dies here has written nothing
	}
	written := conn.DoMulti(ctx,
		conn.B().Multi().Build(),
		conn.B().Set().Key(stockKey).Value(strconv.FormatInt(stock-1, 10)).Build(),
		conn.B().Hincrby().Key(ordersKey).Field(user).Increment(1).Build(),
		conn.B().Exec().Build())
	exec := written[len(written)-1].Error()
	if rueidis.IsRedisNil(exec) {
		return false, nil // somebody else was faster
	}
	*result = bought
	return exec == nil, exec
}
