//go:build unix

package main

import (
	"context"
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
		st, out, errs := callWith(t, "", nil, "doctor", "--need", need, "--prefix", prefix, "-o", "json", "--url", strings.Replace(url, "//", "//"+user+":pw@", 1))
		missing := acl.For(prefix, []string{without})[0]
		var findings []finding
		_ = json.Unmarshal([]byte(out), &findings)
		named := slices.ContainsFunc(findings, func(f finding) bool {
			said := strings.Fields(strings.TrimPrefix(strings.Split(f.Text, ";")[0], "missing: "))
			return f.Level == problem && strings.HasPrefix(f.Check, "permissions") && slices.Equal(said, []string{missing})
		})
		switch {
		case without == "+hello" || without == "": // everybody may, since 7.0
			if st != 0 {
				t.Errorf("%s with all rights: %d %s%s", need, st, out, errs)
			}
		case st == exitUnavailable && strings.Contains(errs, "'"+without[1:]+"'"): // it needs that to connect
		case st != exitError || !named:
			t.Errorf("%s without %s: %d\n%s%s", need, without, st, out, errs)
		}
		for _, s := range nodes {
			until(t, need+" without "+without+": no key", func() bool { return len(s.List(t, "KEYS", "*"+prefix+"*")) == 0 }, func() string { return "" })
		}
	}
}

// Each right that is missing is named, and only that; no key is left behind, and the exit status tells.
func TestDoctorNamesEachRight(t *testing.T) {
	s := server(t)
	for _, need := range needs() {
		if need != "cluster" && need != "sentinel" {
			eachRight(t, need, []*testbed.Server{s}, "redis://"+s.Addr())
		}
	}
}

// The rules that docs/ACL.md shows for each command are enough for it.
func TestCommandsACL(t *testing.T) {
	s := server(t)
	look, names, lists, numbers, forced := acl.Rules("operators"), acl.Own("names"), acl.Own("list"), acl.Own("numbers"), acl.Own("evict")
	user := func(sets ...[]string) {
		s.Do(t, append([]string{"ACL", "SETUSER", "ops", "reset", "on", ">secret"}, slices.Concat(sets...)...)...)
	}
	as := func(args ...string) (int, string, string) {
		return callWith(t, "", nil, append([]string{"--url", "redis://ops:secret@" + s.Addr(), "--prefix", "app:"}, args...)...)
	}
	shop := client(t, s, named("app/1"), func(c *redlatch.Config) { c.Prefix = "app:" })
	h := hold(t, shop.FairLock("x"))
	ctx, cancel := context.WithCancel(t.Context())
	waits := make(chan redlatch.Hold, 1)
	go func() { // ends with the lock
		h, err := shop.FairLock("x").Lock(ctx)
		if err != nil {
			t.Error(err)
		}
		waits <- h
	}()
	defer cancel()
	untilState(t, shop, "x", func(in redlatch.Inspection) bool { return in.QueueLength == 1 })

	user(look)
	if st, out, errs := as("show", "x"); st != 0 || !strings.Contains(out, shop.ID()) {
		t.Errorf("show: %d %s%s", st, out, errs)
	}
	if st, _, errs := as("ls"); st != exitError || !strings.Contains(errs, "scan") {
		t.Errorf("ls without +scan: %d %s", st, errs)
	}
	user(look, names, lists, numbers)
	if st, out, errs := as("ls"); st != 0 || !strings.Contains(out, "app/1") {
		t.Errorf("ls: %d %s%s", st, out, errs)
	}
	st, out, errs := as("show", "x", "-o", "json")
	var in redlatch.Inspection
	if err := json.Unmarshal([]byte(out), &in); err != nil || st != 0 {
		t.Fatalf("show: %d %s %v", st, errs, err)
	}
	owner := in.Holders[0].Owner
	if st, _, errs := as("unlock", "x", "--owner", owner, "--yes"); st != exitError || inspect(t, shop, "x").Holders[0].Owner != owner {
		t.Errorf("unlock without the right: %d %s", st, errs)
	}
	user(look, names, lists, numbers, forced)
	if st, _, errs := as("unlock", "x", "--owner", owner, "--yes"); st != 0 || inspect(t, shop, "x").Holders[0].Owner == owner {
		t.Errorf("unlock: %d %s", st, errs)
	}
	_ = h.Unlock(t.Context())
	unlock(t, <-waits)

	// The pages of serve and the screen of top.
	top := onTerminal(t, s, 90, 20, "top", "--url", "redis://ops:secret@"+s.Addr(), "--prefix", "app:")
	top.shows(90, "no locks")
	top.press("q")
	if st := top.status(); st != 0 {
		t.Errorf("top: %d", st)
	}
	listens := func() *terminal {
		return onTerminal(t, s, 90, 20, "top", "--listen", "--url", "redis://ops:secret@"+s.Addr(), "--prefix", "app:")
	}
	held := hold(t, shop.RLock("y"))
	if screen := listens().shows(90, "app/1", "it does not listen", "psubscribe"); strings.Contains(screen, "≥") || !strings.Contains(screen, "  ?") {
		t.Errorf("it counts turns:\n%s", screen)
	}
	unlock(t, held)
	user(acl.Rules("names", "listen"))
	top = listens()
	until(t, "it listens", func() bool { n := s.Do(t, "PUBSUB", "NUMPAT"); v, _ := n.AsInt64(); return v == 3 }, top.screen)
	top.shows(90, "no locks")
	p := serving(t, s, "--url", "redis://ops:secret@"+s.Addr(), "--prefix", "app:")
	need(t, p.event("locks", ""), `"total":0`)
}
