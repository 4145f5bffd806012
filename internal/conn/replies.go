package conn

import (
	"bytes"
	"strconv"
)

// replies follows what a server sends on one connection, reply by reply, however the reads are
// cut, and finds the errors that are a reply of their own: not what stands in a message, in a
// value or in an element of another reply. It keeps no more than the beginning of a line.
//
// The zero value stands before the first reply. It is not safe for concurrent use.
type replies struct {
	line  []byte // the beginning of the line under way, its end left out
	skip  int    // bytes of a value that are still to come, its line end among them
	depth int    // elements of the reply under way that are still to come
	lost  bool   // it was no reply: nothing is known from here on
}

// longestLine is how much of a line is kept: the code of an error, or a length.
const longestLine = 32

// read takes what was read next, and reports whether a reply in it is an error that is begins.
func (r *replies) read(b []byte, is func(line []byte) bool) bool {
	for len(b) > 0 && !r.lost {
		if r.skip > 0 {
			n := min(r.skip, len(b))
			b, r.skip = b[n:], r.skip-n
			continue
		}
		part, rest, ended := bytes.Cut(b, []byte("\n"))
		r.line = append(r.line, part[:min(len(part), longestLine-len(r.line))]...)
		b = rest
		if !ended {
			return false
		}
		whole := r.depth == 0
		line := r.line
		r.line = r.line[:0]
		if r.took(line) && whole && line[0] == '-' && is(line[1:]) {
			return true
		}
	}
	return false
}

// took takes a line; false: it is none of a reply.
func (r *replies) took(line []byte) bool {
	line = bytes.TrimSuffix(line, []byte("\r"))
	if len(line) == 0 || bytes.IndexByte([]byte("+-:_#,($!=*~>%|"), line[0]) < 0 {
		r.lost = true
		return false
	}
	if r.depth > 0 {
		r.depth--
	}
	n := 0
	if bytes.IndexByte([]byte("$!=*~>%|"), line[0]) >= 0 {
		var err error
		if n, err = strconv.Atoi(string(line[1:])); err != nil {
			r.lost = true // parts of unknown number: no server sends that
			return false
		}
	}
	switch line[0] {
	case '$', '!', '=':
		if n >= 0 {
			r.skip = n + len("\r\n")
		}
	case '*', '~', '>':
		r.depth += max(n, 0)
	case '%':
		r.depth += 2 * max(n, 0)
	case '|': // and what they are attributes of
		r.depth += 2*max(n, 0) + 1
	}
	return true
}
