package testbed

import "strings"

// Hostile is what may stand in a name, an owner, a field, a client's name or an error of a
// server, and must not act on a terminal, forge a line of a log, or fill a memory.
var Hostile = []string{
	"",
	" ",
	"\x00",
	"a\x00b",
	"\a\b\t\v\f",
	"one\ntwo",
	"one\r\ntwo",
	"one\rtwo",
	"\n",
	"level=ERROR msg=forged\nlevel=INFO msg=forged",
	"\x1b[31mred\x1b[0m",
	"\x1b[2J\x1b[H",
	"\x1b]0;title\a",
	"\x1b]8;;https://example.com\x1b\\link\x1b]8;;\x1b\\",
	"\x1b]52;c;cm0gLXJmIC8=\a",
	"\x1bP+q544e\x1b\\",
	"\x9b31mred",       // CSI in one byte, not UTF-8
	"\u009b31mred",     // the same in UTF-8
	"\u0085next line",  // NEL
	"one\u2028two",     // line separator
	"one\u2029two",     // paragraph separator
	"\u202Etxt.exe",    // from here to the left
	"\u2066left\u2069", // isolates
	"\u200Emark\u200F\u061C",
	"zero\u200Bwidth\u200D\uFEFF",
	"\U000E0041\U000E0042", // tags
	"\xff\xfe not UTF-8",
	"half \xe2\x82",
	"\x7f",
	`back\slash "quoted" 'so' <b>&amp;</b> $(id) ` + "`id`",
	`%s %d %!v(MISSING) {{.}} ${x}`,
	strings.Repeat("long", 300_000),
	strings.Repeat("\x1b[31m", 100_000),
	strings.Repeat("\u202E", 100_000),
}
