// Fencing refuses the write of a holder whose process stood still for longer than its lease, and which does not
// know yet that its lock is gone. docs/SAFETY.md has the same for PostgreSQL.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/fencing
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

// write compares and writes in one step: value ARGV[2] with token ARGV[1] to the hash KEYS[1], unless that has seen a
// larger token. It returns 1 if it has written, else 0. A token has up to 16 digits, which Lua's numbers hold exactly.
var write = rueidis.NewLuaScript(`
if tonumber(ARGV[1]) < tonumber(redis.call('HGET', KEYS[1], 'fence') or '0') then return 0 end
redis.call('HSET', KEYS[1], 'value', ARGV[2], 'fence', ARGV[1])
redis.call('EXPIRE', KEYS[1], 60) -- this is an example's; yours stays
return 1`)

func main() {
	if err := run(context.Background(), cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")); err != nil {
		log.Fatal(err)
	}
}

func run(ctx context.Context, url string) error {
	redis, err := rueidis.NewClient(rueidis.MustParseURL(url))
	if err != nil {
		return err
	}
	defer redis.Close()
	client, err := redlatch.Open(url, redlatch.WithPrefix("example:lock:"), redlatch.WithFenceTTL(time.Minute), redlatch.MustConnect())
	if err != nil {
		return err
	}
	defer client.Close()
	lock := client.RLock("account", redlatch.Fenced()) // without Fenced, DoFenced refuses it

	// save works for a moment and then writes, with the token of its hold: larger than all before it.
	save := func(who string, work func(context.Context) error, opts ...redlatch.AcquireOption) (written int64, err error) {
		err = redlatch.DoFenced(ctx, lock, func(section context.Context, token uint64) error {
			failed := work(section)
			written, err = write.Exec(ctx, redis, []string{"example:account"}, []string{strconv.FormatUint(token, 10), who}).AsInt64()
			fmt.Printf("%-6s token %d, written: %t\n", who, token, written == 1)
			return errors.Join(failed, err)
		}, opts...)
		return written, err
	}
	// The first holder stands still until its lease is over. The second one comes and writes; then the first awakes.
	late, err := save("first", func(section context.Context) error {
		<-section.Done() // a process that stands still would not see this
		_, err := save("second", func(context.Context) error { return nil })
		return err
	}, redlatch.WithLease(200*time.Millisecond))
	if late != 0 || !errors.Is(err, redlatch.ErrLeaseLost) {
		return fmt.Errorf("the first holder overwrote the second's work, or was not told: %w", err)
	}
	return nil
}
