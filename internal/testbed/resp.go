package testbed

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strconv"
)

// frameReader cuts a stream in the Redis protocol (RESP 2 and 3, and inline
// requests) into whole frames, without changing a byte.
type frameReader struct {
	r *bufio.Reader
}

func newFrameReader(r io.Reader) *frameReader {
	return &frameReader{r: bufio.NewReaderSize(r, 64<<10)}
}

// next returns the next whole frame as it came over the wire.
func (f *frameReader) next() ([]byte, error) {
	var frame bytes.Buffer
	if err := f.read(&frame, 0); err != nil {
		return nil, err
	}
	return frame.Bytes(), nil
}

// maxDepth bounds the nesting of a frame; Redis' own replies stay far below.
const maxDepth = 32

func (f *frameReader) read(frame *bytes.Buffer, depth int) error {
	if depth > maxDepth {
		return errors.New("testbed: frame nested too deeply")
	}
	line, err := f.r.ReadBytes('\n')
	if err != nil {
		return err
	}
	frame.Write(line)
	switch line[0] {
	case '$', '=', '!': // strings with a length
		n, err := length(line)
		if err != nil || n < 0 {
			return err
		}
		_, err = io.CopyN(frame, f.r, int64(n)+2)
		return err
	case '*', '~', '>', '%', '|': // aggregates
		n, err := length(line)
		if err != nil {
			return err
		}
		if line[0] == '%' || line[0] == '|' {
			n *= 2
		}
		for range n {
			if err := f.read(frame, depth+1); err != nil {
				return err
			}
		}
		if line[0] == '|' { // an attribute: what it belongs to follows
			return f.read(frame, depth+1)
		}
	}
	return nil
}

func length(line []byte) (int, error) {
	n, err := strconv.Atoi(string(bytes.TrimSpace(line[1:])))
	if err != nil {
		return 0, fmt.Errorf("testbed: no length in %q: %w", line, err)
	}
	return n, nil
}

// arguments returns the strings of a request, or of an aggregate's first
// level, until something else than a string comes.
func arguments(frame []byte) []string {
	if len(frame) == 0 {
		return nil
	}
	head, rest, _ := bytes.Cut(frame, []byte("\r\n"))
	if head[0] != '*' && head[0] != '>' {
		var args []string
		for _, word := range bytes.Fields(head) { // an inline request
			args = append(args, string(word))
		}
		return args
	}
	n, err := length(head)
	if err != nil {
		return nil
	}
	args := make([]string, 0, max(n, 0))
	for range n {
		head, rest, _ = bytes.Cut(rest, []byte("\r\n"))
		if len(head) == 0 {
			return args
		}
		switch head[0] {
		case '$':
			size, err := length(head)
			if err != nil || size < 0 || size+2 > len(rest) {
				return args
			}
			args = append(args, string(rest[:size]))
			rest = rest[size+2:]
		case '+', ':':
			args = append(args, string(head[1:]))
		default:
			return args
		}
	}
	return args
}

// request encodes a command.
func request(args ...string) []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&b, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return b.Bytes()
}
