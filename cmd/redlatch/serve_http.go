package main

import (
	"crypto/subtle"
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
	"github.com/redlatch/redlatch/internal/quote"
)

// answerTime is how long the other side may take to read an answer, or an event.
const answerTime = 10 * time.Second

// auth says who may see the locks. There is no cookie: a browser would send it along with requests that other
// pages make, and to other ports of the host.
type auth struct {
	token string // "": nobody is asked
	local bool   // it listens on the loopback address
}

// allowed reports whether a request may be answered.
func (a auth) allowed(r *http.Request) bool {
	if a.token == "" {
		return true
	}
	given, ok := strings.CutPrefix(r.Header.Get("Authorization"), "Bearer ")
	return ok && subtle.ConstantTimeCompare([]byte(given), []byte(a.token)) == 1
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

// foreign reports whether a browser says that another site's page made the request.
func foreign(r *http.Request) bool {
	switch r.Header.Get("Sec-Fetch-Site") {
	case "", "same-origin":
		return false
	case "none": // by hand: an address is typed, a form is not
		return r.Method != http.MethodGet
	}
	return true
}

// site answers requests.
type site struct {
	hub         *hub
	server      string // for people
	allowUnlock bool
	auth        auth
	log         io.Writer
}

// handler answers the page to everybody: it contains no lock. It asks for the token at /api.
func (s *site) handler() http.Handler {
	files, _ := fs.Sub(assets, "assets") // the name is one
	inside := http.NewServeMux()
	inside.Handle("GET /", http.FileServerFS(files))
	inside.HandleFunc("GET /api/settings", s.settings)
	inside.HandleFunc("GET /api/events", s.events)
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
		case r.URL.Path == "/healthz":
			fmt.Fprintln(w, "ok")
		case s.auth.rebound(r):
			http.Error(w, "this address is asked by the name of another host", http.StatusForbidden)
		case api && foreign(r):
			http.Error(w, "only this page, or a program, may ask", http.StatusForbidden)
		case api && !s.auth.allowed(r):
			h.Set("WWW-Authenticate", `Bearer realm="redlatch"`)
			http.Error(w, "a token is needed: Authorization: Bearer TOKEN", http.StatusUnauthorized)
		default:
			inside.ServeHTTP(w, r)
		}
	})
}

// answer writes one value, or an error of the SDK. The other side may have gone, or read nothing until its time is over.
func answer(w http.ResponseWriter, v any, err error) {
	if err != nil {
		fail(w, err)
		return
	}
	// The time for the question to the server is not the reader's.
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(v)
}

// fail answers with an error of the SDK.
func fail(w http.ResponseWriter, err error) {
	code := http.StatusInternalServerError
	var wrong *statusError // a name that can't be read
	switch {
	case errors.As(err, &wrong):
		code = http.StatusBadRequest
	case errors.Is(err, redlatch.ErrUnavailable):
		code = http.StatusBadGateway
	case errors.Is(err, redlatch.ErrOtherOwner):
		code = http.StatusConflict
	case errors.Is(err, redlatch.ErrInvalidName):
		code = http.StatusNotFound
	case errors.Is(err, errBusy):
		code = http.StatusServiceUnavailable
	}
	_ = http.NewResponseController(w).SetWriteDeadline(time.Now().Add(answerTime))
	http.Error(w, message(err), code)
}

func (s *site) settings(w http.ResponseWriter, _ *http.Request) {
	answer(w, map[string]any{"server": s.server, "allow_unlock": s.allowUnlock, "interval_ms": s.hub.interval.Milliseconds()}, nil)
}

// events streams what changes, until the viewer goes.
func (s *site) events(w http.ResponseWriter, r *http.Request) {
	v, err := s.hub.join(r.URL.Query().Get("lock"))
	if err != nil {
		fail(w, err)
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
	var ask struct{ Name, Owner string }
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 64<<10)).Decode(&ask); err != nil || ask.Name == "" || ask.Owner == "" {
		http.Error(w, `it takes {"name": NAME, "owner": OWNER}`, http.StatusBadRequest)
		return
	}
	name, err := given("name", ask.Name)
	owner, wrong := given("owner", ask.Owner)
	if err := errors.Join(err, wrong); err != nil {
		fail(w, err)
		return
	}
	if in, err := look(r.Context(), s.hub.client, ask.Name); err == nil {
		s.hub.force(in, exact(owner))
	}
	was, err := s.hub.client.ForceUnlock(r.Context(), name, redlatch.IfOwner(owner))
	result := fmt.Sprintf("done %t", was)
	if err != nil {
		result = message(err)
	}
	fmt.Fprintf(s.log, "redlatch: %s asked to take %s away from %s: %s\n", r.RemoteAddr, quote.Name(name), quote.Text(owner), result)
	s.hub.poke()
	answer(w, map[string]bool{"freed": was}, err)
}
