package conn

import (
	"errors"
	"io"
	"net"
	"testing"
	"time"

	"github.com/redis/rueidis"

	"github.com/redlatch/redlatch/internal/testbed"
)

// TestALeavingConnectionEndsAtARefusal of everything, wherever the reads are cut; not before an
// UNSUBSCRIBE was sent, and not at another error but a redirection to nowhere.
func TestALeavingConnectionEndsAtARefusal(t *testing.T) {
	const ping, leave = "*1\r\n$4\r\nPING\r\n", "*2\r\n$12\r\nSUNSUBSCRIBE\r\n$1\r\nc\r\n"
	for _, tc := range []struct {
		name   string
		writes []string
		reads  []string
		ends   bool
	}{
		{"at once", []string{leave}, []string{"-BUSY Redis is busy\r\n"}, true},
		{"behind the answer", []string{leave}, []string{">3\r\n$12\r\nsunsubscribe\r\n$1\r\nc\r\n:0\r\n-MISCONF no\r\n"}, true},
		{"in two", []string{ping, leave}, []string{"+PONG\r\n", ":0\r\n-MASTER", "DOWN Link is down\r\n"}, true},
		{"after much", []string{ping + leave}, []string{"$5001\r\n" + string(make([]byte, 5000)), "\n\r\n-MISC", "ONF no\r\n"}, true},
		{"after all kinds of replies", []string{leave}, []string{
			"*-1\r\n$-1\r\n_\r\n#t\r\n,1.5\r\n(12345678901234567890\r\n!5\r\n-BUSY\r\n=7\r\ntxt:abc\r\n",
			"%1\r\n+k\r\n*2\r\n:1\r\n~1\r\n$0\r\n\r\n|1\r\n+ttl\r\n:3\r\n*1\r\n:2\r\n-MASTERDOWN no\r\n",
		}, true},
		{"moved nowhere", []string{ping}, []string{"-MOVED 1", "2000\r\n"}, true},
		{"asked nowhere", []string{ping}, []string{"-ASK\r\n"}, true},
		{"moved somewhere", []string{ping}, []string{"-MOVED 12000 a-host-with-a-long-name.example:7000\r\n"}, false},
		{"nobody left", []string{ping}, []string{"-BUSY Redis is busy\r\n"}, false},
		{"a message of a line that says so", []string{leave}, []string{
			">3\r\n$7\r\nmessage\r\n$1\r\nc\r\n$24\r\nx\r\n-BUSY Redis is busy\r\n\r\n*3\r\n$7\r\nmessage\r\n", "$1\r\nc\r\n$15\r\n", "\n-MISCONF no\r\n\r\n\r\n",
		}, false},
		{"an element that says so", []string{leave}, []string{"*2\r\n:1\r\n-BUSY Redis is busy\r\n:1\r\n"}, false},
		{"no reply at all", []string{leave}, []string{"HTTP/1.1 400\r\n", "-BUSY Redis is busy\r\n"}, false},
		{"a message that says so", []string{leave}, []string{"$14\r\nand I'm -BUSY \r\n"}, false},
		{"another error", []string{leave}, []string{"-NOPERM this user has no permissions to run the 'ping' command\r\n"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			near, far := net.Pipe()
			defer func() { _ = near.Close() }()
			c, err := (&dialler{}).track(near, nil)
			testbed.Must(t, err)
			go func() { // ends with what it has to say
				defer func() { _ = far.Close() }()
				for _, w := range tc.writes {
					if _, err := io.ReadFull(far, make([]byte, len(w))); err != nil {
						return
					}
				}
				for _, r := range tc.reads {
					if _, err := far.Write([]byte(r)); err != nil {
						return
					}
				}
			}()
			for _, w := range tc.writes {
				_, err := c.Write([]byte(w))
				testbed.Must(t, err)
			}
			_, err = io.Copy(io.Discard, c)
			testbed.Equal(t, errors.Is(err, errRefusesAll) || errors.Is(err, errNoAddress), tc.ends, "ended with", err)
		})
	}
}

// TestTheClientLibraryStillTrustsRedirections: if it does no more, errNoAddress can go.
func TestTheClientLibraryStillTrustsRedirections(t *testing.T) {
	c := testbed.Answering(t, "*1\r\n-MOVED 1\r\n")
	list, err := c.Do(t.Context(), c.B().Get().Key("k").Build()).ToArray()
	testbed.Must(t, err)
	told, is := errors.AsType[*rueidis.RedisError](list[0].Error())
	testbed.Equal(t, is, true, "an error")
	defer func() { testbed.Equal(t, recover() != nil, true, "it panics") }()
	told.IsMoved()
}

// TestALeavingConnectionThatWasNotMade stays the error that it was.
func TestALeavingConnectionThatWasNotMade(t *testing.T) {
	if c, err := (&dialler{}).track(nil, io.EOF); c != nil || !errors.Is(err, io.EOF) {
		t.Error(c, err)
	}
}

// TestTheEndOfAConnectionIsNoted whether it is ended there or here, and not before.
func TestTheEndOfAConnectionIsNoted(t *testing.T) {
	for _, here := range []bool{false, true} {
		near, far := net.Pipe()
		var d dialler
		c, err := d.track(near, nil)
		testbed.Must(t, err)
		go func() { // ends with the read
			_, _ = far.Write([]byte("+OK\r\n"))
			if here {
				_ = c.Close()
			} else {
				_ = far.Close()
			}
		}()
		if _, err := io.ReadFull(c, make([]byte, 5)); err != nil || !d.broke.Last().IsZero() {
			t.Error("before the end:", err, d.broke.Last())
		}
		before := time.Now()
		if _, err := c.Read(make([]byte, 1)); err == nil || d.broke.Last().Before(before) {
			t.Error("after it:", err, d.broke.Last())
		}
		_, _ = near.Close(), far.Close()
	}
}
