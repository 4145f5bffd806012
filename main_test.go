package redlatch_test

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// redisURL is the private server of the examples.
var redisURL string

func TestMain(m *testing.M) { os.Exit(run(m)) }

func run(m *testing.M) int {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	server, err := testbed.Start(ctx)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		if err := server.Stop(); err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
	}()
	redisURL = "redis://" + server.Addr()
	return m.Run()
}

// open is redlatch.Open on the examples' server.
func open() *redlatch.Client {
	client, err := redlatch.Open(redisURL)
	if err != nil {
		panic(err)
	}
	return client
}
