package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"time"
)

// A foreign is a server that is not Redis.
type foreign struct {
	name string
	file string // below .cache/peers, without which it can't run
	// command is what runs the file in dir, on a loopback port and, if it wants one, another.
	command func(ctx context.Context, file, dir string, port, other int) (*exec.Cmd, error)
	// hello is what to say to it, and answer what it says once it serves.
	hello, answer string
}

// startWithin is how long a server may take to serve: a JVM or a database on a busy machine.
const startWithin = time.Minute

// A running is a foreign server under way.
type running struct {
	addr string
	cmd  *exec.Cmd
	dir  string
	out  bytes.Buffer  // what it has printed, once done is closed
	done chan struct{} // closed when it has ended
	uses int
}

// start starts the server in a folder of its own and returns once it serves.
func (f *foreign) start(ctx context.Context, root string) (*running, error) {
	dir, err := os.MkdirTemp("", "redlatch-bench-"+f.name+"-")
	if err != nil {
		return nil, err
	}
	r := &running{dir: dir, done: make(chan struct{})}
	ports, err := freePorts(2)
	if err == nil {
		r.addr = net.JoinHostPort("127.0.0.1", strconv.Itoa(ports[0]))
		r.cmd, err = f.command(ctx, cached(root, f.file), dir, ports[0], ports[1])
	}
	if err == nil {
		r.cmd.Stdout, r.cmd.Stderr = &r.out, &r.out
		err = r.cmd.Start()
	}
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	go func() { // stop waits for it
		defer close(r.done)
		_ = r.cmd.Wait() // how it ended is told by whoever misses it
	}()
	ctx, cancel := context.WithTimeout(ctx, startWithin)
	defer cancel()
	for {
		err := says(ctx, r.addr, f.hello, f.answer)
		if err == nil {
			return r, nil
		}
		select {
		case <-r.done:
			err = errors.New("it ended")
		case <-ctx.Done():
		case <-time.After(50 * time.Millisecond):
			continue
		}
		stopped := r.stop()
		return nil, errors.Join(fmt.Errorf("%s does not serve: %w\n%s", f.name, err, r.out.String()), stopped)
	}
}

// stop kills the server: its data is of no use to anybody.
func (r *running) stop() error {
	_ = r.cmd.Process.Kill() // it may have ended already
	<-r.done
	return os.RemoveAll(r.dir)
}

// says connects, says hello, and wants the answer to hold a text.
func says(ctx context.Context, addr, hello, want string) error {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", addr)
	if err != nil {
		return err
	}
	defer conn.Close()
	if err := conn.SetDeadline(time.Now().Add(2 * time.Second)); err != nil {
		return err
	}
	if _, err := conn.Write([]byte(hello)); err != nil {
		return err
	}
	var got []byte
	buf := make([]byte, 4096)
	for {
		n, err := conn.Read(buf)
		if got = append(got, buf[:n]...); bytes.Contains(got, []byte(want)) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("it said %q: %w", got, err)
		}
	}
}

// freePorts returns loopback ports that nobody listened on a moment ago.
func freePorts(n int) ([]int, error) {
	ports := make([]int, n)
	for i := range ports {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		defer l.Close()
		ports[i] = l.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

// foreignPlace starts the server, once for a run. Each measurement has a key of its own: nothing empties these servers
// in between.
func (b *bench) foreignPlace(ctx context.Context, f *foreign) (*place, error) {
	r := b.foreign[f]
	if r == nil {
		root, err := repository()
		if err != nil {
			return nil, err
		}
		if r, err = f.start(ctx, root); err != nil {
			return nil, err
		}
		b.foreign[f] = r
	}
	r.uses++
	return &place{
		addrs: []string{r.addr},
		key:   fmt.Sprintf("bench%d", r.uses),
		usage: func(context.Context) (usage, error) { return usage{}, nil },
		close: func() {},
	}, nil
}
