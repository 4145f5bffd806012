package main

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/redlatch/redlatch/internal/testbed"
)

// Texts of any script take the columns that a terminal gives them, and are cut to what is there, between characters.
func TestWidth(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]int{
		"": 0, "orders:42": 9, "prüfung": 7, "pru\u0308fung": 7, "заказ": 5, "注文:42": 7, "ロック": 6, "ﾛｯｸ": 3, "주문": 4, "한": 2, "ＡＢ": 4, "🔒:1": 4, "𠮷": 2,
		"ا\u064eلطلب": 5, "हि": 2, "…": 1, "┼": 1,
	} {
		testbed.Equal(t, columnsOf(text), want, text)
		for n := 1; n < 12; n++ {
			for _, cut := range []string{cut(text, n), cutMiddle(text, n)} {
				if w := columnsOf(cut); w > n || w < min(n, want)-2 || !utf8.ValidString(cut) || (n >= want) != (cut == text) {
					t.Errorf("%q cut to %d columns: %q", text, n, cut)
				}
			}
		}
	}
	testbed.Equal(t, cutMiddle("{tag}orders:42", 9), "{ta…rs:42")
	testbed.Equal(t, cutMiddle("注文:"+strings.Repeat("x", 20)+":42", 9), "注…xxx:42")
}
