package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"os/signal"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/redlatch/redlatch"
	scan "github.com/redlatch/redlatch/internal/inspect"
	"github.com/redlatch/redlatch/internal/quote"
)

//go:embed assets
var assets embed.FS

// serveFlags are the flags of serve.
type serveFlags struct {
	listen      string
	allowUnlock bool
	tokenFile   string
	noToken     bool
	userHeader  string
	interval    time.Duration
	pattern     string
}

func (a *app) serveCommand() *cobra.Command {
	var f serveFlags
	c := &cobra.Command{
		Use:   "serve",
		Short: "Serve a live web page of the locks",
		Long: `serve shows the locks on a live web page: the list, and one lock in detail, with a timeline of its holders. The page
is read-only, unless --allow-unlock is given: then it can evict a holder, one at a time, by its whole owner.

It listens on the loopback address. On any other address, and with --allow-unlock, it asks for a token: that of
--token-file or REDLATCH_SERVE_TOKEN, else one that it makes and prints. All users of a machine reach its loopback
address: --no-token says that they may unlock. It speaks HTTP: put a TLS proxy in front of it if the network is not
trusted. A proxy that logs people in sends the token itself (Authorization: Bearer TOKEN), and their names in the
header --user-header: whoever has the token can write any name. With --no-token an eviction without it is refused.

While no page is open, serve sends no commands to Redis. Without a token, /healthz answers while the program lives,
and /readyz asks Redis: 503 if there is no answer within two seconds. Each eviction is logged, as a line of JSON.`,
		Example: `  redlatch serve
  redlatch serve --listen 0.0.0.0:8379 --token-file /etc/redlatch/token --allow-unlock
  redlatch serve --allow-unlock --pattern 'orders:*'`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.serve(cmd.Context(), f) },
	}
	c.Flags().StringVar(&f.listen, "listen", "127.0.0.1:8379", "address and port")
	c.Flags().BoolVar(&f.allowUnlock, "allow-unlock", false, "let the page take locks away from their holders")
	a.fullSpeed(c)
	c.Flags().Bool("read-only", false, "only look (the default)")
	c.MarkFlagsMutuallyExclusive("read-only", "allow-unlock")
	c.Flags().StringVar(&f.tokenFile, "token-file", "", "file with the token that clients must send")
	c.Flags().BoolVar(&f.noToken, "no-token", false, "ask for no token, though --allow-unlock is given; on a loopback address only")
	c.Flags().StringVar(&f.userHeader, "user-header", "", "header with the user's name, such as X-Forwarded-User, which a proxy sets")
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
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGINT, syscall.SIGTERM)
	log := slog.New(slog.NewJSONHandler(a.std.err, nil)) // quotes all texts
	h := newHub(client, f.pattern, f.interval, log)
	opt, _ := a.flags.only() // there is one
	s := &site{hub: h, server: deployment(opt), allowUnlock: f.allowUnlock, token: token, userHeader: f.userHeader, local: isLoopback(host), log: log}
	srv := &http.Server{
		Handler:           s.handler(),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      answerTime,
		MaxHeaderBytes:    16 << 10,
		ErrorLog:          slog.NewLogLogger(log.Handler(), slog.LevelWarn),
		// Events end with the program.
		BaseContext: func(net.Listener) context.Context { return ctx },
	}
	url := address(ln.Addr())
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

// address is where a browser of this machine finds the page.
func address(at net.Addr) string {
	host, port, _ := net.SplitHostPort(at.String())
	if ip, _ := netip.ParseAddr(host); ip.IsUnspecified() {
		host = "localhost"
	}
	return "http://" + net.JoinHostPort(host, port) + "/"
}

// isLoopback reports whether only this machine reaches an address.
func isLoopback(host string) bool {
	ip, _ := netip.ParseAddr(host)
	return host == "localhost" || ip.IsLoopback()
}

// answerTime is how long the other side may take to read an answer, or an event.
const answerTime = 10 * time.Second

// site answers requests. There is no cookie: a browser would send it along with requests that other pages make, and to
// other ports of the host.
type site struct {
	hub         *hub
	server      string // for people
	allowUnlock bool
	token       string // "": nobody is asked
	userHeader  string // which names the user, "" = none
	local       bool   // it listens on the loopback address
	log         *slog.Logger
}

// allowed reports whether a request may be answered.
func (s *site) allowed(r *http.Request) bool {
	return s.token == "" || subtle.ConstantTimeCompare([]byte(r.Header.Get("Authorization")), []byte("Bearer "+s.token)) == 1
}

// rebound reports whether a request to the loopback address came by another name: a page of
// a stranger whose name leads here.
func (s *site) rebound(r *http.Request) bool {
	return s.local && s.token == "" && !isLoopback((&url.URL{Host: r.Host}).Hostname())
}

// foreign reports whether a browser says that another site's page made the request. By hand ("none") an address is
// typed; a form is not.
func foreign(r *http.Request) bool {
	from := r.Header.Get("Sec-Fetch-Site")
	return from != "" && from != "same-origin" && (from != "none" || r.Method != http.MethodGet)
}

// handler answers the page to everybody: it contains no lock. It asks for the token at /api.
func (s *site) handler() http.Handler {
	files, _ := fs.Sub(assets, "assets") // the name is one
	inside := http.NewServeMux()
	inside.Handle("GET /", http.FileServerFS(files))
	inside.HandleFunc("GET /api/settings", s.settings)
	inside.HandleFunc("GET /api/events", s.events)
	inside.HandleFunc("GET /api/history", s.history)
	inside.HandleFunc("POST /api/unlock", s.unlock)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"manifest-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Cross-Origin-Resource-Policy", "same-origin")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		api := strings.HasPrefix(r.URL.Path, "/api/")
		switch {
		case r.URL.Path == "/healthz", r.URL.Path == "/readyz" && s.hub.answers():
			fmt.Fprintln(w, "ok")
		case r.URL.Path == "/readyz":
			http.Error(w, "the server does not answer", http.StatusServiceUnavailable)
		case s.rebound(r):
			http.Error(w, "this address is asked by the name of another host", http.StatusForbidden)
		case api && foreign(r):
			http.Error(w, "only this page, or a program, may ask", http.StatusForbidden)
		case api && !s.allowed(r):
			h.Set("WWW-Authenticate", `Bearer realm="redlatch"`)
			http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		default:
			inside.ServeHTTP(w, r)
		}
	})
}

// codes are the HTTP statuses of exit statuses that errors mean; those of others are 500.
var codes = map[int]int{
	exitUsage: http.StatusBadRequest, exitOtherOwner: http.StatusConflict, exitUnavailable: http.StatusBadGateway,
	exitBusy: http.StatusServiceUnavailable,
}

// answer writes one value, or an error. The other side may have gone, or read nothing until its time is over.
func answer(w http.ResponseWriter, v any, err error) {
	// The time for the question to the server is not the reader's.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	if err != nil {
		code := cmp.Or(codes[status(err)], http.StatusInternalServerError)
		if errors.Is(err, redlatch.ErrInvalidName) {
			code = http.StatusNotFound
		}
		http.Error(w, message(err), code)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

func (s *site) settings(w http.ResponseWriter, r *http.Request) {
	about := map[string]any{"server": s.server, "allow_unlock": s.allowUnlock, "interval_ms": s.hub.interval.Milliseconds()}
	if scan.PaceOf(r.Context()) != nil {
		about["share"] = budget
	}
	answer(w, about, nil)
}

// events streams what changes, until the viewer goes.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	v, err := s.hub.join(r.URL.Query().Get("lock"))
	if err != nil {
		answer(w, nil, err)
		return
	}
	defer s.hub.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies shall pass it on at once
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	alive := []byte(": still here\n\n")
	tick := time.NewTicker(15 * time.Second)
	defer tick.Stop()
	for event := alive; ; {
		_ = control.SetWriteDeadline(time.Now().Add(answerTime))
		if _, err := w.Write(event); err != nil || control.Flush() != nil {
			return
		}
		select {
		case <-r.Context().Done():
			return
		case event = <-v.news:
		case <-tick.C:
			event = alive
		}
	}
}

// history are the last evictions.
func (s *site) history(w http.ResponseWriter, r *http.Request) {
	past, err := evictions(r.Context(), s.hub.client, r.URL.Query().Get("lock"), maxParties)
	answer(w, past, err)
}

// unlock evicts one holder.
func (s *site) unlock(w http.ResponseWriter, r *http.Request) {
	if !s.allowUnlock {
		http.Error(w, "this page may only look: redlatch serve --allow-unlock", http.StatusForbidden)
		return
	}
	// Forms of other sites can't send this type.
	if r.Header.Get("Content-Type") != "application/json" {
		http.Error(w, "only this page, or a program with the token, may do this", http.StatusForbidden)
		return
	}
	user := quote.Text(r.Header.Get(s.userHeader))
	if s.token == "" && s.userHeader != "" && user == "" {
		http.Error(w, "the proxy must name the user: "+s.userHeader, http.StatusForbidden)
		return
	}
	var ask struct{ Name, Owner, Reason string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&ask); err != nil || ask.Name == "" || ask.Owner == "" {
		http.Error(w, `it takes {"name": NAME, "owner": OWNER, "reason": TEXT}`, http.StatusBadRequest)
		return
	}
	name, err := given("name", ask.Name)
	owner, wrong := given("owner", ask.Owner)
	if err := errors.Join(err, wrong); err != nil {
		answer(w, nil, err)
		return
	}
	s.hub.force(exact(name), exact(owner))
	var lost error
	was, err := s.hub.client.ForceUnlock(r.Context(), name, redlatch.IfOwner(owner), recorded(cmp.Or(r.Header.Get(s.userHeader), r.RemoteAddr), ask.Reason, &lost))
	about := []any{"user", cmp.Or(user, "?"), "from", r.RemoteAddr, "lock", quote.Text(name), "owner", quote.Text(owner), "reason", quote.Text(ask.Reason), "freed", was}
	did := map[string]any{"freed": was}
	if lost != nil {
		did["unrecorded"] = message(lost)
		about = append(about, "unrecorded", did["unrecorded"])
	}
	if err != nil {
		about = append(about, "error", message(err))
		if was { // done; only the waiters were not woken
			did["untold"], err = message(err), nil
		}
	}
	s.log.WarnContext(r.Context(), "evict", about...)
	s.hub.poke()
	answer(w, did, err)
}
