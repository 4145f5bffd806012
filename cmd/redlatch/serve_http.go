package main

import (
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/redlatch/redlatch"
)

// auth says who may see the page.
type auth struct {
	token string // "": nobody is asked
	local bool   // it listens on the loopback address
}

const cookie = "redlatch_token"

// value is what the cookie holds: not the token itself.
func (a auth) value() string {
	sum := sha256.Sum256([]byte("redlatch serve " + a.token))
	return hex.EncodeToString(sum[:])
}

func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }

// allowed reports whether a request may be answered.
func (a auth) allowed(r *http.Request) bool {
	if a.token == "" {
		return true
	}
	if given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer "); ok {
		return same(given, a.token)
	}
	c, err := r.Cookie(cookie)
	return err == nil && same(c.Value, a.value())
}

// rebound reports whether a request to the loopback address came by another name: a page of
// a stranger whose name leads here.
func (a auth) rebound(r *http.Request) bool {
	if !a.local || a.token != "" {
		return false
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	return !isLoopback(strings.Trim(host, "[]"))
}

// site answers requests.
type site struct {
	hub         *hub
	client      *redlatch.Client
	server      string // for people
	allowUnlock bool
	auth        auth
	log         io.Writer
}

func (s *site) handler() (http.Handler, error) {
	files, err := fs.Sub(assets, "assets")
	if err != nil {
		return nil, err
	}
	inside := http.NewServeMux()
	inside.Handle("GET /", http.FileServerFS(files))
	inside.HandleFunc("GET /api/locks", s.locks)
	inside.HandleFunc("GET /api/lock", s.lock)
	inside.HandleFunc("GET /api/settings", s.settings)
	inside.HandleFunc("GET /api/events", s.events)
	inside.HandleFunc("POST /api/unlock", s.unlock)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h := w.Header()
		h.Set("Content-Security-Policy", "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "+
			"manifest-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
		h.Set("X-Content-Type-Options", "nosniff")
		h.Set("Referrer-Policy", "no-referrer")
		h.Set("Cache-Control", "no-store")
		switch {
		case r.URL.Path == "/healthz":
			fmt.Fprintln(w, "ok")
		case s.auth.rebound(r):
			http.Error(w, "this address is asked by the name of another host", http.StatusForbidden)
		case s.login(w, r):
		case !s.auth.allowed(r):
			s.refuse(w, r)
		default:
			inside.ServeHTTP(w, r)
		}
	}), nil
}

// login takes the token out of the address, so that it is not kept in the history, and leaves
// a cookie.
func (s *site) login(w http.ResponseWriter, r *http.Request) bool {
	token := r.URL.Query().Get("token")
	if r.Method == http.MethodPost && r.URL.Path == "/login" {
		r.Body = http.MaxBytesReader(w, r.Body, 4096)
		token = r.PostFormValue("token")
	} else if r.URL.Path != "/" || token == "" {
		return false
	}
	if s.auth.token == "" || !same(token, s.auth.token) {
		s.refuse(w, r)
		return true
	}
	http.SetCookie(w, &http.Cookie{ // #nosec G124 -- it speaks HTTP; behind TLS the proxy adds Secure
		Name: cookie, Value: s.auth.value(), Path: "/", HttpOnly: true, SameSite: http.SameSiteStrictMode,
	})
	http.Redirect(w, r, "/", http.StatusSeeOther)
	return true
}

// refuse asks for the token.
func (s *site) refuse(w http.ResponseWriter, r *http.Request) {
	w.Header().Set("WWW-Authenticate", `Bearer realm="redlatch"`)
	if strings.HasPrefix(r.URL.Path, "/api/") {
		http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		return
	}
	if r.URL.Path == "/app.css" {
		http.ServeFileFS(w, r, assets, "assets/app.css")
		return
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.WriteHeader(http.StatusUnauthorized)
	_, _ = io.WriteString(w, `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>redlatch</title><link rel="stylesheet" href="/app.css">
<main class="login"><h1>redlatch</h1><form method="post" action="/login"><label>Token <input name="token" type="password" autocomplete="current-password" autofocus></label>
<button>Show the locks</button></form></main></html>`)
}

func answer(w http.ResponseWriter, v any) {
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v) // the other side may have gone
}

// fail answers with an error of the SDK.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	switch {
	case errors.Is(err, redlatch.ErrUnavailable):
		code = http.StatusBadGateway
	case errors.Is(err, redlatch.ErrOtherOwner):
		code = http.StatusConflict
	case errors.Is(err, redlatch.ErrInvalidName):
		code = http.StatusNotFound
	}
	http.Error(w, message(err), code)
}

func (s *site) settings(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"server": s.server, "allow_unlock": s.allowUnlock, "interval_ms": s.hub.interval.Milliseconds()})
}

func (s *site) locks(w http.ResponseWriter, r *http.Request) {
	locks, err := list(r.Context(), s.client, s.hub.pattern)
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, locks)
}

func (s *site) lock(w http.ResponseWriter, r *http.Request) {
	in, err := s.client.Inspect(r.Context(), r.URL.Query().Get("name"))
	if err != nil {
		fail(w, err)
		return
	}
	answer(w, in)
}

// events streams what changes, until the viewer goes.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	v := s.hub.join(r.URL.Query().Get("lock"))
	if v == nil {
		http.Error(w, "too many pages are open", http.StatusServiceUnavailable)
		return
	}
	defer s.hub.leave(v)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no") // proxies shall pass it on at once
	control := http.NewResponseController(w)
	_ = control.SetReadDeadline(time.Time{})
	send := func(text string) bool {
		_ = control.SetWriteDeadline(time.Now().Add(10 * time.Second))
		if _, err := io.WriteString(w, text); err != nil {
			return false
		}
		return control.Flush() == nil
	}
	if !send("retry: 2000\n\n") {
		return
	}
	alive := time.NewTicker(15 * time.Second)
	defer alive.Stop()
	for {
		select {
		case <-r.Context().Done():
			return
		case <-s.hub.ctx.Done():
			return
		case u := <-v.news:
			if !send("event: " + u.event + "\ndata: " + string(u.data) + "\n\n") {
				return
			}
		case <-alive.C:
			if !send(": still here\n\n") {
				return
			}
		}
	}
}

// unlock evicts one holder.
func (s *site) unlock(w http.ResponseWriter, r *http.Request) {
	if !s.allowUnlock {
		http.Error(w, "this page may only look: redlatch serve --allow-unlock", http.StatusForbidden)
		return
	}
	// Forms of other sites can't send this type, nor be of the same origin.
	if site := r.Header.Get("Sec-Fetch-Site"); r.Header.Get("Content-Type") != "application/json" || site != "" && site != "same-origin" {
		http.Error(w, "only this page, or a program with the token, may do this", http.StatusForbidden)
		return
	}
	var ask struct{ Name, Owner string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&ask); err != nil || ask.Name == "" || ask.Owner == "" {
		http.Error(w, `it takes {"name": NAME, "owner": OWNER}`, http.StatusBadRequest)
		return
	}
	if in, err := s.client.Inspect(r.Context(), ask.Name); err == nil {
		s.hub.force(in.Key, ask.Owner)
	}
	was, err := s.client.ForceUnlock(r.Context(), ask.Name, redlatch.IfOwner(ask.Owner))
	fmt.Fprintf(s.log, "redlatch: %s asked to take %q away from %s: done %t, error %v\n", r.RemoteAddr, ask.Name, ask.Owner, was, err)
	if err != nil {
		fail(w, err)
		return
	}
	s.hub.poke()
	answer(w, map[string]bool{"freed": was})
}
