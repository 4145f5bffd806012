//go:build unix

package main

import (
	"context"
	"encoding/json"

	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/quote"
	"github.com/redlatch/redlatch/internal/testbed"
)

// prints fails unless a text only prints: lines of characters, none of them endless, and hostile not as it is.
func prints(t *testing.T, what, hostile, text string) {
	t.Helper()
	for line := range strings.SplitSeq(text, "\n") {
		bad := strings.IndexFunc(line, func(r rune) bool { return !unicode.IsPrint(r) })
		if len(line) > 16<<10 || !utf8.ValidString(line) || bad >= 0 {
			t.Errorf("%s of %.60q, at %d of %d bytes: %.300q", what, hostile, bad, len(line), line)
			return
		}
	}
	if strings.ContainsAny(hostile, "\n") && len(hostile) > 4 && strings.Contains(text, hostile) {
		t.Errorf("%s of %.60q forges a line: %.300q", what, hostile, text)
	}
}

// Names, owners and arguments of any bytes act on no terminal, forge no line, and can be given back as they are shown.
func TestHostileTexts(t *testing.T) {
	s := server(t)
	c := client(t, s)
	const id = "8743c9c0-0795-4907-87fd-6c719a6b4586"
	ownerOf := func(h string) string { return id + ":" + strings.ReplaceAll(h, " ", "_") } // no owner has a space
	names := map[string]string{}                                                           // what they are, by how they are shown
	for _, h := range testbed.Hostile {
		name, owner := "evil:"+h, ownerOf(h)
		if h == "" || len(owner) > 1000 {
			continue
		}
		names[quote.Exact(name)] = h
		s.Do(t, "HSET", name, owner, "1")
		s.Do(t, "PEXPIRE", name, "300000")
		s.Do(t, "RPUSH", "redisson_lock_queue:{"+name+"}", owner+"w")
	}
	defer s.Do(t, "FLUSHALL")

	st, out, errs := call(t, s, "ls")
	if n := strings.Count(out, "\n"); st != 0 || n != len(names)+1 {
		t.Errorf("ls: status %d, %d lines for %d locks: %s", st, n, len(names), errs)
	}
	prints(t, "ls", "one\ntwo", out)
	st, out, errs = call(t, s, "ls", "-o", "json")
	var list []redlatch.Inspection
	if err := json.Unmarshal([]byte(out), &list); err != nil || st != 0 || len(list) != len(names) {
		t.Fatalf("ls -o json: status %d, %d locks, %v: %s", st, len(list), err, errs)
	}
	prints(t, "ls -o json", "one\ntwo", out)

	p := serving(t, s, "--allow-unlock", "--no-token")
	var all overview
	if err := json.Unmarshal([]byte(p.event("locks", "")), &all); err != nil || len(all.Locks) != len(names) {
		t.Fatalf("serve: %d locks, %v", len(all.Locks), err)
	}
	served := map[string]string{} // owners
	for _, l := range all.Locks {
		served[l.Name] = l.Holders[0].Owner
	}
	top := onTerminal(t, s, 200, 50, "top")
	top.shows(200, `\u202etxt.exe`)
	if screen := top.screen(); strings.ContainsAny(screen, "\u202e\u2066\u009b") {
		t.Errorf("top shows %q", screen)
	}
	top.press("q")

	for i, in := range list {
		h, ok := names[in.Name]
		if !ok || in.Holders[0].Owner != served[in.Name] {
			t.Errorf("%.80q is nobody's name, or its owner in serve is %.80q", in.Name, served[in.Name])
			continue
		}
		owner := in.Holders[0].Owner
		prints(t, "JSON", h, in.Name+in.Key+owner)
		st, out, errs := call(t, s, "show", in.Name)
		if st != 0 || !strings.Contains(out, "held") {
			t.Errorf("show of %q: status %d: %s", h, st, errs)
		}
		prints(t, "show", h, out+errs)
		_, out, errs = call(t, s, "show", in.Name, "-o", "json")
		prints(t, "show -o json", h, out+errs)
		watched := &command{t: t, ended: make(chan struct{})}
		ctx, cancel := context.WithCancel(t.Context())
		go func() { // ends with ctx
			defer close(watched.ended)
			execute(ctx, []string{"--url", "redis://" + s.Addr(), "watch", in.Name}, streams{strings.NewReader(""), watched, watched})
		}()
		watched.says("held by")
		cancel()
		<-watched.ended
		prints(t, "watch", h, watched.text())
		need(t, p.event("lock", in.Name), id)
		st, out, errs = callWith(t, "no\n", s, "unlock", in.Name, "--owner", owner)
		if st != exitError || !strings.Contains(out, "takes the lock away from ") {
			t.Errorf("unlock of %q, and no: status %d: %s", h, st, errs)
		}
		prints(t, "unlock", h, out+errs)
		if i%2 == 0 {
			st, out, errs = call(t, s, "unlock", in.Name, "--owner", owner, "--yes")
			prints(t, "unlock", h, out+errs)
		} else {
			body, _ := json.Marshal(map[string]string{"name": in.Name, "owner": owner})
			code, text, _ := p.ask("POST", "/api/unlock", string(body), "Content-Type: application/json")
			st, errs = code-http.StatusOK, text
			p.says(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(quote.Text(ownerOf(h)))) // its line of the log
		}
		if raw, err := c.Inspect(t.Context(), "evil:"+h); st != 0 || err != nil || raw.Held() && raw.Holders[0].Owner == ownerOf(h) {
			t.Errorf("unlock of %q, by its name: %d %v: %s", h, st, err, errs)
		}
	}
	prints(t, "serve", "one\ntwo", p.text())
}

// What users give is shown by the same rules: in errors, whatever is wrong with it.
func TestHostileArguments(t *testing.T) {
	s := server(t)
	missing := filepath.Join(t.TempDir(), "missing")
	p := serving(t, s, "--allow-unlock", "--no-token")
	for _, h := range testbed.Hostile {
		for _, args := range [][]string{
			{h}, {"ls", h}, {"ls", "-o", h}, {"ls", "--" + h}, {"ls", "--limit", h}, {"ls", "--prefix", h}, {"show", h}, {"watch", h, "--interval", h},
			{"unlock", h, "--any-owner"}, {"unlock", "x", "--owner", h}, {"unlock", h, h}, {"doctor", "--need", h}, {"run", "x", "--kind", h, "--", "true"},
			{"run", h, "--", missing + h}, {"run", h, "--wait", "0", "--", "true"}, {"serve", "--listen", h}, {"serve", "--token-file", missing + h},
			{"top", h}, {"--url-file", missing + h, "ls"}, {"--url", h, "ls"}, {"--url", "redis://" + h + "@" + s.Addr(), "ls"}, {"--url", "redis://" + s.Addr() + "?x=" + h, "ls"},
			{"--password-file", missing + h, "ls"}, {"--tls-ca", missing + h, "ls"}, {"--client-name", h, "ls"}, {"--timeout", h, "ls"},
		} {
			if h == "" && args[0] != "ls" {
				continue
			}
			_, out, errs := call(t, s, args...)
			prints(t, strings.Join(args[:min(len(args), 2)], " "), h, strings.ReplaceAll(out, "\t", " ")+errs)
		}
		for _, path := range []string{"/", "/api/"} {
			if len(h) > 1000 {
				continue
			}
			if code, text, _ := p.ask("GET", path+url.QueryEscape(h), ""); code != http.StatusOK {
				prints(t, "GET "+path, h, text)
			}
		}
		body, _ := json.Marshal(map[string]string{"name": h, "owner": h})
		_, text, _ := p.ask("POST", "/api/unlock", string(body), "Content-Type: application/json")
		prints(t, "POST /api/unlock", h, text)
	}
	prints(t, "serve", "one\ntwo", p.text())
	if st, _, errs := call(t, s, "show", `C:\users`); st != exitUsage || !strings.Contains(errs, "give two for one") {
		t.Errorf("a backslash that begins nothing: %d %s", st, errs)
	}
}

// What can't be read is one odd row of each list, a name of megabytes is skipped with a word, and no time is too far
// away to be told: one bad neighbour hides no lock.
func TestOddRows(t *testing.T) {
	s := server(t)
	c := client(t, s, named("shop/1"))
	h := hold(t, c.RLock("good"))
	const owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:"
	s.Do(t, "HSET", "stray", owner+"1", "1")
	s.Do(t, "SET", "redisson_lock_queue:{stray}", "x")
	s.Do(t, "HSET", "far", owner+"1", "1")
	s.Do(t, "RPUSH", "redisson_lock_queue:{far}", owner+"g1-zzzzzzzzzzzz.1")
	s.Do(t, "HSET", "redlatch_fair:{far}", owner+"g1-zzzzzzzzzzzz.1", "9999999999999 300000000000000000 5000 30000 - ")
	s.Do(t, "HSET", strings.Repeat("n", 20<<20), owner+"1", "1")
	defer s.Do(t, "FLUSHALL")

	st, out, errs := call(t, s, "ls")
	if st != 0 || len(out) > 10_000 {
		t.Errorf("ls: status %d, %d bytes: %s", st, len(out), errs)
	}
	need(t, out, "shop/1", "stray", "unknown", "far", "bytes", "WRONGTYPE")
	prints(t, "ls", "", out+errs)
	st, out, errs = call(t, s, "ls", "-o", "json")
	var list []redlatch.Inspection
	if err := json.Unmarshal([]byte(out), &list); err != nil || st != 0 || len(list) != 4 {
		t.Errorf("ls -o json: status %d, %d locks, %v: %s", st, len(list), err, errs)
	}
	if st, out, errs := call(t, s, "show", "stray"); st == 0 || !strings.Contains(errs, "not a lock") {
		t.Errorf("show: %d %s%s", st, out, errs)
	}
	p := serving(t, s)
	seen := map[string]string{"locks": p.event("locks", ""), "lock": p.event("lock", "stray")}
	if len(seen["locks"]) > 10_000 {
		t.Errorf("the list has %d bytes", len(seen["locks"]))
	}
	need(t, seen["locks"], `"good"`, `"stray"`, `"far"`, `"total":4`)
	need(t, seen["lock"], `"problem":`)
	if strings.Contains(seen["locks"], `"total":4,"at":"0001`) {
		t.Error("the list has the time of what has none")
	}
	top := onTerminal(t, s, 200, 50, "top")
	top.shows(200, "good", "stray", "far", "4 locks")
	top.press("q")
	unlock(t, h)
}
