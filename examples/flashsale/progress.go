package main

import (
	"fmt"
	"os"
	"sync"
	"time"
)

// progress tells on standard error what the demo does, so that nobody takes it
// for stuck: one line that is written over where somebody watches, else a line
// every few seconds.
type progress struct {
	file     *os.File
	terminal bool

	mu   sync.Mutex
	last time.Time // guarded by mu
}

// progressEvery is how often a log gets a line.
const progressEvery = 5 * time.Second

func newProgress(f *os.File) *progress {
	return &progress{file: f, terminal: isTerminal(f), last: time.Now()}
}

// say shows what goes on now. The escape sequence clears the rest of the line.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.terminal:
		fmt.Fprintf(p.file, "\r"+format+"\x1b[K", args...)
	case time.Since(p.last) >= progressEvery:
		p.last = time.Now()
		fmt.Fprintf(p.file, "... "+format+"\n", args...)
	}
}

// clear makes room for a row of the table.
func (p *progress) clear() {
	if p.terminal {
		fmt.Fprint(p.file, "\r\x1b[K")
	}
}

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
