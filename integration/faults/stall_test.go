package faults

import (
	"bufio"
	"net"
	"strings"
	"sync"
	"time"
)

// How the processes and the servers are watched: they are to say something every beat. Who is
// later than that stood still, on a machine that has other things to do.
const (
	beat = 10 * time.Millisecond
	// hitchAfter is how late counts as a moment, see effHitch. The shortest time limit of a
	// quorum's node is a twentieth of half a second and more: several moments fill it.
	hitchAfter = 10 * time.Millisecond
	// stallAfter is how late counts as standing still.
	stallAfter = 60 * time.Millisecond
	// serverStall is the same for a server, since its last answer.
	serverStall = 60 * time.Millisecond
)

// stood makes a moment of a time that is no longer than limit.
func stood(w window, limit time.Duration) window {
	if w.to-w.from <= limit {
		w.name, w.effects = strings.Replace(w.name, "stall", "hitch", 1), effHitch
	}
	return w
}

// watchServers asks all servers again and again, past all faults on the line, and notes
// when one did not answer for a while: the plan's doing, or the machine's. The function that
// it returns ends that, and returns what was noted.
func (w *world) watchServers() (stop func() []window) {
	done := make(chan struct{})
	var mu sync.Mutex
	var noted []window
	var wg sync.WaitGroup
	for i, s := range w.nodes() {
		addr := s.Addr()
		effects := effSilent
		if w.p.topology == "masters" {
			effects = effMinor
		}
		wg.Go(func() { // until stop
			last := mono()
			note := func() {
				now := mono()
				if now-last > beat+hitchAfter {
					mu.Lock()
					noted = append(noted, stood(window{name: "server stall", from: last, to: now, target: i, effects: effects}, serverStall))
					mu.Unlock()
				}
				last = now
			}
			var line *asker
			for {
				select {
				case <-done:
					line.close()
					note() // it may be silent just now
					return
				case <-time.After(beat):
				}
				if line == nil {
					line = ask(addr)
				}
				if line == nil || !line.answers(done) {
					line.close()
					line = nil
					continue
				}
				note()
			}
		})
	}
	return func() []window {
		close(done)
		wg.Wait()
		return noted
	}
}

// asker is a connection that only asks whether a server is there.
type asker struct {
	conn net.Conn
	read *bufio.Reader
}

// ask connects; nil if nobody listens.
func ask(addr string) *asker {
	conn, err := net.DialTimeout("tcp", addr, time.Second)
	if err != nil {
		return nil
	}
	a := &asker{conn, bufio.NewReader(conn)}
	if _, err := conn.Write([]byte("CLIENT SETNAME redlatch-testbed\r\n")); err != nil {
		a.close()
		return nil
	}
	return a
}

func (a *asker) close() {
	if a != nil {
		_ = a.conn.Close() // nothing of it is needed any more
	}
}

// answers reports whether the server answered, for as long as that takes; false: the
// connection broke, or done was closed.
func (a *asker) answers(done <-chan struct{}) bool {
	if _, err := a.conn.Write([]byte("PING\r\n")); err != nil {
		return false
	}
	for {
		_ = a.conn.SetReadDeadline(time.Now().Add(time.Second)) // a closed one says so in the read
		line, err := a.read.ReadString('\n')
		if timeout, ok := err.(net.Error); ok && timeout.Timeout() && line == "" { //nolint:errorlint // as net returns it
			select {
			case <-done:
				return false
			default:
				continue
			}
		}
		switch {
		case err != nil:
			return false
		case line == "+OK\r\n": // to the name
		default:
			return true
		}
	}
}
