// Fencing protects data from a holder that does not know yet that its lock is
// gone: its process stood still for longer than the lease, and then continues to
// write.
//
//	go run ./examples/fencing
//
// No lock with a lease can prevent that by itself. But each acquisition of a
// fenced lock gets a token, larger than all before it, and the data store can
// refuse writes with a token smaller than the largest it has seen. Here the data
// is in Redis, and a script compares and writes in one step. In PostgreSQL one
// statement does the same; if it changes no row, the write came too late:
//
//	UPDATE account SET balance = $1, fence = $2 WHERE id = $3 AND fence <= $2
//
// with a column fence bigint NOT NULL DEFAULT 0.
package main

import (
	"context"
	"errors"
	"fmt"
	"log"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/demoserver"
)

// write stores a value unless it comes from the past. A token has up to 16
// digits, which Lua's numbers still hold exactly.
//
//	KEYS[1]  hash with the fields value and fence
//	ARGV[1]  the writer's token
//	ARGV[2]  the value
//	returns  1 when written, 0 when refused
var write = rueidis.NewLuaScript(`
local seen = tonumber(redis.call('HGET', KEYS[1], 'fence') or '0')
if tonumber(ARGV[1]) < seen then
    return 0
end
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'fence', ARGV[1])
return 1`)

func main() {
	if err := run(context.Background()); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context) (err error) {
	server, err := demoserver.Start(ctx, "fencing", demoserver.Auto)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Println("Redis:", server.About)

	redis, err := server.Client()
	if err != nil {
		return err
	}
	defer redis.Close()
	account := server.Tag + ":account"
	defer func() { err = errors.Join(err, redis.Do(ctx, redis.B().Del().Key(account).Build()).Error()) }()

	client, err := redlatch.Open(server.URL, redlatch.WithFenceTTL(time.Minute))
	if err != nil {
		return err
	}
	defer client.Close()
	lock := client.RLock(server.Tag+":account:lock", redlatch.Fenced())

	// The first holder's process stands still; here it just waits for the end of
	// its lease. A real one would not get to see that its context has ended.
	slow, err := lock.Lock(ctx, redlatch.WithLease(200*time.Millisecond))
	if err != nil {
		return err
	}
	<-slow.Context().Done()
	fmt.Println("first holder: stood still;", context.Cause(slow.Context()))

	next, err := lock.Lock(ctx)
	if err != nil {
		return err
	}
	if err := store(ctx, redis, account, next, "second"); err != nil {
		return err
	}
	fmt.Println("second holder: wrote with token", next.Token())

	err = store(ctx, redis, account, slow, "first")
	if !errors.Is(err, errStale) {
		return fmt.Errorf("the first holder overwrote the second's work: %w", err)
	}
	fmt.Println("first holder: awake again, with token", slow.Token(), "-", err)

	if err := slow.Unlock(ctx); !errors.Is(err, redlatch.ErrLeaseLost) {
		return fmt.Errorf("the first holder unlocks: %w; want ErrLeaseLost", err)
	}
	return next.Unlock(ctx)
}

var errStale = errors.New("refused: a later holder has written")

// store writes with the token of a hold.
func store(ctx context.Context, redis rueidis.Client, key string, hold redlatch.Hold, value string) error {
	written, err := write.Exec(ctx, redis, []string{key},
		[]string{strconv.FormatUint(hold.Token(), 10), value}).AsInt64()
	if err == nil && written == 0 {
		return errStale
	}
	return err
}
