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
)

// pretend answers the commands of connecting as a standalone Redis of this version
// does, and returns its address. Servers of major 5 know no HELLO, those of 6.0 none
// without the version of the protocol.
// A version of "" is kept secret.
func pretend(t *testing.T, version string, major int) string {
	t.Helper()
	return serve(t, func(c net.Conn) { answers(c, func(args []string) string { return answer(version, major, args) }) })
}

// proxied answers as a proxy does that passes everything but CLUSTER on to a cluster.
func proxied(t *testing.T) string {
	t.Helper()
	return serve(t, func(c net.Conn) {
		answers(c, func(args []string) string {
			if strings.EqualFold(args[0], "HELLO") {
				args = []string{"HELLO", "3"}
			}
			return strings.Replace(answer("7.2.4", 7, args), bulk("standalone"), bulk("cluster"), 1)
		})
	})
}

// answers answers a connection's commands until the client closes it.
func answers(c net.Conn, answer func(args []string) string) {
	r := bufio.NewReader(c)
	for {
		args, err := command(r)
		if err != nil {
			return
		}
		if _, err := io.WriteString(c, answer(args)); err != nil {
			return
		}
	}
}

// greets says one line to whoever connects, and closes.
func greets(t *testing.T, line string) string {
	t.Helper()
	return serve(t, func(c net.Conn) { _, _ = io.WriteString(c, line) }) // The client may have gone.
}

// serve listens until the test ends and has each connection dealt with.
func serve(t *testing.T, deal func(net.Conn)) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
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

func command(r *bufio.Reader) ([]string, error) {
	n, err := count(r)
	if err != nil {
		return nil, err
	}
	args := make([]string, n)
	for i := range args {
		size, err := count(r)
		if err != nil {
			return nil, err
		}
		text := make([]byte, size+2)
		if _, err := io.ReadFull(r, text); err != nil {
			return nil, err
		}
		args[i] = string(text[:size])
	}
	return args, nil
}

func count(r *bufio.Reader) (int, error) {
	line, err := r.ReadString('\n')
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(line[1:]))
}
