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
	ConnectLogin      ConnectReason = "login"      // user name or password wrong or missing
	ConnectPermission ConnectReason = "permission" // the user may not run a command that connecting needs
	ConnectTLS        ConnectReason = "tls"        // one side speaks TLS and the other does not, or a certificate is refused
	ConnectVersion    ConnectReason = "version"    // the server is too old
	ConnectTopology   ConnectReason = "topology"   // the servers are not what the options say
	ConnectRefused    ConnectReason = "refused"    // the server refuses for another reason, given in Advice or Err
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
		var answer *ServerError
		if errors.As(err, &answer) {
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
