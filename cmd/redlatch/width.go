package main

import "github.com/mattn/go-runewidth"

// columns counts what a text takes of a terminal. What is ambiguous takes one column, whatever the locale says: the
// tables' own signs are.
var columns = &runewidth.Condition{}

// columnsOf is how many columns of a terminal a text takes that prints.
func columnsOf(s string) int { return columns.StringWidth(s) }

// head is the longest beginning of a text that takes at most n columns.
func head(s string, n int) string { return columns.Truncate(s, n, "") }

// cut makes a text take at most n columns; with n below 1 it stays as it is.
func cut(s string, n int) string {
	if n < 1 {
		return s
	}
	return columns.Truncate(s, n, "…")
}

// cutMiddle is cut that keeps both ends: names and owners begin alike, and differ at their ends.
func cutMiddle(s string, n int) string {
	all := columnsOf(s)
	if n < 1 || all <= n {
		return s
	}
	begin := head(s, n/3)
	return begin + columns.TruncateLeft(s, all-(n-1-columnsOf(begin)), "…")
}
