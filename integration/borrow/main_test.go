// Package borrow tests redlatch.NewWithClient: locks through a rueidis client that
// belongs to the application, made with whatever options it likes.
package borrow

import (
	"context"
	"log/slog"
	"testing"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/integration/bed"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestMain(m *testing.M) { bed.Main(m) }

// app is the application's own client, with the client library's defaults.
func app(t *testing.T, addr string, change ...func(*rueidis.ClientOption)) (rueidis.Client, rueidis.ClientOption) {
	t.Helper()
	opt := rueidis.ClientOption{InitAddress: []string{addr}}
	for _, f := range change {
		f(&opt)
	}
	c, err := rueidis.NewClient(opt)
	testbed.Must(t, err)
	t.Cleanup(c.Close)
	return c, opt
}

func with(t *testing.T, client rueidis.Client, change ...func(*redlatch.Config)) *redlatch.Client {
	t.Helper()
	cfg := redlatch.Config{Logger: slog.New(slog.DiscardHandler)}
	for _, f := range change {
		f(&cfg)
	}
	c, err := redlatch.NewWithClient(client, cfg)
	testbed.Must(t, err)
	t.Cleanup(c.Close)
	return c
}

func works(t *testing.T, client rueidis.Client) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), bed.Patience)
	defer cancel()
	bed.Want(t, client.Do(ctx, client.B().Ping().Build()).Error(), nil)
}
