package connect

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/redlatch/redlatch/internal/testbed"
)

// pretend answers the commands of connecting as a standalone Redis of this version
// does, and returns its address. Servers of major 5 know no HELLO, those of 6.0 none
// without the version of the protocol. A version of "" is kept secret.
func pretend(version string, major int) func(t *testing.T) string {
	return answers(func(args []string) string { return answer(version, major, args) })
}

// proxied answers as a proxy does that passes everything but CLUSTER on to a cluster.
func proxied(args []string) string {
	if strings.EqualFold(args[0], "HELLO") {
		args = []string{"HELLO", "3"}
	}
	return strings.Replace(answer("7.2.4", 7, args), bulk("standalone"), bulk("cluster"), 1)
}

// answers answers each connection's commands until the client closes it. They have no line breaks.
func answers(answer func(args []string) string) func(t *testing.T) string {
	return serve(func(c net.Conn) {
		for r := bufio.NewReader(c); ; {
			head, err := r.ReadString('\n') // * and how many arguments come, each after a line with its length
			if err != nil {
				return
			}
			n, _ := strconv.Atoi(strings.TrimSpace(head[1:]))
			args := make([]string, n)
			for i := range 2 * n {
				args[i/2], _ = r.ReadString('\n')
				args[i/2] = strings.TrimSpace(args[i/2])
			}
			if _, err := io.WriteString(c, answer(args)); err != nil {
				return
			}
		}
	})
}

// greets says one line to whoever connects, and closes.
func greets(line string) func(t *testing.T) string {
	return serve(func(c net.Conn) { _, _ = io.WriteString(c, line) }) // The client may have gone.
}

// serve listens until the test ends and has each connection dealt with.
func serve(deal func(net.Conn)) func(t *testing.T) string {
	return func(t *testing.T) string {
		t.Helper()
		l, err := net.Listen("tcp", "127.0.0.1:0")
		testbed.Must(t, err)
		var all sync.WaitGroup
		all.Go(func() { // ends when the listener is closed
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				all.Go(func() {
					defer func() { _ = c.Close() }() // It is the client's to complain.
					deal(c)
				})
			}
		})
		t.Cleanup(func() {
			_ = l.Close() // Nothing is asked of it any more.
			all.Wait()
		})
		return l.Addr().String()
	}
}

func answer(version string, major int, args []string) string {
	switch strings.ToUpper(args[0]) {
	case "HELLO":
		switch {
		case major < 6:
			return "-ERR unknown command `HELLO`, with args beginning with: `3`, \r\n"
		case len(args) == 1:
			return "-ERR wrong number of arguments for 'hello' command\r\n"
		}
		return "%4\r\n" + bulk("server") + bulk("redis") + bulk("version") + bulk(version) + bulk("proto") + ":3\r\n" + bulk("mode") + bulk("standalone")
	case "INFO":
		if version == "" {
			return "-NOPERM this user has no permissions to run the 'info' command\r\n"
		}
		return bulk("# Server\r\nredis_version:" + version + "\r\nredis_mode:standalone\r\n")
	case "CLUSTER":
		return "-ERR This instance has cluster support disabled\r\n"
	case "PING":
		return "+PONG\r\n"
	case "CLIENT":
		if strings.EqualFold(args[1], "SETNAME") {
			return "+OK\r\n"
		}
		return "-ERR Unknown subcommand or wrong number of arguments for 'SETINFO'. Try CLIENT HELP\r\n"
	}
	return "+OK\r\n"
}

func bulk(s string) string { return fmt.Sprintf("$%d\r\n%s\r\n", len(s), s) }
