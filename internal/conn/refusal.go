package conn

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/lock"
)

// node names the server that an error of connecting is about. With several addresses
// that are dialled at the same time nobody knows which it was.
func (o *dialler) node(opt rueidis.ClientOption) string {
	if addr, _ := o.last(); addr != "" && (len(opt.InitAddress) == 1 || opt.Sentinel.MasterSet != "") {
		return addr
	}
	return strings.Join(opt.InitAddress, ",")
}

// unavailable is the error for a server that can't be reached or can't answer now.
func (o *dialler) unavailable(opt rueidis.ClientOption, err error) error {
	return &lock.UnavailableError{Op: "connect", Nodes: []lock.NodeError{{Node: o.node(opt), Err: err}}}
}

// explain makes what New returns of an error of connecting. It is final if something
// must be changed before connecting can succeed: a *lock.ConnectError or
// *lock.InvalidOptionError. It may make a connection of its own to find out.
func (o *dialler) explain(opt rueidis.ClientOption, err error) (final bool, told error) {
	var re *rueidis.RedisError
	switch {
	case errors.As(err, &re):
		return o.answered(opt, re.Error(), o.known.clean(err))
	case errors.Is(err, rueidis.ErrInvalidShardsRefreshInterval):
		return true, &lock.InvalidOptionError{Option: "Redis.ClusterOption.ShardsRefreshInterval", Reason: "it is negative"}
	case errors.Is(err, rueidis.ErrInvalidTopologyRefreshInterval):
		return true, &lock.InvalidOptionError{Option: "Redis.Sentinel.TopologyRefreshInterval", Reason: "it is negative"}
	case errors.Is(err, fs.ErrPermission):
		return true, o.final(opt, lock.ConnectPermission, "this process may not open the socket: change its owner, its mode or the server's unixsocketperm", err)
	}
	if reason, advice := overTLS(err); reason != "" {
		return true, o.final(opt, reason, advice, err)
	}
	var timeout net.Error
	silent := errors.As(err, &timeout) && timeout.Timeout() // context.DeadlineExceeded is one too
	if silent && !dialFailed(err) {
		err = fmt.Errorf("connected, but there is no answer: %w", err)
	}
	if !o.own || dialFailed(err) || silent {
		return false, o.unavailable(opt, err) // no answer at all, or a way of dialling that is not ours to repeat
	}
	return o.broken(opt, err)
}

// answered deals with an answer of the server.
func (o *dialler) answered(opt rueidis.ClientOption, msg string, err error) (final bool, told error) {
	if hasAny(msg, passing...) {
		return false, o.unavailable(opt, err)
	}
	reason, advice := meaning(opt, msg)
	return true, o.final(opt, reason, advice, &lock.ServerError{Op: "connect", Err: err})
}

// broken deals with a connection that was made and then ended without an answer: it
// looks for one.
func (o *dialler) broken(opt rueidis.ClientOption, err error) (final bool, told error) {
	addr, cfg := o.last()
	d := &opt.Dialer
	ctx, cancel := context.WithTimeout(context.Background(), min(opt.Dialer.Timeout, time.Second))
	defer cancel()
	if cfg == nil {
		if answersTLS(ctx, addr, d) {
			return true, o.final(opt, lock.ConnectTLS, "the port speaks TLS: use rediss://, or set TLSConfig (for sentinels Sentinel.TLSConfig)", nil)
		}
	} else if alert := alertOf(ctx, addr, d, cfg); isAlert(alert) {
		if reason, advice := overTLS(alert); reason != "" {
			return true, o.final(opt, reason, advice, alert)
		}
	}
	if said := greeting(ctx, addr, d, cfg); said != "" {
		return o.answered(opt, said, Refusal(o.known.text(said)))
	}
	return false, o.unavailable(opt, err)
}

func (o *dialler) final(opt rueidis.ClientOption, reason lock.ConnectReason, advice string, err error) error {
	return &lock.ConnectError{Node: o.node(opt), Reason: reason, Advice: advice, Err: err}
}

// meaning says what an answer of the server to the client's first commands means.
func meaning(opt rueidis.ClientOption, msg string) (lock.ConnectReason, string) {
	code, _, _ := strings.Cut(msg, " ")
	sentinels := opt.Sentinel.MasterSet != ""
	switch {
	case code == "WRONGPASS" || msg == "invalid password":
		return lock.ConnectLogin, "user name or password is wrong, or the user is disabled: " + credentials(sentinels)
	case code == "NOAUTH":
		return lock.ConnectLogin, "the server wants a password: " + credentials(sentinels)
	case strings.HasPrefix(msg, "AUTH ") || strings.HasPrefix(msg, "Client sent AUTH"):
		return lock.ConnectLogin, "a password is configured here and none on the server: leave Password empty, or name a user"
	case code == "NOPERM":
		return lock.ConnectPermission, "the user may not run a command that connecting needs: grant what docs/ACL.md lists"
	case code == "DENIED":
		return lock.ConnectPermission, "the server accepts connections from its own machine only until it has a password (protected mode)"
	case strings.Contains(msg, "DB index") || strings.HasPrefix(msg, "SELECT is not allowed"):
		return lock.ConnectTopology, "the server has no database with this number: change SelectDB, or the number at the end of the URL"
	case sentinels && strings.HasPrefix(msg, "No such master"):
		return lock.ConnectTopology, "the sentinels know no master named " + opt.Sentinel.MasterSet + ": change Sentinel.MasterSet"
	case sentinels && unknown(msg, "sentinel"):
		return lock.ConnectTopology, "this is not a sentinel: InitAddress needs the addresses of sentinels when Sentinel.MasterSet is set"
	case strings.Contains(msg, "cluster support disabled") || unknown(msg, "cluster"):
		return lock.ConnectTopology, "several addresses were given, but the servers are not a cluster: give one address, or set " +
			"Sentinel.MasterSet (independent masters have a Client each)"
	}
	return lock.ConnectRefused, "the server refuses"
}

func credentials(sentinels bool) string {
	if sentinels {
		return "change Username and Password, for the sentinels those in Sentinel"
	}
	return "change Username and Password"
}

func unknown(msg, command string) bool {
	msg = strings.ToLower(msg)
	return strings.HasPrefix(msg, "unknown command") && strings.Contains(msg, command)
}

// overTLS says what an error of TLS means; reason is "" if it is none, or one that
// may pass.
func overTLS(err error) (reason lock.ConnectReason, advice string) {
	var (
		plain     tls.RecordHeaderError
		authority x509.UnknownAuthorityError
		host      x509.HostnameError
		invalid   x509.CertificateInvalidError
		verify    *tls.CertificateVerificationError
	)
	switch {
	case errors.Is(err, errPlain) || errors.As(err, &plain):
		return lock.ConnectTLS, "the port does not speak TLS: use redis:// or leave TLSConfig nil, or name the server's TLS port"
	case errors.As(err, &authority):
		return lock.ConnectTLS, "the server's certificate is signed by no authority that is trusted here: put its CA into TLSConfig.RootCAs"
	case errors.As(err, &host):
		return lock.ConnectTLS, "the server's certificate is not for this name: connect by one of its names, or set TLSConfig.ServerName"
	case errors.As(err, &invalid) && invalid.Reason == x509.Expired:
		return lock.ConnectTLS, "the server's certificate is out of date, or this machine's clock is wrong"
	case errors.As(err, &verify):
		return lock.ConnectTLS, "the server's certificate is not accepted"
	case isAlert(err):
		return alert(err.Error())
	}
	return "", ""
}

// alert says what a TLS alert of the server means.
func alert(msg string) (lock.ConnectReason, string) {
	switch {
	case strings.Contains(msg, "protocol version") || strings.Contains(msg, "insufficient security"):
		return lock.ConnectTLS, "the server accepts none of the TLS versions and ciphers offered: change TLSConfig.MinVersion and MaxVersion"
	case strings.Contains(msg, "certificate") || strings.Contains(msg, "handshake failure"):
		return lock.ConnectTLS, "the server wants a client certificate of its own CA: set TLSConfig.Certificates"
	case strings.Contains(msg, "internal error"):
		return "", "" // of the moment
	}
	return lock.ConnectTLS, "the server refuses the TLS handshake"
}
