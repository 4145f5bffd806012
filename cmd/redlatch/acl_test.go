//go:build unix

package main

import (
	"context"
	"encoding/json"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
)

// documented reads the rules of docs/ACL.md: the block for users who look, and the rows of
// the table for operators. In a table Markdown writes | as \|.
func documented(t *testing.T) (look []string, rows map[string][]string) {
	t.Helper()
	doc, err := os.ReadFile("../../docs/ACL.md")
	if err != nil {
		t.Fatal(err)
	}
	_, part, _ := strings.Cut(string(doc), "## For operators")
	_, block, _ := strings.Cut(part, "ACL SETUSER looks reset on >secret")
	block, _, _ = strings.Cut(block, "```")
	rows = map[string][]string{}
	for line := range strings.Lines(part) {
		if cells := strings.Split(line, "| "); strings.HasPrefix(line, "| ") && len(cells) == 3 {
			rows[strings.TrimSpace(cells[1])] = regexp.MustCompile(`[~&+][a-z_{}:*|]+`).FindAllString(strings.ReplaceAll(cells[2], `\|`, "|"), -1)
		}
	}
	return strings.Fields(block), rows
}

// docs/ACL.md shows the table of uses, from which doctor tells what a user lacks.
func TestACLDocumentIsTheTable(t *testing.T) {
	text, err := os.ReadFile("../../docs/ACL.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, u := range uses {
		shown := u.rules
		if u.doc != "" {
			var places, commands []string
			for _, rule := range strings.Fields(strings.ReplaceAll(u.rules, "|", `\|`)) {
				if strings.HasPrefix(rule, "+") {
					commands = append(commands, rule)
				} else {
					places = append(places, rule)
				}
			}
			shown = "\n| " + u.doc + " | "
			for _, rules := range [][]string{places, commands} {
				if len(rules) > 0 {
					shown += "`" + strings.Join(rules, " ") + "` "
				}
			}
			shown = strings.TrimSuffix(shown, " ")
		}
		if !strings.Contains(string(text), shown) {
			t.Errorf("docs/ACL.md does not say:\n%s", shown)
		}
	}
}

// The rules that docs/ACL.md shows for each command are enough for it.
func TestCommandsACL(t *testing.T) {
	s := server(t)
	look, rows := documented(t)
	row := func(begins string) []string {
		for name, rules := range rows {
			if strings.HasPrefix(name, begins) {
				return rules
			}
		}
		t.Fatalf("docs/ACL.md has no row %q", begins)
		return nil
	}
	names, lists, numbers, forced := row("names and"), row("`Locks`"), row("the number"), row("`ForceUnlock`")
	if !slices.Contains(numbers, "+pubsub|numsub") || !slices.Equal(names, []string{"+client|list"}) {
		t.Fatalf("read from docs/ACL.md: for numbers %q, for names %q", numbers, names)
	}
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
	listens().shows(90, "no locks", "it does not listen", "psubscribe")
	user(look, names, lists, []string{"+psubscribe", "+punsubscribe", "&redisson_lock__channel:*", "&redisson_rwlock:*", "&redlatch_grant:*"})
	top = listens()
	until(t, "it listens", func() bool { n := s.Do(t, "PUBSUB", "NUMPAT"); v, _ := n.AsInt64(); return v == 3 }, top.screen)
	top.shows(90, "no locks")
	p := serving(t, s, "--url", "redis://ops:secret@"+s.Addr(), "--prefix", "app:")
	need(t, p.event("locks", ""), `"total":0`)
}
