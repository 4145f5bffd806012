package main

import (
	"context"
	"crypto/rand"
	"embed"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"
)

//go:embed assets
var assets embed.FS

// serveFlags are the flags of serve.
type serveFlags struct {
	listen      string
	allowUnlock bool
	tokenFile   string
	noToken     bool
	interval    time.Duration
	pattern     string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a live web page of the locks",
		Long: `serve shows the locks on a live web page: the list, and one lock in detail, with its holders, the queue in order,
the remaining leases and a timeline of its holders. The page is read-only, unless --allow-unlock is given: then it
can evict a holder, one at a time, by its whole owner.

It listens on the loopback address. On any other address, and with --allow-unlock, it asks for a token: that of
--token-file or REDLATCH_SERVE_TOKEN, else one that it makes and prints. All users of a machine reach its loopback
address: --no-token says that they may unlock. The page keeps the token in its tab. It speaks HTTP: put a TLS proxy
in front of it if the network is not trusted. While no page is open, serve sends no commands to Redis. /healthz
answers without a token. Programs use redlatch ls and show with -o json.`,
		Example: `  redlatch serve
  redlatch serve --listen 0.0.0.0:8379 --token-file /etc/redlatch/token --allow-unlock
  redlatch serve --allow-unlock --pattern 'orders:*'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := signal.NotifyContext(cmd.Context(), syscall.SIGINT, syscall.SIGTERM)
			defer stop()
			return a.serve(ctx, f)
		},
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8379", "address and port")
	c.Flags().BoolVar(&f.allowUnlock, "allow-unlock", false, "let the page take locks away from their holders")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the token that clients must send")
	c.Flags().BoolVar(&f.noToken, "no-token", false, "ask for no token, though --allow-unlock is given; on a loopback address only")
	c.Flags().DurationVar(&f.interval, "interval", time.Second, "how often to refresh while a page is open")
	c.Flags().StringVar(&f.pattern, "pattern", "", "show only the locks whose names match this glob")
	return c
}

func (a *app) serve(ctx context.Context, f serveFlags) error {
	if f.interval < 100*time.Millisecond {
		return usageError("interval: at least 100ms")
	}
	host, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return usageError("listen: %v", err)
	}
	token, made, err := f.token(isLoopback(host))
	if err != nil {
		return err
	}
	client, err := a.open("serve")
	if err != nil {
		return err
	}
	defer client.Close()
	ln, err := (&net.ListenConfig{}).Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	h := newHub(client, f.pattern, f.interval)
	s := &site{hub: h, server: a.flags.server(), allowUnlock: f.allowUnlock, token: token, local: isLoopback(host), log: a.std.err}
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      answerTime,
		MaxHeaderBytes:    16 << 10,
		// Events end with the program.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	url := "http://" + ln.Addr().String() + "/"
	fmt.Fprintf(a.std.out, "redlatch: serving %s\n", url)
	if made {
		fmt.Fprintf(a.std.out, "redlatch: token made for this run: %s#token=%s\n", url, token)
	}
	var inside sync.WaitGroup // ends with ctx
	inside.Go(func() { h.run(ctx) })
	inside.Go(func() {
		<-ctx.Done()
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		if srv.Shutdown(limited) != nil {
			_ = srv.Close()
		}
	})
	err = srv.Serve(ln)
	stop()
	inside.Wait()
	if errors.Is(err, http.ErrServerClosed) {
		return nil
	}
	return err
}

// token is the one to ask for, "" = none, and whether it was made here.
func (f serveFlags) token(local bool) (token string, made bool, err error) {
	token = os.Getenv("REDLATCH_SERVE_TOKEN")
	if f.tokenFile != "" {
		text, err := os.ReadFile(f.tokenFile)
		if err != nil {
			return "", false, usageError("token-file: %v", err)
		}
		if token = strings.TrimSpace(string(text)); token == "" {
			return "", false, usageError("token-file: it is empty")
		}
	}
	switch {
	case f.noToken && !local:
		err = usageError("no-token: only on a loopback address")
	case f.noToken && token != "":
		err = usageError("no-token, but a token is given: by --token-file, or REDLATCH_SERVE_TOKEN")
	case token != "" && len(token) < 16:
		err = usageError("the token has fewer than 16 characters")
	case token == "" && !f.noToken && (!local || f.allowUnlock):
		return rand.Text(), true, nil
	}
	return token, false, err
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(host string) bool {
	ip, _ := netip.ParseAddr(host)
	return host == "localhost" || ip.IsLoopback()
}
