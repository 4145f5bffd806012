// Httplock is a net/http middleware: one request per key at a time, across all
// replicas of the service.
//
//	REDIS_URL=redis://127.0.0.1:6379 go run ./examples/httplock
//	curl -X POST localhost:8080/orders/42/ship & curl -X POST localhost:8080/orders/42/ship
//
// The second curl waits for its turn, and gets 409 if that takes longer than two seconds.
package main

import (
	"cmp"
	"errors"
	"fmt"
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
	server := &http.Server{Addr: "localhost:8080", Handler: routes(client, ship), ReadHeaderTimeout: 5 * time.Second}
	log.Print("listening on ", server.Addr)
	err = server.ListenAndServe()
	client.Close()
	log.Fatal(err)
}

// routes is the service: its handlers know nothing of locks.
func routes(client *redlatch.Client, ship http.HandlerFunc) http.Handler {
	mux := http.NewServeMux()
	byOrder := func(r *http.Request) string { return "orders:" + r.PathValue("id") }
	mux.Handle("POST /orders/{id}/ship", onePerKey(client, byOrder, 2*time.Second, ship))
	return mux
}

// ship is the critical section. Its context ends when the client goes away and
// when the lock is lost: pass it on to whatever does the work.
func ship(w http.ResponseWriter, r *http.Request) {
	select {
	case <-time.After(3 * time.Second):
		fmt.Fprintf(w, "order %s is on its way\n", r.PathValue("id"))
	case <-r.Context().Done():
		http.Error(w, "interrupted", http.StatusInternalServerError)
	}
}

// onePerKey lets one request per key through at a time. The others wait for at
// most wait and get 409; where Redis does not answer they get 503.
func onePerKey(client *redlatch.Client, key func(*http.Request) string, wait time.Duration, next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		const watchdog = 0
		hold, err := client.RLock(key(r)).TryLock(r.Context(), wait, watchdog)
		if err != nil {
			refuse(w, r, err)
			return
		}
		defer func() { // also when next panics
			// The answer may be on its way already, so all that is left is to tell.
			// ErrLeaseLost means that another request may have run at the same time.
			if err := hold.Unlock(r.Context()); err != nil {
				slog.ErrorContext(r.Context(), "unlock", "key", hold.Name(), "error", err)
			}
		}()
		next.ServeHTTP(w, r.WithContext(hold.Context()))
	})
}

// refuse answers a request that did not get the lock: an outage is no busy lock.
func refuse(w http.ResponseWriter, r *http.Request, err error) {
	switch {
	case errors.Is(err, redlatch.ErrUnavailable), errors.Is(err, redlatch.ErrClosed):
		w.Header().Set("Retry-After", "1")
		http.Error(w, "try again later", http.StatusServiceUnavailable)
	case errors.Is(err, redlatch.ErrNotAcquired):
		http.Error(w, "another request works on it", http.StatusConflict)
	default: // a name that can't be a lock, a missing permission
		slog.ErrorContext(r.Context(), "lock", "error", err)
		http.Error(w, "internal error", http.StatusInternalServerError)
	}
}
