// Cachefill rebuilds a cache once for all replicas: the first that finds it empty loads, the others wait and read.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/cachefill
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

func main() {
	url := cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")
	redis, err := rueidis.NewClient(rueidis.MustParseURL(url))
	locks, err2 := redlatch.Open(url, redlatch.WithPrefix("shop:lock:"))
	if err := errors.Join(err, err2); err != nil {
		log.Fatal(err)
	}
	c := &cache{redis: redis, locks: locks, ttl: 10 * time.Second, load: func(context.Context) (string, error) {
		fmt.Println("loading from the database")
		return time.Now().Format("prices of 15:04:05"), nil
	}}
	for range 20 {
		prices, err := c.get(context.Background(), "shop:prices")
		fmt.Println(prices, err)
		time.Sleep(time.Second)
	}
}

type cache struct {
	redis rueidis.Client
	locks *redlatch.Client
	ttl   time.Duration
	load  func(context.Context) (string, error) // slow, and dear
}

// get returns the value at key, loaded at most once per ttl by all replicas together, unless the load fails.
func (c *cache) get(ctx context.Context, key string) (value string, err error) {
	if value, err = c.lookUp(ctx, key); !rueidis.IsRedisNil(err) {
		return value, err
	}
	// The waiters of one process pass the lock on among themselves, so a crowd of them needs no singleflight.
	err = c.locks.RLock(key).Do(ctx, func(ctx context.Context) error {
		if value, err = c.lookUp(ctx, key); !rueidis.IsRedisNil(err) {
			return err // another one has loaded it while this one waited
		}
		if value, err = c.load(ctx); err != nil {
			return err // the next one in line tries
		}
		return c.redis.Do(ctx, c.redis.B().Set().Key(key).Value(value).Px(c.ttl).Build()).Error()
	})
	return value, err
}

func (c *cache) lookUp(ctx context.Context, key string) (string, error) {
	return c.redis.Do(ctx, c.redis.B().Get().Key(key).Build()).ToString()
}
