package quote

import (
	"strconv"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/testbed"
)

// shown fails unless text may be shown.
func shown(t *testing.T, of, text string, limit int) {
	t.Helper()
	if len(text) > limit || !utf8.ValidString(text) || strings.ContainsFunc(text, func(r rune) bool { return !unicode.IsPrint(r) }) {
		t.Errorf("of %.80q: %.400q (%d bytes)", of, text, len(text))
	}
}

func TestHostileTextIsShownAsCharacters(t *testing.T) {
	for _, s := range testbed.Hostile {
		text, line, name := Text(s), Line(s), Name(s)
		shown(t, s, text, MaxText)
		shown(t, s, line, MaxLine)
		shown(t, s, name, 10*MaxName+40)
		if again := Line(line); again != line {
			t.Errorf("of %.80q: the line of a line is %.200q", s, again)
		}
		if mixed := Line("redlatch: " + text + ": " + line + ": " + name); strings.Contains(mixed, `\\x`) && !strings.Contains(s, `\`) {
			t.Errorf("of %.80q: escaped twice: %.200q", s, mixed)
		}
	}
}

// TestTextsAreNotShownAlike: what is short can be read back.
func TestTextsAreNotShownAlike(t *testing.T) {
	for _, s := range append([]string{`\x1b`, "\x1b", `a\b`, "ä ö 漢字 🙂", "\ufffd"}, testbed.Hostile...) {
		if len(s) > 40 {
			continue
		}
		if back, err := strconv.Unquote(`"` + strings.ReplaceAll(Text(s), `"`, `\"`) + `"`); err != nil || back != s {
			t.Errorf("%q is shown as %s, which reads %q %v", s, Text(s), back, err)
		}
	}
}

// TestExactIsReadBack: what Exact writes is Parse's, whatever it is, and so is a name from a message.
func TestExactIsReadBack(t *testing.T) {
	for _, s := range append([]string{`\x1b`, `C:\temp`, "\ufffd", "\xc3", "\u00a0", "\U0010ffff", `"`}, testbed.Hostile...) {
		text := Exact(s)
		shown(t, s, text, 10*len(s))
		if back, err := Parse(text); err != nil || back != s {
			t.Errorf("%.80q is written %.200s, which reads %.80q %v", s, text, back, err)
		}
		if name := Name(s); len(s) <= MaxName {
			if back, err := Parse(name[1 : len(name)-1]); err != nil || back != s {
				t.Errorf("%.80q is named %.200s, which reads %.80q %v", s, name, back, err)
			}
		}
	}
	for _, text := range []string{`\`, `a\qb`, `\x1`, `\ud800`, `\'`} {
		if back, err := Parse(text); err == nil {
			t.Errorf("%s reads %q", text, back)
		}
	}
}

func TestPlainTextStaysAsItIs(t *testing.T) {
	for _, s := range []string{"", "8743c9c0-0795-4907-87fd-6c719a6b4586:g=job 1-k3j.1", "ä ö 漢字 🙂", `"quoted"`, strings.Repeat("x", MaxText)} {
		if Text(s) != s || Line(s) != s {
			t.Errorf("%q: %q %q", s, Text(s), Line(s))
		}
	}
	if got := Line("one\r\n two;\u2028three\n"); got != "one; two;; three" {
		t.Errorf("%q", got)
	}
}

// TestLongTextKeepsBothEnds, without half characters and with its length.
func TestLongTextKeepsBothEnds(t *testing.T) {
	got := Text("begin" + strings.Repeat("ä", 5_000_000) + "end")
	if !strings.HasPrefix(got, "beginä") || !strings.HasSuffix(got, "äend") || !strings.Contains(got, "(10000008 bytes)") || strings.Contains(got, `\x`) {
		t.Errorf("%q", got)
	}
	if got := Name(strings.Repeat("ä", MaxName)); !strings.HasSuffix(got, `ä"… (240 bytes)`) {
		t.Errorf("%q", got)
	}
}
