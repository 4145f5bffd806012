package testbed

import (
	"bytes"
	"context"
	"fmt"
	"runtime/pprof"
	"strings"
)

// Mark runs f, marked: the goroutine, and all that f starts, count for [MarkedIn]. A test tells
// its own from those of the tests that run beside it.
func Mark(mark string, f func()) {
	pprof.Do(context.Background(), pprof.Labels("testbed", mark), func(context.Context) { f() })
}

// MarkedIn counts the goroutines with this mark and a function on their stack, named by the end of
// its whole name: a caller that waits has no other sign when it asks the server nothing.
func MarkedIn(mark, function string) int {
	var text bytes.Buffer
	_ = pprof.Lookup("goroutine").WriteTo(&text, 1) // a buffer takes everything
	label, frame, count := fmt.Sprintf("%q:%q", "testbed", mark), function+"+0x", 0
	for record := range strings.SplitSeq(text.String(), "\n\n") {
		var alike int // goroutines with equal stacks and marks stand together
		if !strings.Contains(record, label) || !strings.Contains(record, frame) {
			continue
		}
		// Of the first record a headline goes before: "goroutine profile: total 7".
		head, _, _ := strings.Cut(record, " @ ")
		if _, err := fmt.Sscan(head[strings.LastIndex(head, "\n")+1:], &alike); err == nil {
			count += alike
		}
	}
	return count
}
