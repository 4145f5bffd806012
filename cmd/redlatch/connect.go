package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net"
	"net/url"
	"os"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/BurntSushi/toml"
	"github.com/redis/rueidis"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/conn"
)

// connection is how the server is found: flags, else the environment, else a file.
type connection struct {
	set      *pflag.FlagSet
	warn     io.Writer
	resolved bool

	config       string
	url          string
	urlFile      string
	prefix       string
	clientName   string
	username     string
	passwordFile string
	password     *string // what is in the file, once it was read
	caFile       string
	certFile     string
	keyFile      string
	serverName   string
	timeout      time.Duration
	verbose      bool
}

func (c *connection) add(set *pflag.FlagSet) {
	c.set = set
	set.StringVar(&c.config, "config", "", "file with defaults for these flags (TOML; keys are named like the flags) [REDLATCH_CONFIG]")
	set.StringVarP(&c.url, "url", "u", "", "URL of the server [REDIS_URL] (default redis://127.0.0.1:6379)")
	set.StringVar(&c.urlFile, "url-file", "", "file with the URL, for one with a password: arguments show in the list of processes [REDLATCH_URL_FILE]")
	set.StringVar(&c.prefix, "prefix", "", "prefix of all locks' keys, as in the SDK's Config.Prefix [REDLATCH_PREFIX]")
	set.StringVar(&c.clientName, "client-name", "", "name in CLIENT LIST and logs [REDLATCH_CLIENT_NAME] (default redlatch-<command>/<user>@<host>/<pid>)")
	set.StringVar(&c.username, "username", "", "Redis user, instead of the one in the URL [REDLATCH_USERNAME]")
	set.StringVar(&c.passwordFile, "password-file", "", "file with the password, instead of the one in the URL [REDLATCH_PASSWORD_FILE]")
	set.StringVar(&c.caFile, "tls-ca", "", "certificates to trust for TLS, PEM [REDLATCH_TLS_CA]")
	set.StringVar(&c.certFile, "tls-cert", "", "own certificate for TLS, PEM [REDLATCH_TLS_CERT]")
	set.StringVar(&c.keyFile, "tls-key", "", "key of the own certificate, PEM [REDLATCH_TLS_KEY]")
	set.StringVar(&c.serverName, "tls-server-name", "", "name that the server's certificate must have [REDLATCH_TLS_SERVER_NAME]")
	set.DurationVar(&c.timeout, "timeout", 5*time.Second, "how long to wait for an answer of the server [REDLATCH_TIMEOUT]")
	set.BoolVarP(&c.verbose, "verbose", "v", false, "write the SDK's log to standard error")
}

const defaultURL = "redis://127.0.0.1:6379"

// resolve fills in what no flag has set, from the environment and the file.
func (c *connection) resolve() error {
	if c.resolved {
		return nil
	}
	if c.config == "" {
		c.config = os.Getenv("REDLATCH_CONFIG")
	}
	values, err := c.read()
	if err != nil {
		return err
	}
	var bad error
	c.set.VisitAll(func(f *pflag.Flag) {
		if f.Changed || f.Name == "config" || bad != nil {
			return
		}
		variable := "REDLATCH_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if f.Name == "url" {
			variable = "REDIS_URL"
		}
		value, from := os.Getenv(variable), variable
		if f.Name == "verbose" {
			value = ""
		}
		if value == "" && (f.Name != "url-file" || c.url == values["url"]) { // a variable comes before the file's
			value, from = values[f.Name], c.config
		}
		if value == "" {
			return
		}
		if err := f.Value.Set(value); err != nil {
			bad = usageError(fmt.Sprintf("%s: %s: %v", from, f.Name, err))
		}
	})
	if bad == nil {
		bad = c.chooseURL()
	}
	c.resolved = bad == nil
	return bad
}

// chooseURL reads the file with the URL, unless a flag gives one. The file may be a pipe, which is read once.
func (c *connection) chooseURL() error {
	given := c.set.Changed("url")
	switch {
	case given && c.set.Changed("url-file"):
		return usageError("url and url-file exclude each other")
	case given:
		if u, err := url.Parse(c.url); err == nil && u.User != nil {
			if _, secret := u.User.Password(); secret {
				fmt.Fprintln(c.warn, "redlatch: the password in --url shows in the list of processes: use REDIS_URL, or --url-file")
			}
		}
	case c.urlFile != "":
		text, err := os.ReadFile(c.urlFile)
		if err != nil {
			return usageError("url-file: " + err.Error())
		}
		c.url = strings.TrimSpace(string(text))
	}
	if c.url == "" {
		c.url = defaultURL
	}
	return nil
}

// read reads the file. The one in the usual place may be missing.
func (c *connection) read() (map[string]string, error) {
	asked := c.config != ""
	if !asked {
		dir, err := os.UserConfigDir()
		if err != nil {
			return nil, nil //nolint:nilerr,nilnil // a user without a home has no file there
		}
		c.config = filepath.Join(dir, "redlatch", "config.toml")
	}
	text, err := os.ReadFile(c.config) // #nosec G304 -- the user's choice
	if errors.Is(err, fs.ErrNotExist) && !asked {
		return nil, nil //nolint:nilnil // no file, no values
	}
	if err != nil {
		return nil, usageError("config: " + err.Error())
	}
	raw := map[string]any{}
	if err := toml.Unmarshal(text, &raw); err != nil {
		return nil, usageError(c.config + ": " + err.Error())
	}
	values := map[string]string{}
	for name, v := range raw {
		if c.set.Lookup(name) == nil || name == "config" {
			return nil, usageError(fmt.Sprintf("%s: there is no setting %q", c.config, name))
		}
		values[name] = fmt.Sprint(v)
	}
	return values, nil
}

// options are the connection's, for the SDK or a client of our own.
func (c *connection) options() (rueidis.ClientOption, error) {
	if err := c.resolve(); err != nil {
		return rueidis.ClientOption{}, err
	}
	opt, err := conn.ParseURL(c.url) // as redlatch.Open does
	if err != nil {
		return opt, err
	}
	if strings.HasPrefix(opt.InitAddress[0], "/") {
		// The SDK dials a socket by itself; the clients of our own need to be told.
		opt.DialCtxFn = func(ctx context.Context, path string, dialer *net.Dialer, _ *tls.Config) (net.Conn, error) {
			return dialer.DialContext(ctx, "unix", path)
		}
	}
	if c.username != "" {
		opt.Username = c.username
	}
	if c.passwordFile != "" {
		if c.password == nil { // once: <(…) of a shell can't be read twice
			text, err := os.ReadFile(c.passwordFile)
			if err != nil {
				return opt, usageError("password-file: " + err.Error())
			}
			password := strings.TrimRight(string(text), "\r\n")
			c.password = &password
		}
		opt.Password = *c.password
	}
	if err := c.tls(&opt); err != nil {
		return opt, usageError(err.Error())
	}
	return opt, nil
}

// server names the deployment for people: hosts, without user and password.
func (c *connection) server() string {
	opt, err := c.options()
	if err != nil {
		return ""
	}
	text := strings.Join(opt.InitAddress, ",")
	if opt.Sentinel.MasterSet != "" {
		text = opt.Sentinel.MasterSet + " of " + text
	}
	if opt.SelectDB != 0 {
		text += "/" + strconv.Itoa(opt.SelectDB)
	}
	return text
}

func (c *connection) tls(opt *rueidis.ClientOption) error {
	if c.caFile == "" && c.certFile == "" && c.keyFile == "" && c.serverName == "" {
		return nil
	}
	cfg := opt.TLSConfig
	if cfg == nil {
		return errors.New("tls: the URL must begin with rediss:// or valkeys:// for TLS")
	}
	if c.serverName != "" {
		cfg.ServerName = c.serverName
	}
	if c.caFile != "" {
		pem, err := os.ReadFile(c.caFile)
		if err != nil {
			return fmt.Errorf("tls-ca: %w", err)
		}
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM(pem) {
			return fmt.Errorf("tls-ca: %s has no certificate", c.caFile)
		}
	}
	if c.certFile != "" || c.keyFile != "" {
		pair, err := tls.LoadX509KeyPair(c.certFile, c.keyFile)
		if err != nil {
			return fmt.Errorf("tls-cert: %w", err)
		}
		cfg.Certificates = []tls.Certificate{pair}
	}
	return nil
}

// name is the connection's name in CLIENT LIST.
func (c *connection) name(command string) string {
	if c.clientName != "" {
		return c.clientName
	}
	who := "unknown"
	if u, err := user.Current(); err == nil {
		who = u.Username
	}
	host, _ := os.Hostname()
	clean := strings.Map(func(r rune) rune {
		if r < '!' || r > '~' {
			return '-'
		}
		return r
	}, "redlatch-"+command+"/"+who+"@"+host)
	pid := "/" + strconv.Itoa(os.Getpid())
	return clean[:min(len(clean), 128-len(pid))] + pid
}

// connect connects without the SDK, and tells the addresses.
func (a *app) connect(command string) (client rueidis.Client, addr string, err error) {
	opt, err := a.flags.options()
	if err != nil {
		return nil, "", err
	}
	addr = strings.Join(opt.InitAddress, ",")
	opt.DisableCache = true
	opt.ClientName = a.flags.name(command)
	opt.Dialer.Timeout = a.flags.timeout
	if client, err = rueidis.NewClient(opt); err != nil {
		return nil, "", &statusError{exitUnavailable, fmt.Errorf("connect to %s: %w", addr, err)}
	}
	return client, addr, nil
}

// clean takes passwords out of what a server said.
func (c *connection) clean(said string) string {
	opt, err := c.options()
	if err != nil {
		return said // no server was asked
	}
	return conn.Cleaned(opt, said)
}

// open connects with the SDK.
func (a *app) open(command string, change ...func(*redlatch.Config)) (*redlatch.Client, error) {
	opt, err := a.flags.options()
	if err != nil {
		return nil, err
	}
	cfg := redlatch.Config{
		Redis:         opt,
		Prefix:        a.flags.prefix,
		Name:          a.flags.name(command),
		UnlockTimeout: a.flags.timeout,
		Logger:        a.logger(),
	}
	for _, f := range change {
		f(&cfg)
	}
	return redlatch.New(cfg)
}

func (a *app) logger() *slog.Logger {
	if !a.flags.verbose {
		return slog.New(slog.DiscardHandler)
	}
	return slog.New(slog.NewTextHandler(a.std.err, nil))
}
