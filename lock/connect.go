package lock

import (
	"errors"
	"strings"

	"github.com/redlatch/redlatch/internal/quote"
)

// ConnectReason says why a connection can't be used, however often it is tried.
type ConnectReason string

// The reasons of a [ConnectError].
const (
	// ConnectLogin: user or password are wrong, missing, or not wanted.
	ConnectLogin ConnectReason = "login"
	// ConnectPermission: the user may not run a command that connecting needs; protected mode; no permission for the
	// socket.
	ConnectPermission ConnectReason = "permission"
	// ConnectTLS: TLS to a plain port, or no TLS to a TLS port; a certificate that is not trusted, is for another name, or
	// is out of date; a client certificate that is missing or refused.
	ConnectTLS ConnectReason = "tls"
	// ConnectVersion: the server is too old.
	ConnectVersion ConnectReason = "version"
	// ConnectTopology: no such database; servers instead of sentinels, or sentinels instead of servers; an unknown master;
	// several addresses that are not a cluster; a node of a cluster that is taken for a single server.
	ConnectTopology ConnectReason = "topology"
	// ConnectRefused: any other permanent refusal; the server's own words are in the message.
	ConnectRefused ConnectReason = "refused"
)

// ConnectError says that connecting failed, and that only a change of the configuration,
// of the user's permissions or of the server can help. A server that can't be reached, or
// can't answer now, is [ErrUnavailable] instead. If the server answered, errors.As also
// finds its answer, as a [ServerError].
type ConnectError struct {
	Node   string // the address, or the addresses, as far as known
	Reason ConnectReason
	Advice string // what is wrong and what to change
	Err    error  // the server's answer, or the TLS error; nil if Advice says everything
}

func (e *ConnectError) Error() string {
	var b strings.Builder
	b.WriteString("redlatch: connect to " + e.Node + ": " + e.Advice)
	if err := e.Err; err != nil {
		if answer, ok := errors.AsType[*ServerError](err); ok {
			err = answer.Err // not "redlatch: connect" twice
		}
		b.WriteString(" (" + err.Error() + ")")
	}
	return quote.Line(b.String())
}

// Unwrap leads to the cause, if there is another one.
func (e *ConnectError) Unwrap() error { return e.Err }

// ErrorType is a short, stable name for telemetry.
func (e *ConnectError) ErrorType() string { return "connect_" + string(e.Reason) }
