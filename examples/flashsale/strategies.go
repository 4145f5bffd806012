package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/redis/rueidis"
)

// strategy is a way to protect a sale.
type strategy struct {
	name    string
	exact   bool // it promises that stock and orders stay exact
	shelves int
	make    func(*worker) (seller, error)
}

// seller serves one click in the shop. It is called by many goroutines at once; the
// notes belong to the calling one.
type seller func(ctx context.Context, c click, notes *result) (outcome, error)

// strategies in the order in which the demo runs them.
var strategies = []strategy{
	{name: "none", shelves: 1, make: none},
	{name: "setnx", shelves: 1, make: setNX},
	{name: "optimistic", exact: true, shelves: 1, make: optimistic},
	{name: "rlock", exact: true, shelves: 1, make: rLock},
	{name: "rlock-segmented", exact: true, shelves: 10, make: rLock},
	{name: "fair", exact: true, shelves: 1, make: fairLock},
	{name: "rw", exact: true, shelves: 1, make: readWriteLock},
	{name: "multilock", exact: true, shelves: 10, make: multiLock},
}

// find returns the named strategies; "all" means all of them, or with kill all
// that promise to stay exact.
func find(names string, kill bool) ([]strategy, error) {
	var found []strategy
	known, asked := "all", strings.Split(names, ",")
	for _, s := range strategies {
		known += ", " + s.name
		if slices.Contains(asked, s.name) || names == "all" && (s.exact || !kill) {
			found = append(found, s)
		}
	}
	if names != "all" && len(found) != len(asked) {
		return nil, fmt.Errorf("-strategy %s: there are %s", names, known)
	}
	return found, nil
}

// none sells without any protection. It must go wrong: a demo in which nothing
// can fail would show nothing.
func none(w *worker) (seller, error) {
	return func(ctx context.Context, c click, notes *result) (outcome, error) {
		notes.waited(0)
		return w.sell(ctx, 0, c, w.hasOrder)
	}, nil
}

// setNX is the lock that everybody writes first: SET with NX and an expiry to take it,
// DEL to give it back. The expiry is longer than an ordinary sale and shorter than a
// slow one: when that one outlives it, the next enters beside it; and when the slow one
// ends, its DEL removes the lock of whoever holds it by then, which lets in one more,
// and so on.
func setNX(w *worker) (seller, error) {
	const lease = 15 * time.Millisecond
	key, redis := w.tag+":setnx", w.redis
	var last atomic.Int64
	return func(ctx context.Context, c click, notes *result) (outcome, error) {
		clicked, token := time.Now(), fmt.Sprintf("%d-%d", w.job.Process, last.Add(1))
		for { // again and again, until the shop closes
			err := redis.Do(ctx, redis.B().Set().Key(key).Value(token).Nx().PxMilliseconds(lease.Milliseconds()).Build()).Error()
			if err == nil {
				break
			}
			if !rueidis.IsRedisNil(err) {
				return 0, err
			}
			if w.patience() == 0 {
				return turnedAway, nil
			}
			time.Sleep(2*time.Millisecond + rand.N(16*time.Millisecond))
		}
		notes.waited(time.Since(clicked))
		result, err := w.sell(ctx, 0, c, w.hasOrder)
		if err != nil {
			return 0, err
		}
		// The blind DEL. GETDEL does the same and says what it has deleted, so that
		// the demo can count how often that was the lock of another.
		deleted, err := redis.Do(ctx, redis.B().Getdel().Key(key).Build()).ToString()
		if rueidis.IsRedisNil(err) {
			return result, nil // the lease had ended, and nobody held the lock
		}
		if err == nil && deleted != token {
			notes.Stolen++
		}
		return result, err
	}, nil
}

// optimistic does without a lock: WATCH stock and orders, decide, and write in
// a transaction that fails when somebody else was faster. It is exact, and
// what it costs under contention are the attempts in vain.
func optimistic(w *worker) (seller, error) {
	return func(ctx context.Context, c click, notes *result) (got outcome, err error) {
		clicked := time.Now()
		// WATCH belongs to a connection, so a sale needs one for itself.
		err = w.redis.Dedicated(func(conn rueidis.DedicatedClient) error {
			for pause := time.Millisecond; ; pause = min(2*pause, 32*time.Millisecond) {
				waited := time.Since(clicked) // for the attempt that counts
				var done bool
				if got, done, err = w.attempt(ctx, conn, c); err != nil || done {
					notes.waited(waited)
					return err
				}
				notes.Conflicts++
				if w.patience() == 0 {
					got = turnedAway
					return nil
				}
				time.Sleep(rand.N(pause))
			}
		})
		return got, err
	}, nil
}

// attempt reports whether it was not in vain.
func (w *worker) attempt(ctx context.Context, conn rueidis.DedicatedClient, c click) (_ outcome, done bool, err error) {
	stockKey, ordersKey, user := w.stockKey(), w.ordersKey(0), strconv.Itoa(c.user)
	read := conn.DoMulti(ctx,
		conn.B().Watch().Key(stockKey, ordersKey).Build(),
		conn.B().Hget().Key(stockKey).Field("0").Build(),
		conn.B().Hexists().Key(ordersKey).Field(user).Build())
	stock, noStock := read[1].AsInt64()
	already, noOrder := read[2].AsBool()
	if err := errors.Join(read[0].Error(), noStock, noOrder); err != nil {
		return 0, false, err
	}
	if already || stock <= 0 { // to this buyer it is the same: there is one shelf
		return soldOut, true, conn.Do(ctx, conn.B().Unwatch().Build()).Error()
	}
	w.think(c)
	w.halfway(0) // who dies here has written nothing
	written := conn.DoMulti(ctx,
		conn.B().Multi().Build(),
		conn.B().Hset().Key(stockKey).FieldValue().FieldValue("0", strconv.FormatInt(stock-1, 10)).Build(),
		conn.B().Hincrby().Key(ordersKey).Field(user).Increment(1).Build(),
		conn.B().Exec().Build())
	err = written[len(written)-1].Error()
	if rueidis.IsRedisNil(err) {
		return 0, false, nil // somebody else was faster
	}
	return bought, err == nil, err
}
