// Cachefill keeps a cached catalogue fresh for many replicas: readers share a
// read lock, one replica loads the source under the write lock, and singleflight
// keeps the other goroutines of its process from queueing for it.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/cachefill
//
// A single key would need no read lock. This cache has two that belong together
// (prices and their currency), and no reader may see one without the other.
package main

import (
	"cmp"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/redis/rueidis"
	"golang.org/x/sync/singleflight"

	"github.com/redlatch/redlatch"
)

func main() {
	url := cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")
	redis, err := rueidis.NewClient(rueidis.MustParseURL(url))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := redlatch.Open(url, redlatch.WithPrefix("shop:lock:"))
	if err != nil {
		log.Fatal(err)
	}
	c := &cache{redis: redis, locks: locks, ttl: 10 * time.Second, load: func(context.Context) (prices, error) {
		fmt.Println("loading from the database")
		return prices{Currency: "EUR", Cents: 4200 + time.Now().Second()}, nil
	}}
	for range 20 {
		p, err := c.get(context.Background())
		if err != nil {
			log.Fatal(err)
		}
		fmt.Println(p.Cents, p.Currency)
		time.Sleep(time.Second)
	}
	locks.Close()
	redis.Close()
}

// prices is what is cached, in two keys.
type prices struct {
	Currency string
	Cents    int
}

type cache struct {
	redis   rueidis.Client
	locks   *redlatch.Client
	flights singleflight.Group
	ttl     time.Duration
	load    func(context.Context) (prices, error) // slow, and dear
}

// get returns the prices, loaded at most once per ttl by all replicas together.
func (c *cache) get(ctx context.Context) (prices, error) {
	p, ok, err := c.read(ctx)
	if err != nil || ok {
		return p, err
	}
	// One refresh for all who miss in this process. It belongs to all of them, so it
	// does not end when the first one's request does; each waits as long as it likes.
	flight := c.flights.DoChan("prices", func() (any, error) {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 30*time.Second)
		defer cancel()
		return c.refresh(ctx)
	})
	select {
	case r := <-flight:
		if r.Err != nil {
			return prices{}, r.Err
		}
		return r.Val.(prices), nil
	case <-ctx.Done():
		return prices{}, context.Cause(ctx)
	}
}

// read looks both keys up under the read lock: any number of readers at once.
func (c *cache) read(ctx context.Context) (p prices, ok bool, err error) {
	err = redlatch.Do(ctx, c.locks.ReadWriteLock("prices").ReadLock(), func(ctx context.Context) error {
		p, ok, err = c.lookUp(ctx)
		return err
	})
	return p, ok, err
}

// refresh loads the source, unless another replica has while this one waited.
func (c *cache) refresh(ctx context.Context) (p prices, err error) {
	err = redlatch.Do(ctx, c.locks.ReadWriteLock("prices").WriteLock(), func(ctx context.Context) error {
		var ok bool
		if p, ok, err = c.lookUp(ctx); err != nil || ok {
			return err
		}
		if p, err = c.load(ctx); err != nil {
			return err
		}
		return c.store(ctx, p)
	})
	return p, err
}

// lookUp needs the read or the write lock.
func (c *cache) lookUp(ctx context.Context) (p prices, ok bool, err error) {
	if p.Currency, err = c.redis.Do(ctx, c.redis.B().Get().Key("shop:currency").Build()).ToString(); err == nil {
		var cents int64
		cents, err = c.redis.Do(ctx, c.redis.B().Get().Key("shop:cents").Build()).AsInt64()
		p.Cents = int(cents)
	}
	if rueidis.IsRedisNil(err) {
		return prices{}, false, nil
	}
	return p, err == nil, err
}

// store needs the write lock. Both keys end at the same time.
func (c *cache) store(ctx context.Context, p prices) error {
	end := time.Now().Add(c.ttl)
	for key, value := range map[string]string{"shop:currency": p.Currency, "shop:cents": strconv.Itoa(p.Cents)} {
		if err := c.redis.Do(ctx, c.redis.B().Set().Key(key).Value(value).Pxat(end).Build()).Error(); err != nil {
			return err
		}
	}
	return nil
}
