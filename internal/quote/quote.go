// Package quote makes text from outside fit to be shown: what stands in Redis, what a
// server, a request or a caller says. It may hold terminal escapes, line breaks that forge
// a line of a log, letters that turn the reading direction round, or megabytes.
//
// What comes out has none of that: characters that print, on one line, of bounded length.
// Everything else is shown as in a Go string: \n, \x1b, \u202e. Plain text stays as it is.
package quote

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"
)

// The longest text that is shown, in bytes.
const (
	MaxText = 256  // of an owner, an address, a client's name
	MaxName = 120  // of a lock's name, before it is quoted
	MaxLine = 4096 // of a message
)

// Text shows a text of somebody else: an owner, a client's name, an address. A backslash is
// doubled, so two texts are never shown alike unless they are cut. A long one is cut in the
// middle: owners begin alike and differ at their ends.
func Text(s string) string {
	n := len(s)
	if n > MaxText {
		s = s[:MaxText/2] + s[n-MaxText/2:] // enough of it to be cut again below
	} else if plain(s, true) {
		return s
	}
	var b strings.Builder
	escape(&b, s, true)
	out := b.String()
	if n <= MaxText && len(out) <= MaxText {
		return out
	}
	const keep = MaxText/2 - 24
	return whole(out[:keep]) + fmt.Sprintf("… (%d bytes) …", n) + tail(out[len(out)-keep:])
}

// Exact is Text without a bound, for programs and for people who copy: Parse reads it back.
func Exact(s string) string {
	if plain(s, true) {
		return s
	}
	var b strings.Builder
	escape(&b, s, true)
	return b.String()
}

// Parse reads what Exact made, and what stands between the quotation marks of Name. It fails where a backslash
// begins nothing that they write.
func Parse(text string) (string, error) {
	if !strings.Contains(text, `\`) {
		return text, nil
	}
	var b []byte
	for text != "" {
		if text[0] != '\\' {
			b, text = append(b, text[0]), text[1:]
			continue
		}
		r, multibyte, rest, err := strconv.UnquoteChar(text, '"')
		switch {
		case err != nil:
			return "", err
		case multibyte:
			b = utf8.AppendRune(b, r)
		default:
			b = append(b, byte(r))
		}
		text = rest
	}
	return string(b), nil
}

// Name shows a lock's name in a message, in quotation marks.
func Name(name string) string {
	if len(name) > MaxName {
		return fmt.Sprintf("%q… (%d bytes)", whole(name[:MaxName]), len(name))
	}
	return strconv.Quote(name)
}

// Line shows a message that may consist of several lines, or quote somebody: lines are joined
// by "; ". The line of a line is that line, so messages can contain each other.
func Line(s string) string {
	if len(s) <= MaxLine && plain(s, false) {
		return s
	}
	n := len(s)
	var b strings.Builder
	for i, l := range strings.FieldsFunc(s[:min(n, 2*MaxLine)], ends) {
		if i > 0 {
			b.WriteString("; ")
		}
		escape(&b, strings.TrimSpace(l), false)
	}
	out := b.String()
	if n <= 2*MaxLine && len(out) <= MaxLine {
		return out
	}
	return whole(out[:min(len(out), MaxLine-40)]) + fmt.Sprintf("… (%d bytes)", n)
}

// ends reports whether a line ends here, for one reader or another.
func ends(r rune) bool {
	switch r {
	case '\n', '\v', '\f', '\r', 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// plain reports whether s can be shown as it is.
func plain(s string, slashes bool) bool {
	for i := 0; i < len(s); {
		c := s[i]
		if c < utf8.RuneSelf {
			if c < ' ' || c == 0x7f || slashes && c == '\\' {
				return false
			}
			i++
			continue
		}
		r, size := utf8.DecodeRuneInString(s[i:])
		if r == utf8.RuneError && size == 1 || !strconv.IsPrint(r) {
			return false
		}
		i += size
	}
	return true
}

func escape(b *strings.Builder, s string, slashes bool) {
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == '\\' && slashes:
			b.WriteString(`\\`)
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(b, `\x%02x`, s[i])
		case strconv.IsPrint(r):
			b.WriteRune(r)
		default:
			quoted := strconv.QuoteRune(r)
			b.WriteString(quoted[1 : len(quoted)-1])
		}
		i += size
	}
}

// whole is s without the half character at its end.
func whole(s string) string {
	for n := 1; n < utf8.UTFMax && n <= len(s); n++ {
		if c := s[len(s)-n]; utf8.RuneStart(c) {
			if !utf8.FullRuneInString(s[len(s)-n:]) {
				return s[:len(s)-n]
			}
			break
		}
	}
	return s
}

// tail is s without the half character at its beginning.
func tail(s string) string {
	for n := 0; n < utf8.UTFMax && n < len(s); n++ {
		if utf8.RuneStart(s[n]) {
			return s[n:]
		}
	}
	return s
}
