package testbed

import (
	"fmt"
	"os"
	"sync"
)

// VarUntested names a file that what was not tested is appended to, a line for each. go test shows
// nothing of tests that pass or are skipped; scripts/test.sh lists the file at the end.
const VarUntested = "REDLATCH_UNTESTED"

var untestedMu sync.Mutex // around the appending

// Untested notes that something was not tested, or only after a retry, and why; the test goes on.
func Untested(tb TB, format string, args ...any) {
	tb.Helper()
	text := "NOT TESTED: " + fmt.Sprintf(format, args...)
	tb.Logf("%s", text)
	path := os.Getenv(VarUntested)
	if path == "" {
		return
	}
	untestedMu.Lock()
	defer untestedMu.Unlock()
	f, err := os.OpenFile(path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600) // #nosec G304 -- the caller's file
	if err == nil {
		_, err = fmt.Fprintln(f, text)
		if closed := f.Close(); err == nil {
			err = closed
		}
	}
	if err != nil {
		tb.Errorf("%s: %v", VarUntested, err)
	}
}

// Skip is Untested, and skips the test; it ends what can't be skipped.
func Skip(tb TB, format string, args ...any) {
	tb.Helper()
	Untested(tb, format, args...)
	if t, ok := tb.(interface {
		Helper()
		SkipNow()
	}); ok {
		t.Helper()
		t.SkipNow()
	}
	tb.Fatalf(format, args...)
}
