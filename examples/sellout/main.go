// Sellout is a flash sale in short: many buyers, in any number of processes, and never more sold than there is. The
// demo (make demo) does the same with other ways to lock, and without a lock.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/sellout   # in two terminals
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"strconv"
	"sync"
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
	s := &shop{redis: redis, locks: locks}
	_ = redis.Do(context.Background(), redis.B().Set().Key("shop:stock:42").Value("100").Nx().Build()).Error()
	var buyers sync.WaitGroup
	for buyer := range 200 {
		buyers.Go(func() { fmt.Println(buyer, s.buy(context.Background(), "42", fmt.Sprint("buyer-", buyer))) })
	}
	buyers.Wait()
}

var (
	errSoldOut = errors.New("sold out")
	errBusy    = errors.New("too many buyers, try again") // HTTP: 409
)

type shop struct {
	redis rueidis.Client
	locks *redlatch.Client
}

// buy sells one piece to a user. The sale is several steps, of which some may be calls to other services: one command
// (DECR) would need no lock. A buyer waits for two seconds at most, in line with the others.
func (s *shop) buy(ctx context.Context, item, user string) error {
	const wait, watchdog = 2 * time.Second, 0
	err := s.locks.FairLock(item).TryDo(ctx, wait, watchdog, func(ctx context.Context) error {
		stock, err := s.redis.Do(ctx, s.redis.B().Get().Key("shop:stock:"+item).Build()).AsInt64()
		if err == nil && stock <= 0 {
			err = errSoldOut
		}
		if err != nil {
			return err
		}
		if err := s.redis.Do(ctx, s.redis.B().Sadd().Key("shop:buyers:"+item).Member(user).Build()).Error(); err != nil {
			return err
		}
		return s.redis.Do(ctx, s.redis.B().Set().Key("shop:stock:"+item).Value(strconv.FormatInt(stock-1, 10)).Build()).Error()
	})
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return errBusy
	}
	return err
}
