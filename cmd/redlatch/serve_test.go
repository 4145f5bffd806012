package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	neturl "net/url"
	"os"
	"path/filepath"
	"strconv"
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

// event is the data of the next event of that kind, as a page that looks into a lock, or into none, gets it.
func (p *page) event(kind, lock string) string {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), patience)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/events?lock="+neturl.QueryEscape(lock), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		p.t.Fatal(err)
	}
	defer res.Body.Close()
	sc := bufio.NewScanner(res.Body)
	sc.Buffer(nil, 16<<20)
	for now := ""; sc.Scan(); {
		if e, ok := strings.CutPrefix(sc.Text(), "event: "); ok {
			now = e
		}
		if data, ok := strings.CutPrefix(sc.Text(), "data: "); ok && now == kind {
			return data
		}
	}
	p.t.Fatalf("no event %s: %v", kind, sc.Err())
	return ""
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
	var list overview
	if text := p.event("locks", ""); json.Unmarshal([]byte(text), &list) != nil || len(list.Locks) != 1 || list.Locks[0].Holders[0].Client != "shop/1" {
		t.Error(text)
	}
	if code, text, _ := p.ask("GET", "/healthz", ""); code != 200 || text != "ok\n" {
		t.Errorf("%d %s", code, text)
	}
	// A stranger's name that leads to this machine.
	if code, _, _ := p.ask("GET", "/api/settings", "", "Host: evil.example"); code != http.StatusForbidden {
		t.Errorf("by another name: %d", code)
	}
	// It may only look.
	owner := list.Locks[0].Holders[0].Owner
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
	p := serving(t, s, "--allow-unlock", "--no-token")
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
		{http.StatusForbidden, body, []string{typ, "Sec-Fetch-Site: same-site"}}, // another port of this host
		{http.StatusForbidden, body, []string{typ, "Sec-Fetch-Site: none"}},
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
	p.says(`"msg":"evict","user":"?"`)
	if err := h.Unlock(t.Context()); !errors.Is(err, redlatch.ErrLeaseLost) {
		t.Error(err)
	}
}

const secret = "0123456789abcdef-secret"

// On other addresses, with --allow-unlock, and wherever one is given, a token is asked for: as a header, which only
// who has the token can send. A browser would send a cookie to every port of the host.
func TestServeToken(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.RLock("x"))
	body := fmt.Sprintf(`{"name":"x","owner":%q}`, inspect(t, c, "x").Holders[0].Owner)
	file := filepath.Join(t.TempDir(), "token")
	if err := os.WriteFile(file, []byte(secret+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	p := serving(t, s, "--token-file", file, "--allow-unlock")
	for _, path := range []string{"/api/settings", "/api/events", "/api/events?lock=x", "/api/settings?token=" + secret, "/api/other"} {
		code, text, head := p.ask("GET", path, "")
		if code != http.StatusUnauthorized || strings.Contains(text, secret) || head.Get("Set-Cookie") != "" {
			t.Errorf("%s without a token: %d %v", path, code, head)
		}
	}
	for _, path := range []string{"/", "/app.js", "/?token=" + secret, "/login"} { // the page itself contains no lock
		if _, text, head := p.ask("GET", path, ""); strings.Contains(text, secret) || head.Get("Set-Cookie") != "" {
			t.Errorf("%s leaves the token behind: %v", path, head)
		}
	}
	const typ = "Content-Type: application/json"
	sum := sha256.Sum256([]byte("redlatch serve " + secret))
	cookie := "Cookie: redlatch_token=" + hex.EncodeToString(sum[:]) // as such a cookie once was
	for _, headers := range [][]string{{typ}, {typ, cookie}, {typ, "Cookie: redlatch_token=" + secret}, {typ, "Authorization: Bearer " + secret[1:]}} {
		if code, _, _ := p.ask("POST", "/api/unlock", body, headers...); code != http.StatusUnauthorized || !inspect(t, c, "x").Held() {
			t.Errorf("an unlock with %v: %d", headers, code)
		}
	}
	const right = "Authorization: Bearer " + secret
	if code, _, _ := p.ask("GET", "/api/settings", "", right); code != 200 {
		t.Errorf("with it: %d", code)
	}
	if code, _, _ := p.ask("POST", "/api/unlock", body, typ, right); code != 200 || inspect(t, c, "x").Held() {
		t.Errorf("an unlock with it: %d", code)
	}
	_ = h.Unlock(t.Context())
	if strings.Contains(p.text(), secret) {
		t.Error("it prints the token")
	}

	for _, args := range [][]string{{"--listen", "0.0.0.0:0"}, {"--listen", "127.0.0.1:0", "--allow-unlock"}} {
		all := begin(t, s, append([]string{"serve"}, args...)...)
		text := all.says("token=")
		url, token, _ := strings.Cut(strings.Fields(text[strings.LastIndex(text, "http://"):])[0], "/#token=")
		made := &page{all, url}
		if code, _, _ := made.ask("GET", "/api/settings", ""); code != http.StatusUnauthorized {
			t.Errorf("%v is open to everybody: %d", args, code)
		}
		if code, _, _ := made.ask("GET", "/api/settings", "", "Authorization: Bearer "+token); code != 200 {
			t.Errorf("%v, with the token that it made: %d", args, code)
		}
	}
	if err := os.WriteFile(file, []byte("short"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"--token-file", file}, {"--no-token", "--listen", "0.0.0.0:0"}, {"--read-only", "--allow-unlock"}} {
		if st, _, errs := call(t, s, append([]string{"serve"}, args...)...); st != exitUsage {
			t.Errorf("%v: %d %s", args, st, errs)
		}
	}
	t.Setenv("REDLATCH_SERVE_TOKEN", secret)
	if st, _, errs := call(t, s, "serve", "--no-token"); st != exitUsage {
		t.Errorf("--no-token and a token: %d %s", st, errs)
	}
}

// What is printed is an address that a browser of this machine opens.
func TestServeAddress(t *testing.T) {
	for at, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "[::]:81": "localhost:81", "0.0.0.0:82": "localhost:82", "[::1]:83": "[::1]:83", "10.1.2.3:84": "10.1.2.3:84",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", at)
		if err != nil {
			t.Fatal(err)
		}
		if got := address(tcp); got != "http://"+want+"/" {
			t.Errorf("%s: %s", at, got)
		}
	}
}

// Behind a proxy that logs people in, the log names who evicted whom: each eviction is a line of JSON. Without a
// token nobody evicts whom the proxy has not named.
func TestServeLogsWhoEvicts(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.RLock("a=\"x\"\n"))
	owner := inspect(t, c, "a=\"x\"\n").Holders[0].Owner
	p := serving(t, s, "--allow-unlock", "--no-token", "--user-header", "X-Forwarded-User")
	body, _ := json.Marshal(map[string]string{"name": `a="x"\n`, "owner": owner})
	const typ = "Content-Type: application/json"
	if code, text, _ := p.ask("POST", "/api/unlock", string(body), typ); code != http.StatusForbidden || !inspect(t, c, "a=\"x\"\n").Held() {
		t.Errorf("without a name: %d %s", code, text)
	}
	if code, text, _ := p.ask("POST", "/api/unlock", string(body), typ, "X-Forwarded-User: ann@example.org\t\u202e"); code != http.StatusOK {
		t.Errorf("with one: %d %s", code, text)
	}
	_ = h.Unlock(t.Context())
	_, line, _ := strings.Cut(p.says(`"msg":"evict"`), "\n")
	var said struct {
		Time                         time.Time
		Msg, User, From, Lock, Owner string
		Freed                        bool
	}
	line, _, _ = strings.Cut(line, "\n")
	if err := json.Unmarshal([]byte(line), &said); err != nil || time.Since(said.Time) > time.Minute {
		t.Errorf("%v: %s", err, line)
	}
	if said.User != `ann@example.org\t\u202e` || said.Lock != `a="x"\n` || said.Owner != owner || !said.Freed || !strings.HasPrefix(said.From, "127.0.0.1:") {
		t.Errorf("%+v", said)
	}
}

// The program lives while its server is frozen, and says within three seconds that it is not ready.
func TestServeReady(t *testing.T) {
	s := server(t)
	p := serving(t, s)
	ready := func() int { code, _, _ := p.ask("GET", "/readyz", "", "Host: probe.example"); return code }
	if code := ready(); code != http.StatusOK {
		t.Errorf("ready: %d", code)
	}
	s.Freeze(t)
	for asked, code := time.Now(), http.StatusOK; code == http.StatusOK; { // the last answer counts for a second
		before := time.Now()
		if code = ready(); code == http.StatusOK && time.Since(asked) > 3*time.Second || time.Since(before) > 3*time.Second {
			t.Fatalf("ready all the same: %d after %v", code, time.Since(before))
		}
	}
	if code, _, _ := p.ask("GET", "/healthz", ""); code != http.StatusOK {
		t.Errorf("it lives: %d", code)
	}
	s.Thaw(t)
	until(t, "it is ready again", func() bool { return ready() == http.StatusOK }, p.text)
	s.Do(t, "ACL", "SETUSER", "default", "-@scripting")
	until(t, "the look is refused", func() bool {
		if code := ready(); code != http.StatusOK {
			t.Fatalf("a refusal is an answer: %d", code)
		}
		return len(s.DeniedCommands(t)) > 0
	}, p.text)
	s.Do(t, "ACL", "SETUSER", "default", "+@scripting")
}

// Another site's page, or that of another port of this host, gets nothing of the browser's user.
func TestServeRefusesOtherSites(t *testing.T) {
	p := serving(t, server(t))
	for _, path := range []string{"/api/settings", "/api/events", "/api/events?lock=x"} {
		for _, site := range []string{"cross-site", "same-site"} {
			if code, _, _ := p.ask("GET", path, "", "Sec-Fetch-Site: "+site); code != http.StatusForbidden {
				t.Errorf("%s of a %s page: %d", path, site, code)
			}
		}
	}
	for _, site := range []string{"same-origin", "none"} {
		if code, _, _ := p.ask("GET", "/api/settings", "", "Sec-Fetch-Site: "+site); code != http.StatusOK {
			t.Errorf("%s: %d", site, code)
		}
	}
}

// Who asks and doesn't read costs no list of his own, and loses the connection.
func TestServeSlowReaders(t *testing.T) {
	if _, err := os.Stat("/proc/self/status"); err != nil {
		t.Skip("this system does not tell of a process's memory")
	}
	s := server(t)
	const locks, readers = 2000, 40
	// With long names: a few events are more than the system takes for a reader.
	fill := `for i = 1, ` + strconv.Itoa(locks) + ` do
		local name = KEYS[1] .. string.rep('n', 900) .. i
		redis.call('HSET', name, ARGV[1], 1)
		redis.call('PEXPIRE', name, 300000)
	end`
	s.Do(t, "EVAL", fill, "1", "x", "8743c9c0-0795-4907-87fd-6c719a6b4586:1")
	defer s.Do(t, "FLUSHALL")
	p := serving(t, s)
	var list overview
	text := p.event("locks", "")
	if err := json.Unmarshal([]byte(text), &list); err != nil || len(list.Locks) != maxRows || list.Total != locks {
		t.Errorf("%d locks, of %d: %v", len(list.Locks), list.Total, err)
	}
	sockets := func() (n int) {
		files, _ := filepath.Glob(fmt.Sprintf("/proc/%d/fd/*", p.cmd.Process.Pid))
		for _, f := range files {
			if to, _ := os.Readlink(f); strings.HasPrefix(to, "socket:") {
				n++
			}
		}
		return n
	}
	before := sockets()
	for range readers {
		c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(p.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(c, "GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	until(t, "all readers are there", func() bool { return sockets() >= before+readers }, func() string { return strconv.Itoa(sockets()) })
	until(t, "no reader is there", func() bool { return sockets() <= before }, func() string { return strconv.Itoa(sockets()) })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		t.Fatal(err)
	}
	most := 0
	for line := range strings.Lines(string(status)) {
		if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			most, _ = strconv.Atoi(strings.Fields(rest)[0])
		}
	}
	if most == 0 || most > 600<<10 {
		t.Errorf("it took %d kB of memory", most)
	}
	t.Logf("an event of %d bytes, at most %d kB of memory", len(text), most)
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
