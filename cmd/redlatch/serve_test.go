package main

import (
	"bufio"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
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

// reply is what serve answered.
type reply struct {
	t      *testing.T
	what   string
	code   int
	text   string
	header http.Header
}

// is fails unless the reply has that status, and all parts.
func (r reply) is(code int, parts ...string) reply {
	r.t.Helper()
	if r.code != code {
		r.t.Errorf("%s: %d, not %d: %s", r.what, r.code, code, r.text)
	}
	need(r.t, r.text, parts...)
	return r
}

// ask makes a request, with headers as "Name: value".
func (p *page) ask(method, path, body string, headers ...string) reply {
	p.t.Helper()
	req, err := http.NewRequestWithContext(p.t.Context(), method, p.url+path, strings.NewReader(body))
	testbed.Must(p.t, err)
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
	testbed.Must(p.t, err)
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	testbed.Must(p.t, err)
	return reply{p.t, fmt.Sprintf("%s %s %s %q", method, path, body, headers), res.StatusCode, string(text), res.Header}
}

func (p *page) get(path string, headers ...string) reply {
	p.t.Helper()
	return p.ask(http.MethodGet, path, "", headers...)
}

const typeJSON = "Content-Type: application/json"

// evict asks for an eviction, for a reason.
func (p *page) evict(name, owner, reason string, headers ...string) reply {
	p.t.Helper()
	body, err := json.Marshal(map[string]string{"name": name, "owner": owner, "reason": reason})
	testbed.Must(p.t, err)
	return p.ask(http.MethodPost, "/api/unlock", string(body), append([]string{typeJSON}, headers...)...)
}

// stream is what a page that looks into a lock, or into none, is told.
type stream struct {
	t     *testing.T
	lines *bufio.Scanner
	limit *time.Timer // ends it
	close func()
}

func (p *page) events(lock string) *stream {
	p.t.Helper()
	ctx, cancel := context.WithCancel(p.t.Context())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, p.url+"/api/events?lock="+neturl.QueryEscape(lock), nil)
	testbed.Must(p.t, err)
	res, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req) //nolint:bodyclose // the stream is what closes it
	testbed.Must(p.t, err)
	limit := time.AfterFunc(patience, cancel)
	s := &stream{p.t, bufio.NewScanner(res.Body), limit, func() { limit.Stop(); cancel(); _ = res.Body.Close() }}
	s.lines.Buffer(nil, 16<<20)
	p.t.Cleanup(s.close)
	return s
}

// next is the data of the next event of that kind that has all parts.
func (s *stream) next(kind string, parts ...string) string {
	s.t.Helper()
	s.limit.Reset(patience)
	for now := ""; s.lines.Scan(); {
		if e, ok := strings.CutPrefix(s.lines.Text(), "event: "); ok {
			now = e
		}
		data, ok := strings.CutPrefix(s.lines.Text(), "data: ")
		if ok && now == kind && hasAll(data, parts) {
			return data
		}
	}
	s.t.Fatalf("no event %s with %q: %v", kind, parts, s.lines.Err())
	return ""
}

// event is the data of the next event of that kind.
func (p *page) event(kind, lock string) string {
	p.t.Helper()
	s := p.events(lock)
	defer s.close()
	return s.next(kind)
}

// The page is whole, asks nobody else for anything, and is for whoever opens it on this machine; it may only look.
func TestServePrograms(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	h := hold(t, c.RLock("x"))
	p := serving(t, s)
	whole := p.get("/").is(http.StatusOK, "<title>redlatch</title>")
	need(t, whole.header.Get("Content-Security-Policy"), "default-src 'none'", "frame-ancestors 'none'")
	for _, path := range []string{"/", "/app.js", "/app.css"} {
		lacks(t, p.get(path).text, "http://", "https://", "//cdn")
	}
	list := decoded[overview](t, p.event("locks", ""))
	if len(list.Locks) != 1 || list.Locks[0].Holders[0].Client != "shop/1" {
		t.Fatalf("%+v", list)
	}
	testbed.Equal(t, p.get("/healthz").is(http.StatusOK).text, "ok\n")
	// A stranger's name that leads to this machine.
	p.get("/api/settings", "Host: evil.example").is(http.StatusForbidden)
	// Another site's page, or that of another port of this host, gets nothing of the browser's user.
	for _, path := range []string{"/api/settings", "/api/events", "/api/events?lock=x"} {
		for _, site := range []string{"cross-site", "same-site"} {
			p.get(path, "Sec-Fetch-Site: "+site).is(http.StatusForbidden)
		}
	}
	for _, site := range []string{"same-origin", "none"} {
		p.get("/api/settings", "Sec-Fetch-Site: "+site).is(http.StatusOK)
	}
	// It may only look.
	p.evict("x", list.Locks[0].Holders[0].Owner, "").is(http.StatusForbidden)
	unlock(t, h)
	p.signal(syscall.SIGTERM)
	p.ends(exitOK)
}

func TestServeUnlock(t *testing.T) {
	s, c := beside(t)
	h := hold(t, c.RLock("x"))
	p := serving(t, s, "--allow-unlock", "--no-token")
	body := fmt.Sprintf(`{"name":"x","owner":%q}`, h.Owner())
	for _, tc := range []struct {
		code    int
		body    string
		headers []string
	}{
		{http.StatusForbidden, body, nil},
		{http.StatusForbidden, body, []string{"Content-Type: text/plain"}},
		{http.StatusForbidden, body, []string{typeJSON, "Sec-Fetch-Site: cross-site"}},
		{http.StatusForbidden, body, []string{typeJSON, "Sec-Fetch-Site: same-site"}}, // another port of this host
		{http.StatusForbidden, body, []string{typeJSON, "Sec-Fetch-Site: none"}},
		{http.StatusBadRequest, `{"name":"x"}`, []string{typeJSON}},
		{http.StatusBadRequest, `x`, []string{typeJSON}},
		{http.StatusConflict, `{"name":"x","owner":"somebody"}`, []string{typeJSON}},
	} {
		p.ask(http.MethodPost, "/api/unlock", tc.body, tc.headers...).is(tc.code)
		isHeld(t, c, "x", true)
	}
	p.evict("x", h.Owner().String(), "", "Sec-Fetch-Site: same-origin").is(http.StatusOK, "true")
	p.says(`"msg":"evict","user":"?"`)
	taken(t, h)
}

const secret = "0123456789abcdef-secret"

// On other addresses, with --allow-unlock, and wherever one is given, a token is asked for: as a header, which only
// who has the token can send. A browser would send a cookie to every port of the host.
func TestServeToken(t *testing.T) {
	s := server(t)
	c := client(t, s)
	h := hold(t, c.RLock("x"))
	path := fileOf(t, secret+"\n")
	p := serving(t, s, "--token-file", path, "--allow-unlock")
	keepsIt := func(r reply) {
		t.Helper()
		lacks(t, r.text, secret)
		testbed.Equal(t, r.header.Get("Set-Cookie"), "", "the cookie of", r.what)
	}
	for _, path := range []string{"/api/settings", "/api/events", "/api/events?lock=x", "/api/settings?token=" + secret, "/api/other"} {
		keepsIt(p.get(path).is(http.StatusUnauthorized))
	}
	for _, path := range []string{"/", "/app.js", "/?token=" + secret, "/login"} { // the page itself contains no lock
		keepsIt(p.get(path))
	}
	sum := sha256.Sum256([]byte("redlatch serve " + secret))
	cookie := "Cookie: redlatch_token=" + hex.EncodeToString(sum[:]) // as such a cookie once was
	for _, headers := range [][]string{nil, {cookie}, {"Cookie: redlatch_token=" + secret}, {"Authorization: Bearer " + secret[1:]}} {
		p.evict("x", h.Owner().String(), "", headers...).is(http.StatusUnauthorized)
		isHeld(t, c, "x", true)
	}
	const right = "Authorization: Bearer " + secret
	p.get("/api/settings", right).is(http.StatusOK)
	p.evict("x", h.Owner().String(), "", right).is(http.StatusOK)
	taken(t, h)
	lacks(t, p.text(), secret)

	for _, args := range [][]string{{"--listen", "0.0.0.0:0"}, {"--listen", "127.0.0.1:0", "--allow-unlock"}} {
		open := begin(t, s, append([]string{"serve"}, args...)...)
		text := open.says("token=")
		url, token, _ := strings.Cut(strings.Fields(text[strings.LastIndex(text, "http://"):])[0], "/#token=")
		made := &page{open, url}
		made.get("/api/settings").is(http.StatusUnauthorized)
		made.get("/api/settings", "Authorization: Bearer "+token).is(http.StatusOK)
	}
	for _, args := range [][]string{{"--token-file", fileOf(t, "short")}, {"--no-token", "--listen", "0.0.0.0:0"}, {"--read-only", "--allow-unlock"}} {
		call(t, s, append([]string{"serve"}, args...)...).fails(exitUsage)
	}
	t.Setenv("REDLATCH_SERVE_TOKEN", secret)
	call(t, s, "serve", "--no-token").fails(exitUsage)
}

// What is printed is an address that a browser of this machine opens.
func TestServeAddress(t *testing.T) {
	t.Parallel()
	for at, want := range map[string]string{
		"127.0.0.1:80": "127.0.0.1:80", "[::]:81": "localhost:81", "0.0.0.0:82": "localhost:82", "[::1]:83": "[::1]:83", "10.1.2.3:84": "10.1.2.3:84",
	} {
		tcp, err := net.ResolveTCPAddr("tcp", at)
		testbed.Must(t, err)
		testbed.Equal(t, address(tcp), "http://"+want+"/", at)
	}
}

// Behind a proxy that logs people in, the log names who evicted whom: each eviction is a line of JSON. Without a
// token nobody evicts whom the proxy has not named.
func TestServeLogsWhoEvicts(t *testing.T) {
	s, c := beside(t)
	h := hold(t, c.RLock("a=\"x\"\n"))
	owner := h.Owner().String()
	p := serving(t, s, "--allow-unlock", "--no-token", "--user-header", "X-Forwarded-User")
	p.evict(`a="x"\n`, owner, "").is(http.StatusForbidden)
	isHeld(t, c, h.Name(), true)
	p.evict(`a="x"\n`, owner, "", "X-Forwarded-User: ann@example.org\t\u202e").is(http.StatusOK)
	taken(t, h)
	_, line, _ := strings.Cut(p.says(`"msg":"evict"`), "\n")
	line, _, _ = strings.Cut(line, "\n")
	said := decoded[struct {
		Time                         time.Time
		Msg, User, From, Lock, Owner string
		Freed                        bool
	}](t, line)
	if said.User != `ann@example.org\t\u202e` || said.Lock != `a="x"\n` || said.Owner != owner || !said.Freed ||
		!strings.HasPrefix(said.From, "127.0.0.1:") || time.Since(said.Time) > time.Minute {
		t.Errorf("%+v", said)
	}
}

// The program lives while its server is frozen, and says within three seconds that it is not ready.
func TestServeReady(t *testing.T) {
	s := server(t)
	p := serving(t, s)
	ready := func() bool { return p.get("/readyz", "Host: probe.example").code == http.StatusOK }
	testbed.Equal(t, ready(), true, "whether it is ready")
	s.Freeze(t)
	for asked, is := time.Now(), true; is; { // the last answer counts for a second
		before := time.Now()
		if is = ready(); is && time.Since(asked) > 3*time.Second || time.Since(before) > 3*time.Second {
			t.Fatalf("ready all the same: %t after %v", is, time.Since(before))
		}
	}
	p.get("/healthz").is(http.StatusOK) // it lives
	s.Thaw(t)
	until(t, "it is ready again", ready, p.text)
	s.Do(t, "ACL", "SETUSER", "default", "-@scripting")
	until(t, "the look is refused", func() bool {
		if !ready() {
			t.Fatal("a refusal is an answer")
		}
		return len(s.DeniedCommands(t)) > 0
	}, p.text)
	s.Do(t, "ACL", "SETUSER", "default", "+@scripting")
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
	p := serving(t, s, "--full-speed") // so that events come soon
	text := p.event("locks", "")
	list := decoded[overview](t, text)
	testbed.Equal(t, len(list.Locks), maxRows, "locks in the list")
	testbed.Equal(t, list.Total, locks, "locks in all")
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
		testbed.Must(t, err)
		defer c.Close()
		_ = c.(*net.TCPConn).SetReadBuffer(4096)
		fmt.Fprintf(c, "GET /api/events HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
	}
	until(t, "all readers are there", func() bool { return sockets() >= before+readers }, func() string { return strconv.Itoa(sockets()) })
	until(t, "no reader is there", func() bool { return sockets() <= before }, func() string { return strconv.Itoa(sockets()) })
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	testbed.Must(t, err)
	_, rest, _ := strings.Cut(string(status), "VmHWM:")
	most, _ := strconv.Atoi(strings.Fields(rest + " 0")[0])
	if most == 0 || most > 600<<10 {
		t.Errorf("it took %d kB of memory", most)
	}
	t.Logf("an event of %d bytes, at most %d kB of memory", len(text), most)
}

// Changes arrive as events; a server that is gone is said, and its return is seen. While nobody
// looks the server is not asked.
func TestServeEvents(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := serving(t, s, "--timeout", "1s")
	time.Sleep(500 * time.Millisecond) // more than two intervals: what must not happen has no event
	testbed.AtMost(t, s.CommandStats(t).Calls["scan"], 0, "times that it asks though nobody looks")
	wait := p.events("x").next
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
	p.signal(syscall.SIGTERM)
	p.ends(exitOK)
}
