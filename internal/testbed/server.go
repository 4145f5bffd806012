package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/redis/rueidis"
)

// ErrNoServer says that neither redis-server nor valkey-server was found.
var ErrNoServer = errors.New("testbed: neither redis-server nor valkey-server is on PATH " +
	"(make test installs one on Debian and Ubuntu; REDLATCH_TEST_SERVER names another program)")

// errBind says that the port was taken between its choice and its use.
var errBind = errors.New("the port is in use")

// Data says what a server that is started again finds in its folder.
type Data int

// What [Server.Restart] does with the data.
const (
	// Keep saves the data first, if the server runs, and loads it again.
	Keep Data = iota
	// Stale loads what the last SAVE wrote: the server comes back with old data.
	Stale
	// Empty starts the server without any data.
	Empty
)

// Server is one server process. Its methods are safe for concurrent use,
// except that Restart, Kill and Stop must not run at the same time.
type Server struct {
	program string
	args    []string // extra arguments, as given
	port    int
	tls     *TLS // nil: no TLS
	tlsPort int
	keeps   []*os.File // the ports, while the server is down, too
	dir     string
	conf    string   // content of a configuration file (sentinels), or ""
	env     []string // besides this process's own

	mu     sync.Mutex
	child  *child         // guarded by mu
	client rueidis.Client // guarded by mu; nil until it is asked for
	runs   int            // guarded by mu; counts the starts, for the log's name
}

// Find returns the path of the server program: $REDLATCH_TEST_SERVER,
// redis-server or valkey-server, or [ErrNoServer].
func Find() (string, error) {
	if program := os.Getenv("REDLATCH_TEST_SERVER"); program != "" {
		return exec.LookPath(program)
	}
	for _, program := range []string{"redis-server", "valkey-server"} {
		if path, err := exec.LookPath(program); err == nil {
			return path, nil
		}
	}
	return "", ErrNoServer
}

// Start starts a server on a free loopback port, with args added to its
// command line ("--maxmemory", "2mb"), and returns once it answers. ctx bounds
// the start, not the server's life: the caller stops it with Stop. After an
// error, which holds the server's output, nothing is left behind.
func Start(ctx context.Context, args ...string) (*Server, error) {
	program, err := Find()
	if err != nil {
		return nil, err
	}
	return start(ctx, program, nil, func(int) []string { return args }, "")
}

// Standalone starts a server for the time of a test; see [Start].
func Standalone(tb TB, args ...string) *Server {
	tb.Helper()
	return started(tb, func(int) []string { return args }, "")
}

// StandaloneEnv is [Standalone] with variables ("NAME=value") added to the
// environment of the server.
func StandaloneEnv(tb TB, env []string, args ...string) *Server {
	tb.Helper()
	return started(tb, func(int) []string { return args }, "", env...)
}

// Masters starts n servers that know nothing of each other.
func Masters(tb TB, n int, args ...string) []*Server {
	tb.Helper()
	servers := make([]*Server, n)
	for i := range servers {
		servers[i] = Standalone(tb, args...)
	}
	return servers
}

func started(tb TB, args func(port int) []string, conf string, env ...string) *Server {
	tb.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	program, err := programFor(tb)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	s, err := start(ctx, program, tlsFor(tb), args, conf, env...)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	tb.Cleanup(func() {
		if c := s.process(); c.exited() && c.err != nil && !c.killed.Load() {
			tb.Errorf("testbed: the server at %s died by itself: %v\n%s", s.Addr(), c.err, s.Log())
		}
		if err := s.discard(); err != nil {
			tb.Errorf("testbed: clean up after the server at %s: %v", s.Addr(), err)
		}
	})
	return s
}

// start makes a server. args receives the port at which other servers find it, since
// some settings are derived from it.
func start(ctx context.Context, program string, tls *TLS, args func(port int) []string, conf string, env ...string) (*Server, error) {
	dir, err := os.MkdirTemp("", "redlatch-server-")
	if err != nil {
		return nil, fmt.Errorf("testbed: %w", err)
	}
	s := &Server{program: program, tls: tls, dir: dir, conf: conf, env: env}
	// The port is free when it is chosen; should somebody else take it before
	// the server does (where it can't be reserved), the next one will do.
	for range 10 {
		s.letGo()
		if s.port, err = s.reservePort(); err != nil {
			break
		}
		if tls != nil {
			if s.tlsPort, err = s.reservePort(); err != nil {
				break
			}
		}
		s.args = args(s.peerPort())
		if err = s.run(ctx); !errors.Is(err, errBind) {
			break
		}
	}
	if err != nil {
		s.letGo()
		_ = os.RemoveAll(dir) // The first error is the one to tell.
		return nil, err
	}
	return s, nil
}

// reservePort takes a free loopback port for the server, for as long as it can be
// started again.
func (s *Server) reservePort() (int, error) {
	addr, keeps, err := reserve(forServer)
	if err != nil {
		return 0, fmt.Errorf("testbed: %w", err)
	}
	if keeps != nil {
		s.keeps = append(s.keeps, keeps)
	}
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		return 0, fmt.Errorf("testbed: %w", err)
	}
	return strconv.Atoi(port)
}

// letGo gives the ports back.
func (s *Server) letGo() {
	for _, f := range s.keeps {
		_ = f.Close() // Nothing was written.
	}
	s.keeps = nil
}

// run starts the process and waits until it answers.
func (s *Server) run(ctx context.Context) error {
	s.mu.Lock()
	s.runs++
	log, err := os.Create(s.logName())
	s.mu.Unlock()
	if err != nil {
		return fmt.Errorf("testbed: %w", err)
	}
	defer func() { _ = log.Close() }() // The child has its own descriptor.

	var args []string
	if s.conf != "" {
		name := filepath.Join(s.dir, "server.conf")
		if err := os.WriteFile(name, []byte(s.conf), 0o600); err != nil {
			return fmt.Errorf("testbed: %w", err)
		}
		args = append(args, name)
	} else {
		args = append(args, "--save", "", "--appendonly", "no")
	}
	args = append(args,
		"--bind", "127.0.0.1", "--port", strconv.Itoa(s.port),
		"--dir", s.dir, "--daemonize", "no")
	if s.tls != nil {
		args = append(args, s.tls.args(s.tlsPort)...)
	}
	args = append(args, s.args...)

	cmd := exec.Command(s.program, args...)
	cmd.Dir = s.dir
	if len(s.env) > 0 {
		cmd.Env = append(os.Environ(), s.env...)
	}
	// A file, not a pipe: a pipe would be held open by the server's own
	// children (it forks to save), and Wait would wait for them too.
	cmd.Stdout, cmd.Stderr = log, log
	c, err := startChild(cmd)
	if err != nil {
		return fmt.Errorf("testbed: start %s: %w", s.program, err)
	}
	s.mu.Lock()
	s.child = c
	s.mu.Unlock()

	for {
		pid, err := servingPid(s.Addr())
		switch {
		case err == nil && (pid == c.pid || pid == 0):
			return nil
		case c.exited():
			out := s.Log()
			if strings.Contains(out, "already in use") || strings.Contains(out, "Failed listening") {
				return fmt.Errorf("testbed: %w\n%s", errBind, out)
			}
			return fmt.Errorf("testbed: the server ended at once (%s)\n%s", c.status(), out)
		}
		select {
		case <-ctx.Done():
			c.kill()
			return fmt.Errorf("testbed: the server did not answer: %w\n%s", errors.Join(context.Cause(ctx), err), s.Log())
		case <-time.After(poll):
		}
	}
}

// servingPid asks who answers at addr, so that a stranger's server that has
// taken the port meanwhile is not mistaken for ours. It returns 0 when the
// server wants a password first.
func servingPid(addr string) (int, error) {
	frame, err := exchange(addr, request("INFO", "server"), time.Second)
	if err != nil {
		return 0, err
	}
	if bytes.HasPrefix(frame, []byte("-NOAUTH")) {
		return 0, nil
	}
	for line := range strings.Lines(string(frame)) {
		if value, ok := strings.CutPrefix(line, "process_id:"); ok {
			return strconv.Atoi(strings.TrimSpace(value))
		}
	}
	return 0, fmt.Errorf("no process id in %q", frame)
}

// Addr returns host:port of the server.
func (s *Server) Addr() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(s.port)) }

// Port returns the port of the server; it stays the same over restarts.
func (s *Server) Port() int { return s.port }

// Pid returns the process id of the server's current or last process.
func (s *Server) Pid() int { return s.process().pid }

// Running reports whether the process lives; it may be frozen.
func (s *Server) Running() bool { return !s.process().exited() }

// Log returns the end of what the current or last process has printed.
func (s *Server) Log() string {
	s.mu.Lock()
	name := s.logName()
	s.mu.Unlock()
	out, err := os.ReadFile(name)
	if err != nil {
		return fmt.Sprintf("(no output: %v)", err)
	}
	const most = 8 << 10
	return string(out[max(0, len(out)-most):])
}

// logName needs s.mu.
func (s *Server) logName() string {
	return filepath.Join(s.dir, fmt.Sprintf("server-%d.log", s.runs))
}

func (s *Server) process() *child {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.child
}

// Stop ends the server, also a frozen one: it is asked first and killed when
// it does not end within five seconds. Its folder is removed: it can't be
// restarted. Calling it again does nothing.
func (s *Server) Stop() error {
	s.process().stop(5 * time.Second)
	return s.discard()
}

// discard kills the server if it lives and removes what it has left.
func (s *Server) discard() error {
	s.process().kill()
	s.mu.Lock()
	client := s.client
	s.client = nil
	s.mu.Unlock()
	if client != nil {
		client.Close()
	}
	s.letGo()
	return os.RemoveAll(s.dir)
}

// Kill ends the process with SIGKILL and returns once it is gone. The port
// stays reserved for Restart.
func (s *Server) Kill(tb TB) {
	tb.Helper()
	s.process().kill()
}

// Freeze stops the process with SIGSTOP and returns once it stands still: its
// connections stay open, the kernel still accepts new ones, nobody answers.
func (s *Server) Freeze(tb TB) {
	tb.Helper()
	if err := s.process().freeze(); err != nil {
		tb.Fatalf("testbed: freeze the server at %s: %v", s.Addr(), err)
	}
}

// Thaw lets a frozen process go on.
func (s *Server) Thaw(tb TB) {
	tb.Helper()
	if err := thaw(s.process().proc); err != nil {
		tb.Fatalf("testbed: thaw the server at %s: %v", s.Addr(), err)
	}
}

// Restart ends the process, if it runs, with SIGKILL and starts it again on
// the same port with the data that is asked for; it returns once the server
// answers. (With a large dump that may be while it still loads.)
func (s *Server) Restart(tb TB, data Data) {
	tb.Helper()
	if data == Keep && s.Running() {
		s.Do(tb, "SAVE")
	}
	s.process().kill()
	if data == Empty {
		for _, name := range []string{"dump.rdb", "appendonlydir", "appendonly.aof"} {
			if err := os.RemoveAll(filepath.Join(s.dir, name)); err != nil {
				tb.Fatalf("testbed: %v", err)
			}
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	// The old process's port may be in another's hands for a moment, as the
	// local end of a connection that somebody opened.
	err := s.run(ctx)
	for errors.Is(err, errBind) && ctx.Err() == nil {
		time.Sleep(poll)
		err = s.run(ctx)
	}
	if err != nil {
		tb.Fatalf("%v", err)
	}
}
