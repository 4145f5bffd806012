package redlatch

import "github.com/redlatch/redlatch/internal/conn"

// Open is New for a URL: redis://[user:password@]host:port[/db], rediss:// for
// TLS, unix:// for a socket. valkey:// and valkeys:// are the same as redis:// and
// rediss://. The host, or the socket's path, must be there; the port is 6379 by default.
//
// Parameters: addr (host:port of further servers, may be repeated), db, dial_timeout and
// write_timeout (durations such as 500ms), client_name, master_set (Sentinel),
// protocol (2 or 3), max_retries=0, client_cache=0 and, for TLS, skip_verify. Any
// other parameter is an [ErrInvalidOption], which says of known ones what to use instead:
// silently ignoring a limit would be worse than an error. The error never contains the
// URL or a value of it. Open blocks as New does; its other errors are those of New,
// with one exception.
//
// A single server (one address, no Sentinel) that can't be reached, or can't answer now, is no
// error: a program must start while one of a [QuorumLock]'s servers is down. The Client connects as
// soon as it can. Until then TryLock returns ErrUnavailable at the end of its wait, and Lock waits
// for the server, as in any outage. With [MustConnect] it is an error. If the server, once it answers,
// turns out to be too old or a node of a cluster, every call returns a [ServerError] that says so: give
// a cluster several addresses.
func Open(url string, opts ...ConfigOption) (*Client, error) {
	opt, err := conn.ParseURL(url)
	if err != nil {
		return nil, err
	}
	cfg := Config{Redis: opt, late: true}
	for _, o := range opts {
		if o != nil {
			o(&cfg)
		}
	}
	return New(cfg)
}
