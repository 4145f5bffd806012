// Workers does each job of a list once, with any number of goroutines and processes. A worker that finds a job taken
// goes on to the next one.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/workers   # in two terminals
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log"
	"math/rand/v2"
	"os"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
)

func main() {
	url := cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379")
	redis, err := rueidis.NewClient(rueidis.MustParseURL(url))
	locks, err2 := redlatch.Open(url, redlatch.WithPrefix("lock:"))
	if err := errors.Join(err, err2); err != nil {
		log.Fatal(err)
	}
	w := &worker{redis, locks, time.Now().Format("done:2006-01-02"), func(_ context.Context, job string) error {
		time.Sleep(time.Second)
		log.Print("done ", job)
		return nil
	}}
	log.Print("errors: ", w.all(context.Background(), []string{"mail:1", "mail:2", "mail:3", "mail:4", "mail:5"}))
}

// worker is safe for concurrent use: start all in as many goroutines and processes as you like.
type worker struct {
	redis rueidis.Client
	locks *redlatch.Client
	done  string // key of the set of jobs that are done in this round
	work  func(ctx context.Context, job string) error
}

// all returns when each job is done, in the hands of another worker, or has failed here.
func (w *worker) all(ctx context.Context, jobs []string) (err error) {
	for _, i := range rand.Perm(len(jobs)) { // workers that begin at the same end would meet at every job
		if failed := w.one(ctx, jobs[i]); failed != nil {
			err = errors.Join(err, fmt.Errorf("%s: %w", jobs[i], failed))
		}
	}
	return err
}

// one does a job unless somebody else does it, or has done it.
func (w *worker) one(ctx context.Context, job string) error {
	const oneAttempt, watchdog = 0, 0
	hold, err := w.locks.RLock(job).TryLock(ctx, oneAttempt, watchdog)
	if errors.Is(err, redlatch.ErrNotAcquired) {
		return ctx.Err() // nil: it is in other hands
	} else if err != nil {
		return err
	}
	// A free lock says that nobody does the job now, not that nobody has: what is done is noted, and looked up.
	noted, err := w.redis.Do(hold.Context(), w.redis.B().Sismember().Key(w.done).Member(job).Build()).AsBool()
	if err == nil && !noted {
		if err = w.work(hold.Context(), job); err == nil {
			err = w.redis.Do(hold.Context(), w.redis.B().Sadd().Key(w.done).Member(job).Build()).Error()
		}
	}
	return errors.Join(err, hold.Unlock(ctx))
}
