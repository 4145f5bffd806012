// Goredis is an application that uses go-redis for its data and adds locks: one
// set of options for both, two more connections to the same server.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/goredis
//
// options.go converts the options; docs/moving/go-redis.md lists the counterpart of each.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/redlatch/redlatch"
)

func main() {
	options, err := redis.ParseURL(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379/0"))
	if err != nil {
		log.Fatal(err)
	}
	if err := run(context.Background(), options, 20, 5); err != nil {
		log.Fatal(err)
	}
}

// run sells stock to buyers, one after the other.
func run(ctx context.Context, options *redis.Options, buyers, stock int) (err error) {
	data := redis.NewClient(options)
	defer func() { err = errors.Join(err, data.Close()) }()
	config, err := lockConfig(options)
	if err != nil {
		return err
	}
	config.Prefix = "lock:" // a lock's name is a key: keep it apart from the data's keys
	locks, err := redlatch.New(config)
	if err != nil {
		return err
	}
	defer locks.Close()

	if err := data.Set(ctx, "stock:42", stock, 0).Err(); err != nil {
		return err
	}
	errs := make([]error, buyers)
	var all sync.WaitGroup
	for i := range buyers {
		all.Go(func() {
			errs[i] = locks.RLock("stock:42").Do(ctx, func(ctx context.Context) error { return sell(ctx, data) })
		})
	}
	all.Wait()
	left, err := data.Get(ctx, "stock:42").Int()
	fmt.Println("left:", left)
	return errors.Join(append(errs, err)...)
}

// sell reads, checks and writes; the caller holds the lock.
func sell(ctx context.Context, data *redis.Client) error {
	left, err := data.Get(ctx, "stock:42").Int()
	if err != nil || left == 0 {
		return err
	}
	return data.Set(ctx, "stock:42", left-1, 0).Err()
}
