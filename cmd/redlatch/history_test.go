package main

import (
	"net/http"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
)

// Who evicts with unlock or on the page of serve is in the history, with the reason: for people, for programs, on the
// page and in its log.
func TestHistory(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	call(t, s, "history").fails(exitOK, `no evictions are recorded under the prefix ""`)
	call(t, s, "history", "--prefix", "shop:").fails(exitOK, `under the prefix "shop:"`)
	h := hold(t, c.RLock("orders:42"))
	got := call(t, s, "unlock", "orders:42", "--any-owner", "--yes", "--reason", "its machine is\ngone").ends(exitOK)
	lacks(t, got.errs, "not in the history")
	taken(t, h)

	p := serving(t, s, "--allow-unlock", "--no-token", "--user-header", "X-User")
	h = hold(t, c.RLock("report"))
	p.evict("report", h.Owner().String(), "hangs", `X-User: a\b`).is(http.StatusOK)
	taken(t, h)
	p.says(`"reason":"hangs","freed":true`)

	lines := strings.Split(strings.TrimSpace(call(t, s, "history").ends(exitOK).out), "\n")
	if len(lines) != 3 {
		t.Fatal(lines)
	}
	need(t, lines[0], "TIME", "NAME", "EVICTED", "BY", "REASON")
	need(t, lines[1], "report", "shop/1 127.0.0.1:", `a\\b`, "hangs")
	need(t, lines[2], "orders:42", "shop/1 127.0.0.1:", operator(), `its machine is\ngone`)

	past := decoded[[]redlatch.Eviction](t, call(t, s, "history", "orders:42", "-o", "json").out)
	if len(past) != 1 || past[0].By != operator() || past[0].Holds != 1 || past[0].Kind != redlatch.KindReentrant {
		t.Errorf("%+v", past)
	}
	call(t, s, "history", "orders:43").fails(exitOK, `no evictions of "orders:43" are recorded under the prefix ""`)
	past = decoded[[]redlatch.Eviction](t, p.get("/api/history?lock=report").is(http.StatusOK).text)
	if len(past) != 1 || past[0].Name != "report" {
		t.Errorf("%+v", past)
	}
	call(t, s, "history", "--limit", "0").fails(exitUsage)
}

// Who may evict and not note it evicts all the same; unlock and serve say that it is not in the history.
func TestEvictionThatIsNotNoted(t *testing.T) {
	s, c := beside(t)
	s.SetUser(t, "ops", "on", ">secret", "~*", "&*", "+@all", "-xadd")
	url := "redis://ops:secret@" + s.Addr()
	h := hold(t, c.RLock("x"))
	call(t, nil, "--url", url, "unlock", "x", "--any-owner", "--yes").ends(exitOK, "was taken away from").warns("the eviction is not in the history: ")
	taken(t, h)

	p := serving(t, s, "--url", url, "--allow-unlock", "--no-token")
	h = hold(t, c.RLock("x"))
	p.evict("x", h.Owner().String(), "").is(http.StatusOK, `"freed":true`, `"unrecorded":"`)
	p.says(`"unrecorded":"`)
	taken(t, h)

	// Nor is it an error that it may not wake the waiters.
	s.Do(t, "ACL", "SETUSER", "ops", "-publish")
	h = hold(t, c.RLock("x"))
	p.evict("x", h.Owner().String(), "").is(http.StatusOK, `"freed":true`, `"untold":"`)
	taken(t, h)
	call(t, s, "history").fails(exitOK)
}
