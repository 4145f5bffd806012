//go:build unix

package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/testbed"
)

// eachRight asks the doctor as a user who has all rights of a need but one, and all: it names the one, and leaves no key.
func eachRight(t *testing.T, need string, nodes []*testbed.Server, url string) {
	t.Helper()
	base := acl.Rules(need)
	for i, without := range append([]string{""}, acl.Own(need)...) {
		prefix := fmt.Sprintf("%s%d:", need, i)
		rules := slices.DeleteFunc(slices.Clone(base), func(r string) bool { return r == without })
		user := need + strconv.Itoa(i)
		for _, s := range nodes {
			s.SetUser(t, user, append([]string{"on", ">pw"}, acl.For(prefix, rules)...)...)
		}
		got := call(t, nil, "doctor", "--need", need, "--prefix", prefix, "-o", "json", "--url", strings.Replace(url, "//", "//"+user+":pw@", 1))
		missing := acl.For(prefix, []string{without})[0]
		var findings []finding
		_ = json.Unmarshal([]byte(got.out), &findings) // there are none where it can't connect
		named := slices.ContainsFunc(findings, func(f finding) bool {
			said := strings.Fields(strings.TrimPrefix(strings.Split(f.Text, ";")[0], "missing: "))
			return f.Level == problem && strings.HasPrefix(f.Check, "permissions") && slices.Equal(said, []string{missing})
		})
		switch {
		case without == "+hello" || without == "": // everybody may, since 7.0
			got.ends(exitOK)
		case got.status == exitError && strings.Contains(got.errs, "'"+without[1:]+"'"): // it needs that to connect
		case got.status != exitError || !named:
			t.Errorf("%s without %s: %d\n%s%s", need, without, got.status, got.out, got.errs)
		}
		for _, s := range nodes {
			until(t, need+" without "+without+": no key", func() bool { return len(s.List(t, "KEYS", "*"+prefix+"*")) == 0 })
		}
	}
}

// A server that runs no scripts is not taken for a user who lacks a right.
func TestDoctorWithoutScripts(t *testing.T) {
	t.Parallel()
	s := testbed.Standalone(t, "--rename-command", "EVAL", "")
	got := call(t, s, "doctor").ends(exitError, "scripts can't be run", "unknown command 'EVAL'")
	lacks(t, got.out, "missing: ")
}

// Each right that is missing is named, and only that; no key is left behind, and the exit status tells.
func TestDoctorNamesEachRight(t *testing.T) {
	t.Parallel()
	s := server(t)
	for _, need := range needs() {
		if need != "cluster" && need != "sentinel" {
			eachRight(t, need, []*testbed.Server{s}, "redis://"+s.Addr())
		}
	}
}

// The rules that docs/ACL.md shows for each command are enough for it.
func TestCommandsACL(t *testing.T) {
	t.Parallel()
	s := server(t)
	look, names, lists, numbers, forced := acl.Rules("operators"), acl.Own("names"), acl.Own("list"), acl.Own("numbers"), acl.Own("evict")
	flags := []string{"--url", "redis://ops:secret@" + s.Addr(), "--prefix", "app:"}
	user := func(sets ...[]string) {
		s.SetUser(t, "ops", append([]string{"on", ">secret"}, slices.Concat(sets...)...)...)
	}
	as := func(args ...string) outcome { t.Helper(); return call(t, nil, append(flags, args...)...) }
	shop := client(t, s, named("app/1"), func(c *redlatch.Config) { c.Prefix = "app:" })
	h := hold(t, shop.FairLock("x"))
	waits := waiting(t, t.Context(), shop.FairLock("x"))
	untilQueued(t, shop, "x", 1)

	user(look)
	as("show", "x").ends(exitOK, shop.ID())
	as("ls").fails(exitError, "scan")
	user(look, names, lists, numbers)
	as("ls").ends(exitOK, "app/1")
	as("show", "x", "-o", "json").ends(exitOK, `"`+h.Owner().String()+`"`)
	evict := []string{"unlock", "x", "--owner", h.Owner().String(), "--yes"}
	as(evict...).fails(exitError)
	isHeld(t, shop, "x", true)
	user(look, names, lists, numbers, forced)
	as(evict...).ends(exitOK)
	taken(t, h)
	unlock(t, <-waits)

	// The pages of serve and the screen of top.
	top := onTerminal(t, s, 90, 20, append([]string{"top"}, flags...)...)
	top.shows(90, "no locks")
	top.quit()
	held := hold(t, shop.RLock("y"))
	top = onTerminal(t, s, 90, 20, append([]string{"top", "--listen"}, flags...)...)
	if screen := top.shows(90, "app/1", "it does not listen", "psubscribe"); strings.Contains(screen, "≥") || !strings.Contains(screen, "  ?") {
		t.Errorf("it counts turns:\n%s", screen)
	}
	unlock(t, held)
	user(acl.Rules("names", "listen"))
	top = onTerminal(t, s, 90, 20, append([]string{"top", "--listen"}, flags...)...)
	top.listens(s)
	top.shows(90, "no locks")
	need(t, serving(t, s, flags...).event("locks", ""), `"total":0`)
}
