package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

// TestOncePerKey: ten requests with one key reach three replicas at once. The work fails once and is then done once; all
// whose request succeeds get the same answer. Another key has an answer of its own.
func TestOncePerKey(t *testing.T) {
	addr := testbed.Standalone(t).Addr()
	var calls atomic.Int64
	work := func(context.Context) (string, error) {
		n := calls.Add(1)
		if n == 1 {
			return "", errors.New("boom")
		}
		return fmt.Sprint("answer ", n), nil
	}
	var replicas []*once
	for range 3 {
		replicas = append(replicas, &once{replica.Data(t, addr), replica.Locks(t, addr), work})
	}
	post := func(to int, key string) (int, string) {
		w := httptest.NewRecorder()
		r := httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/payments", http.NoBody)
		r.Header.Set("Idempotency-Key", key)
		replicas[to%3].ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	var failed atomic.Int64
	var requests sync.WaitGroup
	for i := range 10 {
		requests.Go(func() {
			switch status, answer := post(i, "7f3a"); {
			case status == http.StatusServiceUnavailable:
				failed.Add(1)
			case status != http.StatusOK || answer != "answer 2":
				t.Errorf("got %d %q", status, answer)
			}
		})
	}
	requests.Wait()
	if calls.Load() != 2 || failed.Load() != 1 {
		t.Errorf("the work was called %d times, %d requests failed", calls.Load(), failed.Load())
	}
	if status, answer := post(0, "another"); status != http.StatusOK || answer != "answer 3" {
		t.Errorf("another key got %d %q", status, answer)
	}
	if status, _ := post(0, ""); status != http.StatusBadRequest {
		t.Errorf("no key got %d", status)
	}
}
