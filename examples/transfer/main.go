// Transfer moves money between two accounts while no other request may touch
// them. A MultiLock takes both locks or none, so two transfers in opposite
// directions can't deadlock.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/transfer
//
// The braces in the names put all accounts of a bank into one slot of a Redis
// Cluster, so that both locks are taken by one command.
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
	if err != nil {
		log.Fatal(err)
	}
	locks, err := redlatch.Open(url)
	if err != nil {
		log.Fatal(err)
	}
	ctx := context.Background()
	b := &bank{redis: redis, locks: locks}
	err = errors.Join(b.put(ctx, "alice", 100), b.put(ctx, "bob", 0), b.transfer(ctx, "alice", "bob", 30))
	if err == nil {
		fmt.Println("transferred; once more than alice has:", b.transfer(ctx, "alice", "bob", 71))
	}
	locks.Close()
	redis.Close()
	if err != nil {
		log.Fatal(err)
	}
}

var errFunds = errors.New("not enough money")

type bank struct {
	redis rueidis.Client
	locks *redlatch.Client
}

func accountKey(name string) string { return "{bank}:account:" + name }

// lock is the lock of an account. Its name is a key of its own, beside the data.
func (b *bank) lock(name string) redlatch.Member { return b.locks.RLock("{bank}:lock:" + name) }

// transfer reads, checks and writes both balances while nobody else can.
func (b *bank) transfer(ctx context.Context, from, to string, amount int) error {
	if from == to || amount <= 0 {
		return errors.New("bad transfer")
	}
	// The order of the two does not matter.
	return redlatch.Do(ctx, redlatch.MultiLock(b.lock(from), b.lock(to)), func(ctx context.Context) error {
		source, err := b.get(ctx, from)
		if err != nil {
			return err
		}
		target, err := b.get(ctx, to)
		if err != nil {
			return err
		}
		if source < amount {
			return fmt.Errorf("%w: %s has %d", errFunds, from, source)
		}
		// One command writes both balances: a lock keeps others out, it does not undo
		// what a process that dies between two commands has written.
		return b.redis.Do(ctx, b.redis.B().Mset().KeyValue().
			KeyValue(accountKey(from), strconv.Itoa(source-amount)).
			KeyValue(accountKey(to), strconv.Itoa(target+amount)).Build()).Error()
	})
}

func (b *bank) get(ctx context.Context, name string) (int, error) {
	n, err := b.redis.Do(ctx, b.redis.B().Get().Key(accountKey(name)).Build()).AsInt64()
	if err != nil {
		return 0, fmt.Errorf("balance of %s: %w", name, err)
	}
	return int(n), nil
}

func (b *bank) put(ctx context.Context, name string, balance int) error {
	return b.redis.Do(ctx, b.redis.B().Set().Key(accountKey(name)).Value(strconv.Itoa(balance)).Build()).Error()
}
