//go:build unix

package main

import (
	"context"
	"net/http"
	"net/url"
	"path/filepath"
	"strings"
	"sync"
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
	s, c := beside(t)
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

	got := call(t, s, "ls")
	testbed.Equal(t, len(got.rows()), len(names), "rows of ls")
	prints(t, "ls", "one\ntwo", got.out)
	got = call(t, s, "ls", "-o", "json").ends(exitOK)
	list := decoded[[]redlatch.Inspection](t, got.out)
	prints(t, "ls -o json", "one\ntwo", got.out)

	p := serving(t, s, "--allow-unlock", "--no-token")
	served := map[string]string{} // owners
	for _, l := range decoded[overview](t, p.event("locks", "")).Locks {
		served[l.Name] = l.Holders[0].Owner
	}
	if len(list) != len(names) || len(served) != len(names) {
		t.Fatalf("%d locks, listed are %d, served %d", len(names), len(list), len(served))
	}
	top := onTerminal(t, s, 200, 50, "top")
	lacks(t, top.shows(200, `\u202etxt.exe`), "\u202e", "\u2066", "\u009b")
	top.quit()

	for i, in := range list {
		h, ok := names[in.Name]
		if !ok || in.Holders[0].Owner != served[in.Name] {
			t.Errorf("%.80q is nobody's name, or its owner in serve is %.80q", in.Name, served[in.Name])
			continue
		}
		owner := in.Holders[0].Owner
		prints(t, "JSON", h, in.Name+in.Key+owner)
		got := call(t, s, "show", in.Name).ends(exitOK, "held")
		prints(t, "show", h, got.out+got.errs)
		got = call(t, s, "show", in.Name, "-o", "json")
		prints(t, "show -o json", h, got.out+got.errs)
		prints(t, "watch", h, firstWatched(t, s, in.Name))
		need(t, p.event("lock", in.Name), id)
		got = answering(t, s, strings.NewReader("no\n"), in.Name, "--owner", owner).ends(exitError, "takes the lock away from ")
		prints(t, "unlock", h, got.out+got.errs)
		if i%2 == 0 {
			got = call(t, s, "unlock", in.Name, "--owner", owner, "--yes").ends(exitOK)
			prints(t, "unlock", h, got.out+got.errs)
		} else {
			p.evict(in.Name, owner, "").is(http.StatusOK)
			p.says(strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(quote.Text(ownerOf(h)))) // its line of the log
		}
		if raw := inspect(t, c, "evil:"+h); raw.Held() && raw.Holders[0].Owner == ownerOf(h) {
			t.Errorf("the owner of %q is there", h)
		}
	}
	prints(t, "serve", "one\ntwo", p.text())
}

// firstWatched is what watch says first of a lock.
func firstWatched(t *testing.T, s *testbed.Server, name string) string {
	t.Helper()
	said := &command{t: t, ended: make(chan struct{})}
	ctx, cancel := context.WithCancel(t.Context())
	go func() { // ends with ctx
		defer close(said.ended)
		execute(ctx, []string{"--url", "redis://" + s.Addr(), "watch", name}, streams{strings.NewReader(""), said, said})
	}()
	said.says("held by")
	cancel()
	<-said.ended
	return said.text()
}

// What users give is shown by the same rules: in errors, whatever is wrong with it.
func TestHostileArguments(t *testing.T) {
	t.Parallel()
	s := server(t)
	missing := filepath.Join(t.TempDir(), "missing")
	p := serving(t, s, "--allow-unlock", "--no-token")
	check := func(h string, args ...string) {
		t.Helper()
		got := call(t, s, args...)
		prints(t, strings.Join(args[:min(len(args), 2)], " "), h, strings.ReplaceAll(got.out, "\t", " ")+got.errs)
	}
	var runs sync.WaitGroup // end with their commands; the race detector keeps each guard for a second
	for _, h := range testbed.Hostile {
		runs.Go(func() { check(h, "run", h, "--wait", "0", "--", "true") })
		for _, args := range [][]string{
			{h}, {"ls", h}, {"ls", "-o", h}, {"ls", "--" + h}, {"ls", "--limit", h}, {"ls", "--prefix", h}, {"show", h}, {"watch", h, "--interval", h},
			{"unlock", h, "--any-owner"}, {"unlock", "x", "--owner", h}, {"unlock", h, h}, {"doctor", "--need", h}, {"run", "x", "--kind", h, "--", "true"},
			{"run", h, "--", missing + h}, {"serve", "--listen", h}, {"serve", "--token-file", missing + h},
			{"top", h}, {"--url-file", missing + h, "ls"}, {"--url", h, "ls"}, {"--url", "redis://" + h + "@" + s.Addr(), "ls"}, {"--url", "redis://" + s.Addr() + "?x=" + h, "ls"},
			{"--password-file", missing + h, "ls"}, {"--tls-ca", missing + h, "ls"}, {"--client-name", h, "ls"}, {"--timeout", h, "ls"},
		} {
			if h == "" && args[0] != "ls" {
				continue
			}
			check(h, args...)
		}
		for _, path := range []string{"/", "/api/"} {
			if len(h) > 1000 {
				continue
			}
			if got := p.get(path + url.QueryEscape(h)); got.code != http.StatusOK {
				prints(t, "GET "+path, h, got.text)
			}
		}
		prints(t, "POST /api/unlock", h, p.evict(h, h, "").text)
	}
	runs.Wait()
	prints(t, "serve", "one\ntwo", p.text())
	call(t, s, "show", `C:\users`).fails(exitUsage, "give two for one") // a backslash that begins nothing
}

// What can't be read is one odd row of each list, a name of megabytes is skipped with a word, and no time is too far
// away to be told: one bad neighbour hides no lock.
func TestOddRows(t *testing.T) {
	s, c := beside(t, named("shop/1"))
	h := hold(t, c.RLock("good"))
	const owner = "8743c9c0-0795-4907-87fd-6c719a6b4586:"
	s.Do(t, "HSET", "stray", owner+"1", "1")
	s.Do(t, "SET", "redisson_lock_queue:{stray}", "x")
	s.Do(t, "HSET", "far", owner+"1", "1")
	s.Do(t, "RPUSH", "redisson_lock_queue:{far}", owner+"g1-zzzzzzzzzzzz.1")
	s.Do(t, "HSET", "redlatch_fair:{far}", owner+"g1-zzzzzzzzzzzz.1", "9999999999999 300000000000000000 5000 30000 - ")
	s.Do(t, "HSET", strings.Repeat("n", 20<<20), owner+"1", "1")
	defer s.Do(t, "FLUSHALL")

	got := call(t, s, "ls").ends(exitOK, "shop/1", "stray", "unknown", "far", "bytes", "WRONGTYPE")
	testbed.AtMost(t, len(got.out), 10_000, "bytes of ls")
	prints(t, "ls", "", got.out+got.errs)
	got = call(t, s, "ls", "-o", "json").ends(exitOK)
	testbed.Equal(t, len(decoded[[]redlatch.Inspection](t, got.out)), 4, "locks of ls -o json")
	call(t, s, "show", "stray").fails(exitError, "not a lock")
	p := serving(t, s)
	seen := map[string]string{"locks": p.event("locks", ""), "lock": p.event("lock", "stray")}
	testbed.AtMost(t, len(seen["locks"]), 10_000, "bytes of the list")
	need(t, seen["locks"], `"good"`, `"stray"`, `"far"`, `"total":4`)
	need(t, seen["lock"], `"problem":`)
	lacks(t, seen["locks"], `"total":4,"at":"0001`) // the time of what has none
	top := onTerminal(t, s, 200, 50, "top")
	top.shows(200, "good", "stray", "far", "4 locks")
	top.quit()
	unlock(t, h)
}
