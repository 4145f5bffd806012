// Package demoserver finds a Redis for the examples, so that each runs on a
// machine where nothing was set up: the server of REDIS_URL, else a private
// redis-server or valkey-server from PATH, else one embedded in the process.
package demoserver

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/redlatchtest"
)

// What [Start] accepts beside a URL.
const (
	// Auto takes REDIS_URL if it is set, then Private, then Embedded.
	Auto = ""
	// Private starts a redis-server or valkey-server from PATH.
	Private = "private"
	// Embedded runs miniredis inside this process.
	Embedded = "embedded"
)

// Server is a running Redis.
type Server struct {
	// URL is what redlatch.Open and rueidis.ParseURL take.
	URL string
	// About says in words which server this is, without any password.
	About string
	// Tag is a random hash tag, "{flashsale-3f9a01c7}". An example begins the
	// names of its keys and locks with it: on a server that others use too, no
	// two runs meet, and on a cluster all keys of one run share a slot.
	Tag string
	// Foreign says that the server is somebody else's: Stop leaves it and what is in it.
	Foreign bool
	// Embedded says that the server is miniredis: slow, and part of this process.
	Embedded bool

	stop func() error
}

// Start finds or starts a server. name is the example's name, for Tag; choice
// is Auto, Private, Embedded or the URL of a server. ctx bounds the start
// only; the caller ends the server with Stop.
func Start(ctx context.Context, name, choice string) (*Server, error) {
	s, err := start(ctx, choice)
	if err != nil {
		return nil, err
	}
	s.Tag = fmt.Sprintf("{%s-%s}", name, strings.ToLower(rand.Text()[:8]))
	return s, nil
}

func start(ctx context.Context, choice string) (*Server, error) {
	switch choice {
	case Auto:
		if url := os.Getenv("REDIS_URL"); url != "" {
			return foreign(url)
		}
		s, err := private(ctx)
		if errors.Is(err, testbed.ErrNoServer) {
			return embedded(), nil
		}
		return s, err
	case Private:
		return private(ctx)
	case Embedded:
		return embedded(), nil
	default:
		return foreign(choice)
	}
}

// foreign is a server that belongs to somebody else: nothing of it is ended,
// and the example removes its own keys.
func foreign(url string) (*Server, error) {
	option, err := rueidis.ParseURL(url)
	if err != nil {
		return nil, fmt.Errorf("the URL of Redis: %w", err)
	}
	return &Server{
		URL:     url,
		About:   "the server at " + strings.Join(option.InitAddress, ", "),
		Foreign: true,
		stop:    func() error { return nil },
	}, nil
}

func private(ctx context.Context) (*Server, error) {
	server, err := testbed.Start(ctx)
	if err != nil {
		return nil, err
	}
	return &Server{
		URL:   "redis://" + server.Addr(),
		About: "a private server from PATH at " + server.Addr(),
		stop:  server.Stop,
	}, nil
}

// embedded listens on a loopback port, so that the example's other processes
// reach it too.
func embedded() *Server {
	run := &program{}
	url := redlatchtest.NewServer(run).URL()
	return &Server{
		URL: url,
		About: "an embedded miniredis at " + strings.TrimPrefix(url, "redis://") +
			" (a redis-server or valkey-server on PATH, or REDIS_URL, would be faster)",
		Embedded: true,
		stop:     func() error { run.Close(); return nil },
	}
}

// program is what redlatchtest, which embeds miniredis, takes for a test.
type program struct{ testbed.Program }

// Context implements redlatchtest.TB.
func (*program) Context() context.Context { return context.Background() }

// Client connects to the server, for the example's own data.
func (s *Server) Client() (rueidis.Client, error) {
	option := rueidis.MustParseURL(s.URL) // Start has parsed it, or made it
	option.DisableCache = true            // miniredis and small ACLs know no client tracking
	return rueidis.NewClient(option)
}

// Stop ends the server, if Start has started it.
func (s *Server) Stop() error { return s.stop() }
