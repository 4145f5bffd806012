package main

import (
	"bytes"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"testing/iotest"
)

// TestMessagesAreCounted: each message counts once, however the stream is cut; what confirms a subscription does not.
func TestMessagesAreCounted(t *testing.T) {
	stream := ">3\r\n$9\r\nsubscribe\r\n$1\r\nc\r\n:1\r\n" +
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n" +
		">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$1\r\n0\r\n" +
		">3\r\n$8\r\nsmessage\r\n$1\r\nc\r\n$1\r\n0\r\n" +
		"$5\r\nvalue\r\n" +
		">4\r\n$8\r\npmessage\r\n$1\r\n*\r\n$1\r\nc\r\n$1\r\n0\r\n"
	for name, cut := range map[string]func(io.Reader) io.Reader{
		"whole":   func(r io.Reader) io.Reader { return r },
		"halves":  iotest.HalfReader,
		"letters": iotest.OneByteReader,
	} {
		var count atomic.Uint64
		c := &countingConn{Conn: readConn{r: cut(bytes.NewReader([]byte(stream)))}, count: &count}
		if _, err := io.ReadAll(c); err != nil {
			t.Fatal(err)
		}
		if n := count.Load(); n != 4 {
			t.Errorf("%s: %d messages, not 4", name, n)
		}
	}
}

// readConn is a connection that can only be read.
type readConn struct {
	net.Conn
	r io.Reader
}

func (c readConn) Read(p []byte) (int, error) { return c.r.Read(p) }
