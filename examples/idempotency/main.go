// Idempotency answers a repeated request as it has answered the first one: the client sends an Idempotency-Key, and the
// handler runs once per key, in whichever replica is asked, and however often and however soon the client repeats it.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/idempotency
//	for i in 1 2; do curl -X POST -H "Idempotency-Key: 7f3a" localhost:8080/payments; done   # the same answer twice
package main

import (
	"cmp"
	"context"
	"errors"
	"log"
	"net/http"
	"os"
	"strings"
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
	pay := func(context.Context) (string, error) { return time.Now().Format("paid at 15:04:05.000\n"), nil }
	http.Handle("POST /payments", &once{redis, locks, pay})
	log.Fatal((&http.Server{Addr: "localhost:8080", ReadHeaderTimeout: 5 * time.Second}).ListenAndServe())
}

// once is a handler that does its work once per Idempotency-Key. Answers are kept for a day.
type once struct {
	redis rueidis.Client
	locks *redlatch.Client
	work  func(ctx context.Context) (answer string, err error)
}

func (o *once) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	key := r.Header.Get("Idempotency-Key")
	if len(key) < 4 || len(key) > 64 || strings.ContainsAny(key, "{}") {
		http.Error(w, "an Idempotency-Key of 4 to 64 characters without braces is needed", http.StatusBadRequest)
		return
	}
	var answer string
	const wait, watchdog = 5 * time.Second, 0
	err := o.locks.RLock("payment:"+key).TryDo(r.Context(), wait, watchdog, func(ctx context.Context) (err error) {
		kept := o.redis.B().Get().Key("shop:answer:" + key).Build()
		if answer, err = o.redis.Do(ctx, kept).ToString(); !rueidis.IsRedisNil(err) {
			return err
		}
		// If this process dies between the work and the note, a repeated request does the work again:
		// let the work write its result and the key in one transaction where that must not happen.
		if answer, err = o.work(ctx); err != nil {
			return err // nothing is kept, so the client may try again
		}
		return o.redis.Do(ctx, o.redis.B().Set().Key("shop:answer:"+key).Value(answer).Ex(24*time.Hour).Build()).Error()
	})
	switch {
	case err == nil:
		_, _ = w.Write([]byte(answer))
	case errors.Is(err, redlatch.ErrNotAcquired): // the first request is still at it
		http.Error(w, "try again", http.StatusConflict)
	default: // also ErrLeaseLost: the work is done, but another request may have done it, too
		log.Print("payment ", key, ": ", err)
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	}
}
