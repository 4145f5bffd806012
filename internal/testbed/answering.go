package testbed

import (
	"context"
	"crypto/tls"
	"net"

	"github.com/redis/rueidis"
)

// Answering is a client whose server, which exists for the time of the test, has this answer to
// every command, in the protocol's own words (RESP2): for what real servers say too rarely.
func Answering(tb TB, answer string) rueidis.Client {
	tb.Helper()
	client, err := rueidis.NewClient(rueidis.ClientOption{
		InitAddress: []string{"answering"}, ForceSingleClient: true, DisableRetry: true, DisableCache: true,
		AlwaysRESP2: true, ClientSetInfo: rueidis.DisableClientSetInfo,
		DialCtxFn: func(context.Context, string, *net.Dialer, *tls.Config) (net.Conn, error) {
			near, far := net.Pipe()
			go func() { // ends with the client's end of the connection
				for commands := newFrameReader(far); ; {
					if _, err := commands.next(); err != nil {
						return
					}
					if _, err := far.Write([]byte(answer)); err != nil {
						return
					}
				}
			}()
			return near, nil
		},
	})
	if err != nil {
		tb.Fatalf("testbed: a client that is answered %q: %v", answer, err)
	}
	tb.Cleanup(client.Close)
	return client
}
