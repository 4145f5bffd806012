package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/acl"
)

// Who evicts with unlock or on the page of serve is in the history, with the reason: for people, for programs, on the
// page and in its log.
func TestHistory(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	if st, out, errs := call(t, s, "history"); st != 0 || out != "" || !strings.Contains(errs, "no evictions") {
		t.Errorf("%d %s%s", st, out, errs)
	}
	h := hold(t, c.RLock("orders:42"))
	if st, _, errs := call(t, s, "unlock", "orders:42", "--any-owner", "--yes", "--reason", "its machine is\ngone"); st != 0 || strings.Contains(errs, "not in the history") {
		t.Errorf("%d %s", st, errs)
	}
	_ = h.Unlock(t.Context())

	p := serving(t, s, "--allow-unlock", "--no-token", "--user-header", "X-User")
	h = hold(t, c.RLock("report"))
	body, _ := json.Marshal(map[string]string{"name": "report", "owner": h.Owner().String(), "reason": "hangs"})
	if code, text, _ := p.ask("POST", "/api/unlock", string(body), "Content-Type: application/json", `X-User: a\b`); code != http.StatusOK {
		t.Errorf("%d %s", code, text)
	}
	_ = h.Unlock(t.Context())
	p.says(`"reason":"hangs","freed":true`)

	st, out, errs := call(t, s, "history")
	if st != 0 {
		t.Errorf("%d %s", st, errs)
	}
	lines := strings.Split(strings.TrimSpace(out), "\n")
	if len(lines) != 3 {
		t.Fatal(out)
	}
	need(t, lines[0], "TIME", "NAME", "EVICTED", "BY", "REASON")
	need(t, lines[1], "report", "shop/1 127.0.0.1:", `a\\b`, "hangs")
	need(t, lines[2], "orders:42", "shop/1 127.0.0.1:", operator(), `its machine is\ngone`)

	var past []redlatch.Eviction
	_, out, _ = call(t, s, "history", "orders:42", "-o", "json")
	if err := json.Unmarshal([]byte(out), &past); err != nil || len(past) != 1 || past[0].By != operator() || past[0].Holds != 1 || past[0].Kind != redlatch.KindReentrant {
		t.Errorf("%v: %s", err, out)
	}
	code, text, _ := p.ask("GET", "/api/history?lock=report", "")
	if err := json.Unmarshal([]byte(text), &past); code != http.StatusOK || err != nil || len(past) != 1 || past[0].Name != "report" {
		t.Errorf("%d %v: %s", code, err, text)
	}
	if st, _, errs := call(t, s, "history", "--limit", "0"); st != exitUsage {
		t.Errorf("%d %s", st, errs)
	}
}

// Who may evict and not note it evicts all the same; unlock and serve say that it is not in the history.
func TestEvictionThatIsNotNoted(t *testing.T) {
	s := server(t)
	c := client(t, s)
	s.Do(t, "ACL", "SETUSER", "ops", "reset", "on", ">secret", "~*", "&*", "+@all", "-xadd")
	h := hold(t, c.RLock("x"))
	st, out, errs := call(t, nil, "--url", "redis://ops:secret@"+s.Addr(), "unlock", "x", "--any-owner", "--yes")
	if st != 0 || inspect(t, c, "x").Held() {
		t.Errorf("%d %s", st, errs)
	}
	need(t, out, "was taken away from")
	need(t, errs, "the eviction is not in the history: ")
	_ = h.Unlock(t.Context())

	p := serving(t, s, "--url", "redis://ops:secret@"+s.Addr(), "--allow-unlock", "--no-token")
	h = hold(t, c.RLock("x"))
	body := fmt.Sprintf(`{"name":"x","owner":%q}`, h.Owner().String())
	if code, text, _ := p.ask("POST", "/api/unlock", body, "Content-Type: application/json"); code != http.StatusOK || inspect(t, c, "x").Held() {
		t.Errorf("%d %s", code, text)
	} else {
		need(t, text, `"freed":true`, `"unrecorded":"`)
	}
	p.says(`"unrecorded":"`)
	_ = h.Unlock(t.Context())

	// Nor is it an error that it may not wake the waiters.
	s.Do(t, "ACL", "SETUSER", "ops", "-publish")
	h = hold(t, c.RLock("x"))
	body = fmt.Sprintf(`{"name":"x","owner":%q}`, h.Owner().String())
	if code, text, _ := p.ask("POST", "/api/unlock", body, "Content-Type: application/json"); code != http.StatusOK || inspect(t, c, "x").Held() {
		t.Errorf("%d %s", code, text)
	} else {
		need(t, text, `"freed":true`, `"untold":"`)
	}
	_ = h.Unlock(t.Context())
	if st, out, errs := call(t, s, "history"); st != 0 || out != "" {
		t.Errorf("%d %s%s", st, out, errs)
	}
}

// The rights that docs/ACL.md lists for the history are enough, and each is needed.
func TestHistoryACL(t *testing.T) {
	s := server(t)
	c := client(t, s, func(c *redlatch.Config) { c.Prefix = "app:" })
	user := func(without string) {
		rules := slices.DeleteFunc(acl.Rules("evict", "history", "record"), func(rule string) bool { return rule == without })
		s.SetUser(t, "ops", append([]string{"on", ">secret"}, rules...)...)
	}
	evicts := func() (lines int, lost bool) {
		t.Helper()
		h := hold(t, c.RLock("x"))
		as := []string{"--url", "redis://ops:secret@" + s.Addr(), "--prefix", "app:"}
		st, _, errs := call(t, nil, append(as, "unlock", "x", "--any-owner", "--yes")...)
		if st != 0 || inspect(t, c, "x").Held() {
			t.Errorf("unlock: %d %s", st, errs)
		}
		_ = h.Unlock(t.Context())
		lost = strings.Contains(errs, "not in the history")
		if st, out, errs := call(t, nil, append(as, "history")...); st == 0 {
			lines = strings.Count(out, "\n")
		} else if !denied(errors.New(errs)) {
			t.Errorf("history: %d %s", st, errs)
		}
		return lines, lost
	}
	user("")
	if lines, lost := evicts(); lines != 2 || lost {
		t.Errorf("with the rights: %d lines, lost %v", lines, lost)
	}
	for _, tc := range []struct {
		rule  string
		lines int
		lost  bool
	}{
		{"~redlatch_history:{app:*", 0, true}, {"+xadd", 2, true}, {"+xrevrange", 0, false},
	} {
		user(tc.rule)
		if lines, lost := evicts(); lines != tc.lines || lost != tc.lost {
			t.Errorf("without %s: %d lines, lost %v", tc.rule, lines, lost)
		}
	}
}
