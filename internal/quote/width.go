package quote

import (
	"unicode"
	"unicode/utf8"
)

// wide are the characters that take two columns of a terminal, besides those of the scripts in columns: punctuation and
// signs of East Asia, and pictures.
var wide = &unicode.RangeTable{
	R16: []unicode.Range16{
		{Lo: 0x1100, Hi: 0x115f, Stride: 1}, {Lo: 0x231a, Hi: 0x231b, Stride: 1}, {Lo: 0x23e9, Hi: 0x23ec, Stride: 1}, {Lo: 0x2614, Hi: 0x2615, Stride: 1},
		{Lo: 0x2648, Hi: 0x2653, Stride: 1}, {Lo: 0x26a1, Hi: 0x26a1, Stride: 1}, {Lo: 0x2705, Hi: 0x2705, Stride: 1}, {Lo: 0x2728, Hi: 0x2728, Stride: 1},
		{Lo: 0x274c, Hi: 0x274c, Stride: 1}, {Lo: 0x2b50, Hi: 0x2b50, Stride: 1}, {Lo: 0x2e80, Hi: 0x303e, Stride: 1}, {Lo: 0x3041, Hi: 0x4dbf, Stride: 1},
		{Lo: 0x4e00, Hi: 0xa4cf, Stride: 1}, {Lo: 0xa960, Hi: 0xa97c, Stride: 1}, {Lo: 0xac00, Hi: 0xd7a3, Stride: 1}, {Lo: 0xf900, Hi: 0xfaff, Stride: 1},
		{Lo: 0xfe10, Hi: 0xfe19, Stride: 1}, {Lo: 0xfe30, Hi: 0xfe6b, Stride: 1}, {Lo: 0xff01, Hi: 0xff60, Stride: 1}, {Lo: 0xffe0, Hi: 0xffe6, Stride: 1},
	},
	R32: []unicode.Range32{
		{Lo: 0x16fe0, Hi: 0x1b2fb, Stride: 1}, {Lo: 0x1f004, Hi: 0x1f004, Stride: 1}, {Lo: 0x1f0cf, Hi: 0x1f0cf, Stride: 1}, {Lo: 0x1f18e, Hi: 0x1f18e, Stride: 1},
		{Lo: 0x1f191, Hi: 0x1f19a, Stride: 1}, {Lo: 0x1f1e6, Hi: 0x1f64f, Stride: 1}, {Lo: 0x1f680, Hi: 0x1f6ff, Stride: 1}, {Lo: 0x1f7e0, Hi: 0x1f7eb, Stride: 1},
		{Lo: 0x1f900, Hi: 0x1faff, Stride: 1}, {Lo: 0x20000, Hi: 0x3fffd, Stride: 1},
	},
}

// columns is how many columns of a terminal a character takes.
func columns(r rune) int {
	switch {
	case r < 0x300:
		return 1
	case unicode.In(r, unicode.Mn, unicode.Me) || r >= 0x1160 && r <= 0x11ff: // it joins the one before it
		return 0
	case unicode.Is(wide, r):
		return 2
	}
	return 1
}

// Width is how many columns of a terminal a text takes that prints.
func Width(s string) (n int) {
	for _, r := range s {
		n += columns(r)
	}
	return n
}

// Head is the longest beginning of a text that takes at most n columns.
func Head(s string, n int) string {
	for i, r := range s {
		if n -= columns(r); n < 0 {
			return s[:i]
		}
	}
	return s
}

// tailOf is the longest end of a text that takes at most n columns.
func tailOf(s string, n int) string {
	for i := len(s); i > 0; {
		r, size := utf8.DecodeLastRuneInString(s[:i])
		if n -= columns(r); n < 0 {
			return s[i:]
		}
		i -= size
	}
	return s
}

// Cut makes a text take at most n columns; with n below 1 it stays as it is.
func Cut(s string, n int) string {
	if n < 1 || Width(s) <= n {
		return s
	}
	return Head(s, n-1) + "…"
}

// CutMiddle is Cut that keeps both ends: names and owners begin alike, and differ at their ends.
func CutMiddle(s string, n int) string {
	if n < 1 || Width(s) <= n {
		return s
	}
	head := Head(s, n/3)
	return head + "…" + tailOf(s, n-1-Width(head))
}
