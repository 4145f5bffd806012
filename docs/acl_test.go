package docs

import (
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/redlatch/redlatch/internal/acl"
	"github.com/redlatch/redlatch/internal/testbed"
)

// The blocks and tables of docs/ACL.md are those of internal/acl, from which redlatch doctor tells what a user lacks.
func TestACLPage(t *testing.T) {
	const path = "docs/ACL.md"
	page := read(t, path)
	var shown []string
	want := regexp.MustCompile(`(?s)<!-- acl: (block|table) [a-z]+ -->\n.*?<!-- to here -->\n`).ReplaceAllStringFunc(page, func(part string) string {
		about, _, _ := strings.Cut(part, "\n")
		words := strings.Fields(about)
		shown = append(shown, words[2]+" "+words[3])
		show := map[string]func(string) string{"block": block, "table": table}[words[2]]
		return about + "\n" + show(words[3]) + "<!-- to here -->\n"
	})
	testbed.Equal(t, strings.Join(shown, ", "), "block reentrant, table reentrant, block sentinels, block operators, table operators", "the page shows")
	if *update {
		write(t, path, want)
	} else if page != want {
		t.Errorf("%s shows other rights than internal/acl: make acl", path)
	}
}

// The page says of each key and each channel what the right to it is worth.
func TestEachRightHasItsWorth(t *testing.T) {
	_, worth, _ := strings.Cut(read(t, "docs/ACL.md"), "## What a right is worth")
	worth, _, _ = strings.Cut(worth, "## Notes")
	for _, rule := range acl.Rules("links", "fair", "read-write", "once", "evict", "record") {
		if rule[0] != '+' && !strings.Contains(worth, "`"+rule+"`") {
			t.Errorf("docs/ACL.md does not say what %s is worth", rule)
		}
	}
}

// block is a user's rights as a command.
func block(need string) string {
	for _, u := range acl.Uses {
		if u.Need == need {
			return "```\nACL SETUSER " + u.Row + " reset resetchannels on >secret\n  " + strings.TrimSpace(u.Rules) + "\n```\n"
		}
	}
	return ""
}

// table has the uses that need more than another one.
func table(root string) string {
	var b strings.Builder
	fmt.Fprintln(&b, "| for | `--need` | add |\n|---|---|---|")
	for _, u := range acl.Uses {
		if u.With == "" || acl.Root(u.Need) != root {
			continue
		}
		fmt.Fprintf(&b, "| %s | `%s` | ", u.Row, u.Need)
		if u.With != root {
			fmt.Fprintf(&b, "what `%s` needs, ", u.With)
		}
		fmt.Fprintf(&b, "`%s` |\n", strings.ReplaceAll(strings.Join(strings.Fields(u.Rules), " "), "|", `\|`))
	}
	return b.String()
}
