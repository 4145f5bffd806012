package redlatch_test

import (
	"os"
	"regexp"
	"testing"
)

// defaults finds the variables that a Makefile gives a default.
var defaults = regexp.MustCompile(`(?m)^([A-Z_]+) *\?=`)

// Make takes the first default of a variable and ignores the others, without a word: each variable has one.
func TestMakefileHasOneDefaultPerVariable(t *testing.T) {
	text, err := os.ReadFile("Makefile")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	for _, found := range defaults.FindAllStringSubmatch(string(text), -1) {
		if seen[found[1]] {
			t.Errorf("the Makefile gives %s two defaults", found[1])
		}
		seen[found[1]] = true
	}
	if len(seen) < 5 {
		t.Errorf("only %d variables were found", len(seen))
	}
}
