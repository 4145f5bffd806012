package main

import (
	"cmp"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/conn"
	scan "github.com/redlatch/redlatch/internal/inspect"
)

// connection is how the server is found: by flags, else by the environment.
type connection struct {
	set     *pflag.FlagSet
	warn    io.Writer
	urls    []string // of the deployments; one may be several, with spaces between them
	timeout time.Duration
	verbose bool

	// options are those of the connection to each deployment, for the SDK or a client of our own. A file that a flag
	// names may be a pipe: it is read once.
	options func() ([]rueidis.ClientOption, error)
}

func (c *connection) add(set *pflag.FlagSet) {
	c.set, c.options = set, sync.OnceValues(c.resolve)
	set.StringArrayVarP(&c.urls, "url", "u", nil, "`URL` of the server; for ls also several [REDIS_URL] (default redis://127.0.0.1:6379)")
	set.String("url-file", "", "file with the URL, for one with a password: arguments show in the list of processes [REDLATCH_URL_FILE]")
	set.String("prefix", "", "prefix of all locks' keys, as in the SDK's Config.Prefix [REDLATCH_PREFIX]")
	set.String("client-name", "", "name in CLIENT LIST and logs [REDLATCH_CLIENT_NAME] (default redlatch-<command>/<user>@<host>/<pid>)")
	set.String("username", "", "Redis user, instead of the one in the URL [REDLATCH_USERNAME]")
	set.String("password-file", "", "file with the password, instead of the one in the URL [REDLATCH_PASSWORD_FILE]")
	set.String("tls-ca", "", "certificates to trust for TLS, PEM [REDLATCH_TLS_CA]")
	set.String("tls-cert", "", "own certificate for TLS, PEM [REDLATCH_TLS_CERT]")
	set.String("tls-key", "", "key of the own certificate, PEM [REDLATCH_TLS_KEY]")
	set.String("tls-server-name", "", "name that the server's certificate must have [REDLATCH_TLS_SERVER_NAME]")
	set.DurationVar(&c.timeout, "timeout", 5*time.Second, "how long to wait for an answer of the server [REDLATCH_TIMEOUT]")
	set.BoolVarP(&c.verbose, "verbose", "v", false, "write the SDK's log to standard error")
}

// get is the value of a flag that is a text.
func (c *connection) get(flag string) string { return c.set.Lookup(flag).Value.String() }

// file reads the file that a flag names, if it names one.
func (c *connection) file(flag string) (text string, given bool, err error) {
	path := c.get(flag)
	if path == "" {
		return "", false, nil
	}
	b, err := os.ReadFile(path) // #nosec G304 -- the user's choice
	if err != nil {
		err = usageError("%s: %v", flag, err)
	}
	return string(b), true, err
}

// resolve fills in what no flag has set, and reads the files.
func (c *connection) resolve() (opts []rueidis.ClientOption, err error) {
	c.set.VisitAll(func(f *pflag.Flag) {
		variable := "REDLATCH_" + strings.ToUpper(strings.ReplaceAll(f.Name, "-", "_"))
		if f.Name == "url" {
			variable = "REDIS_URL"
		}
		if value := os.Getenv(variable); value != "" && !f.Changed && f.Name != "verbose" && err == nil {
			if wrong := f.Value.Set(value); wrong != nil {
				err = usageError("%s: %s: %v", variable, f.Name, wrong)
			}
		}
	})
	if text, given, wrong := c.file("url-file"); given && !c.set.Changed("url") {
		c.urls, err = []string{text}, cmp.Or(err, wrong)
	}
	if err != nil {
		return nil, err
	}
	password, given, err := c.file("password-file")
	authorities, trusted, wrong := c.file("tls-ca")
	for _, address := range slices.Compact(strings.Fields(cmp.Or(strings.TrimSpace(strings.Join(c.urls, " ")), "redis://127.0.0.1:6379"))) {
		opt, bad := conn.ParseURL(address) // as redlatch.Open does
		if err = cmp.Or(bad, err, wrong); err != nil {
			return nil, err
		}
		if opt.Password != "" && c.set.Changed("url") {
			fmt.Fprintln(c.warn, "redlatch: the password in --url shows in the list of processes: use REDIS_URL, or --url-file")
		}
		opt.Username = cmp.Or(c.get("username"), opt.Username)
		if given {
			opt.Password = strings.TrimRight(password, "\r\n")
		}
		if err = c.tls(opt.TLSConfig, authorities, trusted); err != nil {
			return nil, err
		}
		opts = append(opts, opt)
	}
	return opts, nil
}

func (c *connection) tls(cfg *tls.Config, authorities string, trusted bool) (err error) {
	cert, key, name := c.get("tls-cert"), c.get("tls-key"), c.get("tls-server-name")
	switch {
	case cfg == nil && (trusted || cert+key+name != ""):
		return usageError("tls: the URL must begin with rediss:// or valkeys:// for TLS")
	case cfg == nil:
		return nil
	case trusted:
		cfg.RootCAs = x509.NewCertPool()
		if !cfg.RootCAs.AppendCertsFromPEM([]byte(authorities)) {
			return usageError("tls-ca: the file has no certificate")
		}
	}
	cfg.ServerName = cmp.Or(name, cfg.ServerName)
	if cert+key != "" {
		cfg.Certificates = make([]tls.Certificate, 1)
		if cfg.Certificates[0], err = tls.LoadX509KeyPair(cert, key); err != nil {
			return usageError("tls-cert: %v", err)
		}
	}
	return nil
}

// only are the options of the one deployment that a command needs.
func (c *connection) only() (opt rueidis.ClientOption, err error) {
	opts, err := c.options()
	if err == nil && len(opts) > 1 {
		err = usageError("url: one; only ls looks at several deployments")
	}
	if err != nil {
		return opt, err
	}
	return opts[0], nil
}

// deployment names the one of some options for people: hosts, without user and password.
func deployment(opt rueidis.ClientOption) string {
	text := strings.Join(opt.InitAddress, ",")
	if opt.Sentinel.MasterSet != "" {
		text = opt.Sentinel.MasterSet + " of " + text
	}
	if opt.SelectDB != 0 {
		text += "/" + strconv.Itoa(opt.SelectDB)
	}
	return text
}

// name is the connection's name in CLIENT LIST.
func (c *connection) name(command string) string {
	if name := c.get("client-name"); name != "" {
		return name
	}
	clean := regexp.MustCompile(`[^!-~]`).ReplaceAllString("redlatch-"+command+"/"+operator(), "-")
	pid := "/" + strconv.Itoa(os.Getpid())
	return clean[:min(len(clean), 128-len(pid))] + pid
}

// connect connects as the SDK does, for commands of our own.
func (a *app) connect(command string) (*conn.Conn, error) {
	opt, err := a.flags.only()
	if err != nil {
		return nil, err
	}
	opt.ClientName, opt.Dialer.Timeout = a.flags.name(command), a.flags.timeout
	return conn.Open(opt, redlatch.DefaultLeaseTime, nil, false)
}

// clean takes passwords out of what a server said.
func (c *connection) clean(said string) string {
	opts, _ := c.options() // with an error no server was asked
	for _, opt := range opts {
		said = conn.Cleaned(opt, said)
	}
	return said
}

// open connects with the SDK.
func (a *app) open(command string, change ...func(*redlatch.Config)) (*redlatch.Client, error) {
	opt, err := a.flags.only()
	if err != nil {
		return nil, err
	}
	log := slog.DiscardHandler
	if a.flags.verbose {
		log = slog.NewTextHandler(a.std.err, nil)
	}
	cfg := redlatch.Config{
		Redis: opt, Prefix: a.flags.get("prefix"), Name: a.flags.name(command), UnlockTimeout: a.flags.timeout, Logger: slog.New(log),
	}
	for _, f := range change {
		f(&cfg)
	}
	return redlatch.New(cfg)
}

// complete finds names of locks that begin with a text, for a shell: it must not wait long.
func (a *app) complete(cmd *cobra.Command, args []string, begun string) (names []cobra.Completion, _ cobra.ShellCompDirective) {
	raw, err := given("name", begun)
	if len(args) > 0 || err != nil {
		return nil, cobra.ShellCompDirectiveDefault
	}
	a.flags.timeout = time.Second
	_ = a.with("complete", func(client *redlatch.Client) error {
		ctx, cancel := context.WithTimeout(scan.WithPace(cmd.Context(), newPace()), time.Second)
		defer cancel()
		for in, err := range client.Locks(ctx, globEscape.Replace(raw)+"*") {
			if err != nil || len(names) == 100 {
				return err
			}
			names = append(names, exact(in.Name))
		}
		return nil
	})
	return names, cobra.ShellCompDirectiveNoFileComp
}

// globEscape makes a text mean itself in a pattern.
var globEscape = strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`, `]`, `\]`)

// each runs what a command does with a client of each deployment, of all at the same time. Its error names those that
// failed, if there are several.
func (a *app) each(command string, do func(client *redlatch.Client, at string) error) error {
	opts, err := a.flags.options()
	errs := make([]error, len(opts))
	var all sync.WaitGroup
	for i, opt := range opts {
		all.Go(func() {
			at, there := deployment(opt), *a
			there.flags.options = func() ([]rueidis.ClientOption, error) { return opts[i : i+1], nil }
			errs[i] = there.with(command, func(client *redlatch.Client) error { return do(client, at) })
			if errs[i] != nil && len(opts) > 1 {
				errs[i] = &statusError{fmt.Errorf("%s: %s", at, message(errs[i])), status(errs[i])}
			}
		})
	}
	all.Wait()
	return errors.Join(append(errs, err)...)
}

// with runs what a command does with a client.
func (a *app) with(command string, do func(*redlatch.Client) error) error {
	client, err := a.open(command)
	if err != nil {
		return err
	}
	defer client.Close()
	return do(client)
}
