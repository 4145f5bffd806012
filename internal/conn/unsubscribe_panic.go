package conn

import (
	"bytes"
	"errors"
	"slices"
	"sync/atomic"
)

// This file works around a fault of the client library, and can go with it:
// TestTheClientLibraryStillPanics says when.
//
// rueidis v1.0.79 sends a PING behind each UNSUBSCRIBE and tells their answers apart by what they
// say. A server that refuses everything for the moment refuses the PING as well. The library takes
// that for the wrong one of the two, and panics over that or the next answer in a goroutine of its
// own, where nobody can recover. An error of the connection it can live with: the subscriptions are
// made anew on another one.
// https://github.com/redis/rueidis/pull/691, https://github.com/redis/rueidis/issues/718
//
// So a connection that redlatch has dialled ends at such an answer once an UNSUBSCRIBE has been
// sent on it; and on others, which nobody can end in time, none is sent: see Conn.Unsubscribes.
//
// The library also takes for granted that a redirection (MOVED, ASK) says where to. At one that does not, as a proxy
// may send, the connection ends, too.

// unsubscribed is what one connection knows of that. The zero value has sent and read nothing.
type unsubscribed struct {
	sent atomic.Bool // an UNSUBSCRIBE
	said replies     // the reader's
}

// refusals are those that PING gets although UNSUBSCRIBE may not, or both: the server can't
// save, runs a script that does not end, or is a replica without its master's data.
var refusals = [][]byte{[]byte("MISCONF "), []byte("BUSY "), []byte("MASTERDOWN ")}

// redirections are what the client library takes for such.
var redirections = [][]byte{[]byte("MOVED"), []byte("ASK")}

var (
	errRefusesAll = errors.New("the server refuses everything for the moment")
	errNoAddress  = errors.New("the server redirects a command and does not say where to")
)

// wrote looks at what is about to be written.
func (u *unsubscribed) wrote(b []byte) {
	// The command comes first in what is written, or behind a PING or two.
	if !u.sent.Load() && bytes.Contains(b[:min(len(b), 64)], []byte("UNSUBSCRIBE\r\n")) {
		u.sent.Store(true)
	}
}

// refused is why the connection must end because of what was read; nil: it need not. Where a reply begins
// is only known to who has followed all of them.
func (u *unsubscribed) refused(b []byte) (why error) {
	u.said.read(b, func(line []byte) bool {
		starts := func(word []byte) bool { return bytes.HasPrefix(line, word) }
		switch {
		case u.sent.Load() && slices.ContainsFunc(refusals, starts):
			why = errRefusesAll
		case slices.ContainsFunc(redirections, starts) && bytes.Count(line, []byte(" ")) < 2:
			why = errNoAddress
		}
		return why != nil
	})
	return why
}

// Unsubscribes reports whether the client's connections bear an UNSUBSCRIBE: those that redlatch
// has dialled do, an application's don't, nor do those of a ClientBuilder that dials by itself.
func (c *Conn) Unsubscribes() bool { return c.dial != nil && (!c.built || len(c.dial.open()) > 0) }
