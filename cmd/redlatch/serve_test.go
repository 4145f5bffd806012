package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

// page is a running serve.
type page struct {
	*command
	url string
}

func serving(t *testing.T, s *testbed.Server, args ...string) *page {
	t.Helper()
	c := begin(t, s, append([]string{"serve", "--listen", "127.0.0.1:0", "--interval", "200ms"}, args...)...)
	text := c.says("serving http://")
	_, url, _ := strings.Cut(text, "serving ")
	return &page{c, strings.TrimSuffix(strings.Fields(url)[0], "/")}
}

// ask makes a request, with headers as "Name: value".
func (p *page) ask(method, path, body string, headers ...string) (int, string, http.Header) {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	if err != nil {
		p.t.Fatal(err)
	}
	for _, h := range headers {
		name, value, _ := strings.Cut(h, ": ")
		req.Header.Set(name, value)
		if name == "Host" {
			req.Host = value
		}
	}
	cl := &http.Client{
		Timeout:       patience,
		Transport:     &http.Transport{DisableKeepAlives: true},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := cl.Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		p.t.Fatal(err)
	}
	return res.StatusCode, string(text), res.Header
}

func TestServePrograms(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	h := hold(t, c.RLock("x"))
	p := serving(t, s)
	code, text, head := p.ask("GET", "/", "")
	if code != 200 || !strings.Contains(text, "<title>redlatch</title>") {
		t.Errorf("%d %s", code, text)
	}
	need(t, head.Get("Content-Security-Policy"), "default-src 'none'", "frame-ancestors 'none'")
	for _, outside := range []string{"http://", "https://", "//cdn"} {
		for _, file := range []string{"/", "/app.js", "/app.css"} {
			if _, text, _ := p.ask("GET", file, ""); strings.Contains(text, outside) {
				t.Errorf("%s asks for %s", file, outside)
			}
		}
	}
	code, text, _ = p.ask("GET", "/api/locks", "")
	var list []redlatch.Inspection
	if err := json.Unmarshal([]byte(text), &list); err != nil || code != 200 || len(list) != 1 || list[0].Holders[0].Client != "shop/1" {
		t.Errorf("%d %s", code, text)
	}
	if code, text, _ := p.ask("GET", "/api/lock?name=x", ""); code != 200 || !strings.Contains(text, "shop/1") {
		t.Errorf("%d %s", code, text)
	}
	if code, _, _ := p.ask("GET", "/api/lock?name=", ""); code != http.StatusNotFound {
		t.Error(code)
	}
	if code, text, _ := p.ask("GET", "/healthz", ""); code != 200 || text != "ok\n" {
		t.Errorf("%d %s", code, text)
	}
	// A stranger's name that leads to this machine.
	if code, _, _ := p.ask("GET", "/api/locks", "", "Host: evil.example"); code != http.StatusForbidden {
		t.Errorf("by another name: %d", code)
	}
	// It may only look.
	owner := list[0].Holders[0].Owner
	body := fmt.Sprintf(`{"name":"x","owner":%q}`, owner)
	if code, _, _ := p.ask("POST", "/api/unlock", body, "Content-Type: application/json"); code != http.StatusForbidden || !inspect(t, c, "x").Held() {
		t.Errorf("unlock: %d", code)
	}
	unlock(t, h)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if st := p.status(); st != 0 {
		t.Errorf("status %d: %s", st, p.text())
	}
}

func TestServeUnlock(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.RLock("x"))
	owner := inspect(t, c, "x").Holders[0].Owner
	p := serving(t, s, "--allow-unlock")
	const typ = "Content-Type: application/json"
	body := fmt.Sprintf(`{"name":"x","owner":%q}`, owner)
	for _, tc := range []struct {
		code    int
		body    string
		headers []string
	}{
		{http.StatusForbidden, body, nil},
		{http.StatusForbidden, body, []string{"Content-Type: text/plain"}},
		{http.StatusForbidden, body, []string{typ, "Sec-Fetch-Site: cross-site"}},
		{http.StatusBadRequest, `{"name":"x"}`, []string{typ}},
		{http.StatusBadRequest, `x`, []string{typ}},
		{http.StatusConflict, `{"name":"x","owner":"somebody"}`, []string{typ}},
	} {
		if code, text, _ := p.ask("POST", "/api/unlock", tc.body, tc.headers...); code != tc.code || !inspect(t, c, "x").Held() {
			t.Errorf("%s %v: %d %s", tc.body, tc.headers, code, text)
		}
	}
	if code, text, _ := p.ask("POST", "/api/unlock", body, typ, "Sec-Fetch-Site: same-origin"); code != 200 || !strings.Contains(text, "true") || inspect(t, c, "x").Held() {
		t.Errorf("%d %s", code, text)
	}
	p.says("asked to take \"x\" away from " + owner)
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
}

// On other addresses, and wherever one is given, a token is asked for.
func TestServeToken(t *testing.T) {
	s := server(t)
	file := filepath.Join(t.TempDir(), "token")
	const token = "0123456789abcdef-secret"
	if err := os.WriteFile(file, []byte(token+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serving(t, s, "--token-file", file)
	for _, path := range []string{"/", "/api/locks", "/api/events", "/app.js", "/?token=wrong"} {
		if code, text, _ := p.ask("GET", path, ""); code != http.StatusUnauthorized || strings.Contains(text, token) {
			t.Errorf("%s without a token: %d", path, code)
		}
	}
	if code, _, _ := p.ask("GET", "/api/locks", "", "Authorization: Bearer "+token); code != 200 {
		t.Errorf("with it: %d", code)
	}
	code, _, head := p.ask("GET", "/?token="+token, "")
	cookie, _, _ := strings.Cut(head.Get("Set-Cookie"), ";")
	if code != http.StatusSeeOther || head.Get("Location") != "/" || strings.Contains(cookie, token) {
		t.Fatalf("%d %v", code, head)
	}
	need(t, head.Get("Set-Cookie"), "HttpOnly", "SameSite=Strict")
	if code, _, _ := p.ask("GET", "/api/locks", "", "Cookie: "+cookie); code != 200 {
		t.Errorf("with the cookie: %d", code)
	}
	if code, _, _ := p.ask("POST", "/login", "token="+token, "Content-Type: application/x-www-form-urlencoded"); code != http.StatusSeeOther {
		t.Errorf("login: %d", code)
	}
	if strings.Contains(p.text(), token) {
		t.Error("it prints the token")
	}

	all := begin(t, s, "serve", "--listen", "0.0.0.0:0")
	text := all.says("token=")
	url := strings.Replace(strings.Fields(text[strings.LastIndex(text, "http://"):])[0], "[::]", "127.0.0.1", 1)
	made := &page{all, strings.SplitN(url, "/?", 2)[0]}
	if code, _, _ := made.ask("GET", "/api/locks", ""); code != http.StatusUnauthorized {
		t.Errorf("open to everybody: %d", code)
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, _, errs := call(t, s, "serve", "--token-file", file); st != exitUsage {
		t.Errorf("a short token: %d %s", st, errs)
	}
}

// Changes arrive as events; a server that is gone is said, and its return is seen. While nobody
// looks the server is not asked.
func TestServeEvents(t *testing.T) {
	s := server(t)
	p := serving(t, s, "--timeout", "1s")
	scans := func() string {
		m := s.Do(t, "INFO", "commandstats")
		text, _ := m.ToString()
		for line := range strings.Lines(text) {
			if strings.HasPrefix(line, "cmdstat_scan:") {
				return line
			}
		}
		return ""
	}
	time.Sleep(500 * time.Millisecond) // more than two intervals: what must not happen has no event
	if n := scans(); n != "" {
		t.Errorf("it asks though nobody looks: %s", n)
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, p.url+"/api/events?lock=x", nil)
	if err != nil {
		t.Fatal(err)
	}
	cl := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := cl.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = res.Body.Close() }()
	lines := make(chan string, 1000)
	go func() { // ends with the body
		defer close(lines)
		sc := bufio.NewScanner(res.Body)
		sc.Buffer(nil, 1<<20)
		for sc.Scan() {
			lines <- sc.Text()
		}
	}()
	wait := func(event string, parts ...string) string {
		t.Helper()
		at := ""
		for end := time.After(patience); ; {
			select {
			case line := <-lines:
				if e, ok := strings.CutPrefix(line, "event: "); ok {
					at = e
				}
				data, ok := strings.CutPrefix(line, "data: ")
				for _, part := range parts {
					ok = ok && strings.Contains(data, part)
				}
				if ok && at == event {
					return data
				}
			case <-end:
				t.Fatalf("no event %s with %q", event, parts)
			}
		}
	}
	wait("locks", `"total":0`)
	wait("lock", `"name":"x"`, `"holder_count":0`)
	c := client(t, s, named("shop/1"))
	h := hold(t, c.RLock("x"))
	wait("locks", `"total":1`, `"shop/1"`)
	wait("lock", `"shop/1"`, `"ended":false`)
	unlock(t, h)
	wait("lock", `"holder_count":0`, `"ended":true`)
	dies := client(t, s, named("shop/2"), func(c *redlatch.Config) { c.LeaseTime = 4 * time.Second }) // long enough for several looks
	hold(t, dies.RLock("x"))
	wait("lock", `"shop/2"`)
	dies.Close() // leaves the lock to its lease, once the page has seen it
	wait("lock", `"how":"expired"`)
	c.Close()
	s.Kill(t)
	wait("trouble", "unavailable")
	s.Restart(t, testbed.Empty)
	wait("locks", `"total":0`)
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if st := p.status(); st != 0 {
		t.Errorf("status %d: %s", st, p.text())
	}
}
