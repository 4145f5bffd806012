package main

import (
	"fmt"
	"io"
	"os"
)

// isTerminal reports whether somebody watches. The null device is a character
// device too.
func isTerminal(f *os.File) bool {
	info, err := f.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return false
	}
	null, err := os.Stat(os.DevNull)
	return err != nil || !os.SameFile(info, null)
}

// showProgress writes over its last line. The escape sequence clears the rest.
func showProgress(w io.Writer, name string, served, of int) {
	fmt.Fprintf(w, "\r%-15s %s of %s clicks\x1b[K", name, thousands(served), thousands(of))
}

func clearProgress(w io.Writer) { fmt.Fprint(w, "\r\x1b[K") }
