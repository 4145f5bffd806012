package main

import (
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/replica"
	"github.com/redlatch/redlatch/internal/testbed"
)

func post(t *testing.T, url string) int {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, nil)
	testbed.Must(t, err)
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Error(err)
		return 0
	}
	defer func() { _ = resp.Body.Close() }()
	return resp.StatusCode
}

// service is a replica of the service with a section that lasts until go is closed.
func service(t *testing.T, redis string, inside chan<- struct{}, goOn <-chan struct{}) (url string) {
	t.Helper()
	client := replica.Locks(t, redis, redlatch.WithUnlockTimeout(time.Second))
	server := httptest.NewServer(routes(client, func(http.ResponseWriter, *http.Request) {
		inside <- struct{}{}
		<-goOn
	}))
	t.Cleanup(server.Close)
	return server.URL
}

// TestStatus: one request is inside, its rival at another replica gets 409, a
// request for another key enters, and an outage is 503.
func TestStatus(t *testing.T) {
	redis := testbed.Standalone(t)
	line := testbed.NewProxy(t, redis.Addr())
	inside, goOn := make(chan struct{}, 2), make(chan struct{})
	first := service(t, redis.Addr(), inside, goOn)
	second := service(t, line.Addr(), inside, goOn)

	done := make(chan int, 2)
	go func() { done <- post(t, first+"/orders/42/ship") }()
	<-inside
	testbed.Equal(t, post(t, second+"/orders/42/ship"), http.StatusConflict, "a busy key")
	go func() { done <- post(t, second+"/orders/43/ship") }()
	<-inside // another key
	close(goOn)
	for range 2 {
		testbed.Equal(t, <-done, http.StatusOK, "a request that had the lock")
	}
	line.Refuse()
	line.Cut()
	testbed.Equal(t, post(t, second+"/orders/44/ship"), http.StatusServiceUnavailable, "while Redis is away")
	// A name that can't be a lock is the program's fault, not the user's.
	if got := post(t, first+"/orders/a}b{c/ship"); got == http.StatusConflict || got == http.StatusServiceUnavailable {
		t.Errorf("a name that can't be a lock got %d", got)
	}
}

// TestAPanicUnlocks: the handler's panic does not leave the key locked.
func TestAPanicUnlocks(t *testing.T) {
	client := replica.Locks(t, testbed.Standalone(t).Addr())
	key := func(*http.Request) string { return "k" }
	h := onePerKey(client, key, 0, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }))
	func() {
		defer func() { _ = recover() }()
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(t.Context(), http.MethodPost, "/", nil))
	}()
	hold, err := client.RLock("k").TryLock(t.Context(), 0, 0)
	if err != nil {
		t.Fatal("the panic left the key locked: ", err)
	}
	testbed.Must(t, hold.Unlock(t.Context()))
}
