package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestDoctor(t *testing.T) {
	s := server(t)
	st, out, _ := call(t, s, "doctor", "--need", strings.Join(needs(), ","))
	if st != 0 {
		t.Errorf("status %d:\n%s", st, out)
	}
	keys := s.Do(t, "KEYS", "*")
	if left, err := keys.AsStrSlice(); err != nil || len(left) > 0 {
		t.Errorf("it leaves %v", left)
	}
	need(t, out, "round trip", "noeviction", "clock", "permissions fair: all there", "lock read-write: taken and freed", "0 problem(s)")

	s.Do(t, "CONFIG", "SET", "maxmemory", "100mb", "maxmemory-policy", "allkeys-lru")
	st, out, _ = call(t, s, "doctor")
	if st != exitError {
		t.Errorf("status %d:\n%s", st, out)
	}
	need(t, out, "allkeys-lru can evict a lock", "-> CONFIG SET maxmemory-policy noeviction", "1 problem(s)")
	s.Do(t, "CONFIG", "SET", "maxmemory", "0")
	if st, _, _ := call(t, s, "doctor"); st != 0 {
		t.Errorf("a warning alone: %d", st)
	}
	if st, _, _ := call(t, s, "doctor", "--strict"); st != exitError {
		t.Errorf("a warning with --strict: %d", st)
	}
	s.Do(t, "CONFIG", "SET", "maxmemory-policy", "noeviction", "min-replicas-to-write", "1")
	if st, out, _ := call(t, s, "doctor"); st != exitError || !strings.Contains(out, "min-replicas-to-write is 1") {
		t.Errorf("%d:\n%s", st, out)
	}
	s.Do(t, "CONFIG", "SET", "min-replicas-to-write", "0")
}

// repeats is a server, or something in its place, that says this of every command but those for which it has an answer.
func repeats(t *testing.T, says string, answers map[string]string) string {
	t.Helper()
	ln, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ln.Close() })
	serve := func(c net.Conn) {
		defer c.Close()
		for r := bufio.NewReader(c); ; {
			var n int
			if _, err := fmt.Fscanf(r, "*%d\r\n", &n); err != nil {
				return
			}
			words := make([]string, n)
			for i := range words {
				var size int
				_, _ = fmt.Fscanf(r, "$%d\r\n", &size)
				b := make([]byte, size+2)
				_, _ = io.ReadFull(r, b)
				words[i] = string(b[:size])
			}
			answer, ok := answers[strings.ToUpper(words[0])]
			if !ok {
				answer = fmt.Sprintf("-ERR %s", strings.ReplaceAll(says, "WHAT", words[0]))
			}
			_, _ = io.WriteString(c, answer+"\r\n")
		}
	}
	go func() { // ends with the listener
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go serve(c) // ends with the connection
		}
	}()
	return ln.Addr().String()
}

// A server that does not understand what a password came with repeats it. Nothing that is printed does.
func TestNothingShowsThePassword(t *testing.T) {
	const password = "geheim"
	login := map[string]string{"AUTH": "+OK", "CLIENT": "+OK", "PING": "+PONG"}
	for _, says := range []string{
		"unknown command 'WHAT', with args beginning with: '3' 'AUTH' 'ops' '" + password + "' ", "unknown command `WHAT`, with args beginning with: `3`, `AUTH`, `ops`, `gehe",
		"bad request: WHAT 3 AUTH ops " + password + " SETNAME x",
	} {
		for _, answers := range []map[string]string{nil, login} {
			addr := repeats(t, says, answers)
			for _, args := range [][]string{{"doctor"}, {"doctor", "-o", "json"}, {"ls"}, {"show", "x"}, {"unlock", "x", "--any-owner", "-y"}, {"run", "x", "-n", "--", "true"}} {
				st, out, errs := callWith(t, "", nil, append([]string{"--timeout", "1s", "--url", "redis://ops:" + password + "@" + addr}, args...)...)
				if st == 0 || strings.Contains(out+errs, "gehe") {
					t.Errorf("%v of a server that says %q: status %d\n%s%s", args, says, st, out, errs)
				}
			}
		}
	}
}

// Flags come before the environment.
func TestConfig(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s")
	s := server(t, "--unixsocket", socket)
	c := client(t, s, func(c *redlatch.Config) { c.Prefix = "p:" })
	h := hold(t, c.RLock("x"))
	t.Setenv("REDIS_URL", "redis://"+s.Addr())
	t.Setenv("REDLATCH_PREFIX", "p:")
	if st, out, errs := callWith(t, "", nil, "show", "x"); st != 0 || !strings.Contains(out, "held") {
		t.Errorf("environment: %d %s %s", st, out, errs)
	}
	t.Setenv("REDLATCH_PREFIX", "q:")
	if st, out, _ := callWith(t, "", nil, "show", "x"); st != 0 || strings.Contains(out, "held") {
		t.Errorf("environment: %d %s", st, out)
	}
	if st, out, _ := callWith(t, "", nil, "show", "x", "--prefix", "p:"); st != 0 || !strings.Contains(out, "held") {
		t.Errorf("flag: %d %s", st, out)
	}
	// A URL means what it means to redlatch.Open: what that takes is taken, what that refuses is refused.
	for _, url := range []string{"redis://" + s.Addr() + "/", "valkey://" + s.Addr(), "unix://" + socket} {
		for _, command := range []string{"ls", "doctor"} {
			if st, out, errs := callWith(t, "", nil, command, "--url", url); st != exitOK {
				t.Errorf("%s of %s: status %d\n%s%s", command, url, st, out, errs)
			}
		}
	}
	if st, _, errs := callWith(t, "", nil, "ls", "--url", "redis://"+s.Addr()+"?pool_size=9"); st != exitUsage || !strings.Contains(errs, "pool_size") {
		t.Errorf("a parameter that would be ignored: %d %s", st, errs)
	}
	if st, _, errs := callWith(t, "", nil, "show", "x", "--url", "http://secret@host"); st != exitUsage || strings.Contains(errs, "secret") {
		t.Errorf("wrong url: %d %s", st, errs)
	}
	t.Setenv("REDLATCH_TIMEOUT", "soon")
	if st, _, errs := callWith(t, "", nil, "show", "x"); st != exitUsage || !strings.Contains(errs, "REDLATCH_TIMEOUT") {
		t.Errorf("wrong variable: %d %s", st, errs)
	}
	unlock(t, h)
}

// A password among the arguments shows in the list of processes: that is said once, and a file takes its place.
func TestURLFile(t *testing.T) {
	s := server(t)
	c := client(t, s)
	s.Do(t, "ACL", "SETUSER", "ops", "on", ">geheim", "+@all", "~*", "&*")
	h := hold(t, c.RLock("x"))
	url := "redis://ops:geheim@" + s.Addr()
	path := filepath.Join(t.TempDir(), "url")
	if err := os.WriteFile(path, []byte(url+"\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	const said = "shows in the list of processes"
	for _, command := range [][]string{{"ls"}, {"doctor"}, {"unlock", "x", "--owner", "nobody", "-y"}} {
		if _, _, errs := callWith(t, "", nil, append([]string{"-u", url}, command...)...); strings.Count(errs, said) != 1 {
			t.Errorf("%v with a password in its URL: %s", command, errs)
		}
		if _, _, errs := call(t, s, command...); strings.Contains(errs, said) {
			t.Errorf("%v without a password: %s", command, errs)
		}
	}
	shows := func(what string, args ...string) {
		t.Helper()
		if st, out, errs := callWith(t, "", nil, append([]string{"show", "x"}, args...)...); st != 0 || !strings.Contains(out, "held") || errs != "" {
			t.Errorf("%s: status %d: %s%s", what, st, out, errs)
		}
	}
	shows("--url-file", "--url-file", path)
	r, w, err := os.Pipe() // as a shell's <(…), which can be read once only
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = w.WriteString(url)
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	shows("a pipe", "--url-file", fmt.Sprintf("/dev/fd/%d", r.Fd()))
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1")
	shows("--url-file before REDIS_URL", "--url-file", path)
	t.Setenv("REDLATCH_URL_FILE", path)
	shows("REDLATCH_URL_FILE before REDIS_URL")
	for _, args := range [][]string{{"--url", url, "--url-file", path}, {"--url-file", path + "x"}} {
		if st, _, errs := callWith(t, "", nil, append([]string{"show", "x"}, args...)...); st != exitUsage {
			t.Errorf("%v: %d %s", args, st, errs)
		}
	}
	unlock(t, h)
}

func TestPasswordFile(t *testing.T) {
	s := testbed.Standalone(t)
	s.Do(t, "ACL", "SETUSER", "ops", "on", ">geheim", "+@all", "~*", "&*")
	path := filepath.Join(t.TempDir(), "pw")
	if err := os.WriteFile(path, []byte("geheim\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if st, _, errs := call(t, s, "show", "x", "--username", "ops", "--password-file", path); st != 0 {
		t.Errorf("%d %s", st, errs)
	}
	// As a shell's <(…), which can be read once only: the doctor connects twice.
	r, w, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	_, err = w.WriteString("geheim\n")
	if err := errors.Join(err, w.Close()); err != nil {
		t.Fatal(err)
	}
	if st, out, errs := call(t, s, "doctor", "--username", "ops", "--password-file", fmt.Sprintf("/dev/fd/%d", r.Fd())); st != 0 {
		t.Errorf("from a pipe: %d %s%s", st, out, errs)
	}
	if st, _, errs := call(t, s, "show", "x", "--username", "ops"); st == 0 {
		t.Errorf("without a password: %d %s", st, errs)
	}
}
