// Package backends starts what takes the telemetry of a program, a Prometheus or a
// Jaeger, for tests and demos.
package backends

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os/exec"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// web is a server that speaks HTTP.
type web struct {
	// URL is where it listens, without a path.
	URL string
}

// Get asks for a page. An answer other than 200 is an error.
func (w web) Get(ctx context.Context, path string, q url.Values) ([]byte, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, w.URL+path+"?"+q.Encode(), nil)
	if err != nil {
		return nil, err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, err
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = fmt.Errorf("%s: %s", resp.Status, body)
	}
	return body, err
}

// run starts the server and waits until it answers at path. tb ends it, by its own pid,
// as the end of this process does.
func (w web) run(tb testbed.TB, name, path string, cmd *exec.Cmd) error {
	process := testbed.Run(tb, name, cmd)
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	for {
		if _, err := w.Get(ctx, path, nil); err == nil {
			return nil
		}
		select {
		case <-process.Done():
			return fmt.Errorf("%s ended:\n%s", name, process.Stderr())
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after a minute", name)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func freeAddr() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	return l.Addr().String(), l.Close()
}
