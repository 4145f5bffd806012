// Workers goes through a list of keys with a pool of goroutines, in any number
// of processes: one worker processes each key, and a worker that finds a key
// taken goes on to the next one.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/workers & go run ./examples/workers
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"sync"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

func main() {
	url := cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")
	redis, err := rueidis.NewClient(rueidis.MustParseURL(url))
	if err != nil {
		log.Fatal(err)
	}
	locks, err := redlatch.Open(url, redlatch.WithPrefix("reindex:lock:"))
	if err != nil {
		log.Fatal(err)
	}
	var keys []string
	for i := range 50 {
		keys = append(keys, fmt.Sprintf("tenant-%02d", i))
	}
	p := &pool{redis: redis, locks: locks, run: time.Now().Format(time.DateOnly), work: func(_ context.Context, key string) error {
		time.Sleep(100 * time.Millisecond)
		fmt.Println("done", key)
		return nil
	}}
	err = p.all(context.Background(), keys, 8)
	locks.Close()
	redis.Close()
	if err != nil {
		log.Fatal(err)
	}
}

type pool struct {
	redis rueidis.Client
	locks *redlatch.Client
	run   string // names this round of work; a key is done once in it
	work  func(ctx context.Context, key string) error
}

// all works on keys with n goroutines. It returns when each is done, or in the
// hands of another process, or has failed.
func (p *pool) all(ctx context.Context, keys []string, n int) error {
	// Processes that begin at the same end would meet at every key.
	todo := make(chan string)
	go func() { // ends with the last key, or with ctx
		defer close(todo)
		for _, i := range rand.Perm(len(keys)) {
			select {
			case todo <- keys[i]:
			case <-ctx.Done():
				return
			}
		}
	}()
	var mu sync.Mutex
	var failed []error // guarded by mu
	var workers sync.WaitGroup
	for range n {
		workers.Go(func() {
			for key := range todo {
				if err := p.one(ctx, key); err != nil {
					mu.Lock()
					failed = append(failed, fmt.Errorf("%s: %w", key, err))
					mu.Unlock()
				}
			}
		})
	}
	workers.Wait()
	return errors.Join(append(failed, ctx.Err())...)
}

// one works on a key unless somebody else does, or has.
func (p *pool) one(ctx context.Context, key string) (err error) {
	const oneAttempt, watchdog = 0, 0
	hold, err := p.locks.RLock(key).TryLock(ctx, oneAttempt, watchdog)
	switch {
	case errors.Is(err, redlatch.ErrUnavailable):
		return err
	case errors.Is(err, redlatch.ErrNotAcquired):
		return ctx.Err() // nil: it is in other hands
	case err != nil:
		return err
	}
	defer func() { err = errors.Join(err, hold.Unlock(ctx)) }()

	// A free lock says that nobody works on the key now, not that nobody has: what is
	// done is noted, and the note is looked at under the lock.
	ctx = hold.Context()
	done := "reindex:done:" + p.run
	already, err := p.redis.Do(ctx, p.redis.B().Sismember().Key(done).Member(key).Build()).AsBool()
	if err != nil || already {
		return err
	}
	if err := p.work(ctx, key); err != nil {
		return err
	}
	for _, r := range p.redis.DoMulti(ctx,
		p.redis.B().Sadd().Key(done).Member(key).Build(),
		p.redis.B().Expire().Key(done).Seconds(int64((48 * time.Hour).Seconds())).Build()) {
		err = errors.Join(err, r.Error())
	}
	return err
}
