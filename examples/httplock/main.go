// Httplock is a net/http middleware: one request per key at a time, across all replicas of the service.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/httplock
//	curl -X POST localhost:8080/orders/42/ship & curl -X POST localhost:8080/orders/42/ship   # the second: 409
package main

import (
	"cmp"
	"errors"
	"log"
	"log/slog"
	"net/http"
	"os"
	"time"

	"github.com/redlatch/redlatch"
)

func main() {
	client, err := redlatch.Open(cmp.Or(os.Getenv("REDIS_URL"), "redis://127.0.0.1:6379"), redlatch.WithPrefix("shop:"))
	if err != nil {
		log.Fatal(err)
	}
	ship := func(_ http.ResponseWriter, r *http.Request) {
		select {
		case <-time.After(3 * time.Second):
		case <-r.Context().Done(): // the client went away, or the lock is lost: pass it on to what does the work
		}
	}
	server := &http.Server{Addr: "localhost:8080", Handler: routes(client, ship), ReadHeaderTimeout: 5 * time.Second}
	log.Fatal(server.ListenAndServe())
}

// routes is the service: its handlers know nothing of locks.
func routes(client *redlatch.Client, ship http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	byOrder := func(r *http.Request) string { return "orders:" + r.PathValue("id") }
	mux.Handle("POST /orders/{id}/ship", onePerKey(client, byOrder, 2*time.Second, ship))
	return mux
}

// onePerKey lets one request per key through at a time. The others wait for at
// most wait and get 409; where Redis does not answer they get 503.
func onePerKey(client *redlatch.Client, key func(*http.Request) string, wait time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const watchdog = 0
		hold, err := client.RLock(key(r)).TryLock(r.Context(), wait, watchdog)
		switch {
		case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrReplicaAcks), errors.Is(err, redlatch.ErrClosed):
			w.Header().Set("Retry-After", "1")
			http.Error(w, "try again later", http.StatusServiceUnavailable)
		case errors.Is(err, redlatch.ErrNotAcquired):
			http.Error(w, "another request works on it", http.StatusConflict)
		case err != nil: // a name that can't be a lock, a missing permission
			slog.ErrorContext(r.Context(), "lock", "error", err)
			http.Error(w, "internal error", http.StatusInternalServerError)
		default:
			defer func() { // also when next panics
				// The answer may be on its way already, so all that is left is to tell.
				// ErrLeaseLost means that another request may have run at the same time.
				if err := hold.Unlock(r.Context()); err != nil {
					slog.ErrorContext(r.Context(), "unlock", "key", hold.Name(), "error", err)
				}
			}()
			next.ServeHTTP(w, r.WithContext(hold.Context()))
		}
	})
}
