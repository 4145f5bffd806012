// Command imitation stands for a redis-server in make quick, where none is installed: the embedded
// server of redlatchtest as a process. Of a redis-server's flags it knows --version and --port.
package main

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"

	"github.com/redlatch/redlatch/redlatchtest"
)

// program is a redlatchtest.TB that ends with the process.
type program struct{ ctx context.Context }

func (program) Helper()                    {}
func (program) Cleanup(func())             {}
func (p program) Context() context.Context { return p.ctx }
func (program) Fatalf(format string, args ...any) {
	fmt.Fprintf(os.Stderr, format+"\n", args...)
	os.Exit(1)
}

func main() {
	p := program{context.Background()}
	if slices.Contains(os.Args, "--version") {
		fmt.Fprintln(os.Stdout, "Imitation server v=7.0.0")
		return
	}
	at := slices.Index(os.Args, "--port") + 1
	if at == 0 || at == len(os.Args) {
		p.Fatalf("usage: imitation --port N")
	}
	l, err := new(net.ListenConfig).Listen(p.ctx, "tcp", net.JoinHostPort("127.0.0.1", os.Args[at]))
	if err != nil {
		p.Fatalf("%v", err)
	}
	dial := redlatchtest.NewServer(p).Options().DialCtxFn
	for {
		client, err := l.Accept()
		if err != nil {
			p.Fatalf("%v", err)
		}
		server, err := dial(p.ctx, "", nil, nil)
		if err != nil {
			p.Fatalf("%v", err)
		}
		pass := func(to, from net.Conn) { // ends with the connection
			_, _ = io.Copy(to, from)
			_ = to.Close()
			_ = from.Close()
		}
		go pass(server, client)
		go pass(client, server)
	}
}
