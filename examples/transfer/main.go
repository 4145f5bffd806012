// Transfer moves money between two accounts while no other request may touch them. A MultiLock takes both locks or
// none, so two transfers in opposite directions can't deadlock.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/transfer
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

func main() {
	url := cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")
	redis, err := rueidis.NewClient(rueidis.MustParseURL(url))
	locks, err2 := redlatch.Open(url)
	if err := errors.Join(err, err2); err != nil {
		log.Fatal(err)
	}
	ctx, b := context.Background(), &bank{redis: redis, locks: locks}
	err = b.put(ctx, map[string]int64{"alice": 100, "bob": 0})
	fmt.Println(err, b.transfer(ctx, "alice", "bob", 30), b.transfer(ctx, "alice", "bob", 71)) // the last is too much
}

var errFunds = errors.New("not enough money")

type bank struct {
	redis rueidis.Client
	locks *redlatch.Client
}

// key is where an account's balance is. The braces put all accounts of a bank into one slot of a Redis Cluster, and
// their locks, too, so that one command takes both.
func key(account string) string { return "{bank}:account:" + account }

// transfer reads, checks and writes both balances while nobody else can.
func (b *bank) transfer(ctx context.Context, from, to string, amount int64) error {
	if from == to || amount <= 0 {
		return errors.New("bad transfer")
	}
	lock := redlatch.MultiLock(b.locks.RLock("{bank}:lock:"+from), b.locks.RLock("{bank}:lock:"+to)) // in any order
	return lock.Do(ctx, func(ctx context.Context) error {
		source, err1 := b.get(ctx, from)
		target, err2 := b.get(ctx, to)
		if err := errors.Join(err1, err2); err != nil {
			return err
		} else if source < amount {
			return fmt.Errorf("%w: %s has %d", errFunds, from, source)
		}
		return b.put(ctx, map[string]int64{from: source - amount, to: target + amount})
	})
}

func (b *bank) get(ctx context.Context, account string) (int64, error) {
	return b.redis.Do(ctx, b.redis.B().Get().Key(key(account)).Build()).AsInt64()
}

// put writes all in one command: a lock does not undo what a process that dies between two commands has written.
func (b *bank) put(ctx context.Context, balances map[string]int64) error {
	command := b.redis.B().Mset().KeyValue()
	for account, balance := range balances {
		command = command.KeyValue(key(account), strconv.FormatInt(balance, 10))
	}
	return b.redis.Do(ctx, command.Build()).Error()
}
