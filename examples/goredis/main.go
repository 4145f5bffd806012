// Goredis is an application that uses go-redis for its data and adds locks: one
// set of options for both, two more connections to the same server.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/goredis
//
// docs/moving/go-redis.md lists the counterpart of each option.
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
	"github.com/redis/rueidis"

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

// lockConfig makes redlatch's configuration from go-redis' options: where the
// server is and how to log in. Options about pools and retries have no
// counterpart: redlatch has one connection for commands and one for messages, and
// retries by its own rules.
func lockConfig(o *redis.Options) (redlatch.Config, error) {
	switch {
	case o.CredentialsProviderContext != nil, o.StreamingCredentialsProvider != nil:
		return redlatch.Config{}, errors.New("write an AuthCredentialsFn for rueidis that does what your provider does")
	case o.Dialer != nil:
		return redlatch.Config{}, errors.New("write a DialCtxFn for rueidis that does what your Dialer does")
	}
	option := rueidis.ClientOption{
		InitAddress:       []string{cmp.Or(o.Addr, "localhost:6379")},
		Username:          o.Username,
		Password:          o.Password,
		SelectDB:          o.DB,
		TLSConfig:         o.TLSConfig,
		ClientName:        o.ClientName,
		AlwaysRESP2:       o.Protocol == 2,
		ForceSingleClient: true, // redis.NewClient is for one server; leave it out for Sentinel and Cluster
	}
	option.Dialer.Timeout = o.DialTimeout
	if o.CredentialsProvider != nil {
		option.AuthCredentialsFn = func(rueidis.AuthCredentialsContext) (rueidis.AuthCredentials, error) {
			user, password := o.CredentialsProvider()
			return rueidis.AuthCredentials{Username: user, Password: password}, nil
		}
	}
	if o.Network == "unix" {
		socket, err := rueidis.ParseURL("unix://" + o.Addr)
		if err != nil {
			return redlatch.Config{}, err
		}
		option.InitAddress, option.DialCtxFn = socket.InitAddress, socket.DialCtxFn
	}
	return redlatch.Config{Redis: option}, nil
}
