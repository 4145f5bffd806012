package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/internal/testbed"
)

func TestDoctor(t *testing.T) {
	t.Parallel()
	s := server(t)
	call(t, s, "doctor", "--need", strings.Join(needs(), ",")).ends(exitOK,
		"round trip", "noeviction", "clock", "permissions fair: all there", "lock read-write: taken and freed", "0 problem(s)")
	testbed.Equal(t, fmt.Sprint(s.List(t, "KEYS", "*")), "[]", "what it leaves")
	for _, tc := range []struct {
		settings []string
		args     []string
		status   int
		says     []string
	}{
		{
			[]string{"maxmemory", "100mb", "maxmemory-policy", "allkeys-lru"}, nil, exitError,
			[]string{"allkeys-lru can drop a lock", "-> CONFIG SET maxmemory-policy noeviction", "1 problem(s)"},
		},
		{[]string{"maxmemory", "0"}, nil, exitOK, []string{"0 problem(s), 1 warning(s)"}},
		{nil, []string{"--strict"}, exitError, []string{"0 problem(s), 1 warning(s)"}},
		{[]string{"maxmemory-policy", "noeviction", "min-replicas-to-write", "1"}, nil, exitError, []string{"min-replicas-to-write is 1"}},
		{[]string{"min-replicas-to-write", "0"}, []string{"--strict"}, exitOK, []string{"0 problem(s), 0 warning(s)"}},
	} {
		if tc.settings != nil {
			s.Do(t, append([]string{"CONFIG", "SET"}, tc.settings...)...)
		}
		call(t, s, append([]string{"doctor"}, tc.args...)...).ends(tc.status, tc.says...)
	}
}

// doctor tells a server that hangs from one that does not run, and from a slow way to it, in the runbook's words.
func TestDoctorServerOrNetwork(t *testing.T) {
	t.Parallel()
	s := server(t)
	p := testbed.NewProxy(t, s.Addr())
	for _, tc := range []struct {
		is     func()
		status int
		says   string
		row    string
	}{
		{func() { p.Delay(testbed.Requests, 60*time.Millisecond) }, exitOK, "WARN  round trip ", "| a long `round trip` |"},
		{func() { p.Delay(testbed.Requests, 0); s.Freeze(t) }, exitUnavailable, "connected, but there is no answer", "| `connected, but there is no answer` |"},
		{func() { s.Thaw(t); p.Refuse() }, exitUnavailable, "connection refused", "| `connection refused` |"},
	} {
		tc.is()
		got := call(t, nil, "doctor", "--timeout", "1s", "--url", "redis://"+p.Addr()).ends(tc.status)
		need(t, got.out+got.errs, tc.says)
		inRunbook(t, tc.row)
	}
}

// A server that does not understand what a password came with repeats it. Nothing that is printed does.
func TestNothingShowsThePassword(t *testing.T) {
	t.Parallel()
	s := server(t)
	s.SetUser(t, "ops", "on", ">geheim", "+@all", "~*", "&*")
	login := []string{"AUTH", "CLIENT", "CLUSTER", "PING"} // with which a client connects
	for _, says := range []string{
		"ERR unknown command 'HELLO', with args beginning with: '3' 'AUTH' 'ops' 'geheim' ",
		"ERR unknown command `HELLO`, with args beginning with: `3`, `AUTH`, `ops`, `gehe",
		"ERR bad request: HELLO 3 AUTH ops geheim SETNAME x",
	} {
		for _, answered := range [][]string{nil, login} {
			p := testbed.NewProxy(t, s.Addr())
			p.Answer(func(args []string) bool { return !slices.Contains(answered, strings.ToUpper(args[0])) }, says).Times(-1)
			for _, args := range [][]string{
				{"doctor"}, {"doctor", "-o", "json"}, {"ls"}, {"show", "x"}, {"unlock", "x", "--any-owner", "-y"}, {"history"}, {"run", "x", "-n", "--", "true"},
			} {
				got := call(t, nil, append([]string{"--timeout", "1s", "--url", "redis://ops:geheim@" + p.Addr()}, args...)...)
				if got.status == exitOK || strings.Contains(got.out+got.errs, "gehe") {
					t.Errorf("%v of a server that says %q: status %d\n%s%s", args, says, got.status, got.out, got.errs)
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
	call(t, nil, "show", "x").ends(exitOK, "held")
	t.Setenv("REDLATCH_PREFIX", "q:")
	call(t, nil, "show", "x").ends(exitOK, "free")
	call(t, nil, "show", "x", "--prefix", "p:").ends(exitOK, "held")
	// A URL means what it means to redlatch.Open: what that takes is taken, what that refuses is refused.
	for _, url := range []string{"redis://" + s.Addr() + "/", "valkey://" + s.Addr(), "unix://" + socket} {
		for _, command := range []string{"ls", "doctor"} {
			call(t, nil, command, "--url", url).ends(exitOK)
		}
	}
	call(t, nil, "ls", "--url", "redis://"+s.Addr()+"?pool_size=9").fails(exitUsage, "pool_size")
	wrong := call(t, nil, "show", "x", "--url", "http://secret@host")
	wrong.fails(exitUsage)
	lacks(t, wrong.errs, "secret")
	t.Setenv("REDLATCH_TIMEOUT", "soon")
	call(t, nil, "show", "x").fails(exitUsage, "REDLATCH_TIMEOUT")
	unlock(t, h)
}

// fileOf makes a file.
func fileOf(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	testbed.Must(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

// pipe is a file as a shell's <(…), which can be read once only.
func pipe(t *testing.T, text string) string {
	t.Helper()
	r, w, err := os.Pipe()
	testbed.Must(t, err)
	t.Cleanup(func() { _ = r.Close() })
	_, err = w.WriteString(text)
	testbed.Must(t, errors.Join(err, w.Close()))
	return fmt.Sprintf("/dev/fd/%d", r.Fd())
}

// A password among the arguments shows in the list of processes: that is said once, and a file takes its place.
func TestURLFile(t *testing.T) {
	s := server(t)
	s.SetUser(t, "ops", "on", ">geheim", "+@all", "~*", "&*")
	h := hold(t, client(t, s).RLock("x"))
	url := "redis://ops:geheim@" + s.Addr()
	path := fileOf(t, url+"\n")
	const said = "shows in the list of processes"
	for _, command := range [][]string{{"ls"}, {"doctor"}, {"unlock", "x", "--owner", "nobody", "-y"}} {
		with := call(t, nil, append([]string{"-u", url}, command...)...)
		testbed.Equal(t, strings.Count(with.errs, said), 1, command, "with a password in its URL:", with.errs)
		lacks(t, call(t, s, command...).errs, said)
	}
	call(t, nil, "show", "x", "--url-file", path).ends(exitOK, "held").warns()
	call(t, nil, "show", "x", "--url-file", pipe(t, url)).ends(exitOK, "held").warns()
	t.Setenv("REDIS_URL", "redis://127.0.0.1:1") // the file comes first
	call(t, nil, "show", "x", "--url-file", path).ends(exitOK, "held").warns()
	t.Setenv("REDLATCH_URL_FILE", path)
	call(t, nil, "show", "x").ends(exitOK, "held").warns()
	call(t, nil, "show", "x", "--url", url, "--url-file", path).fails(exitUsage)
	call(t, nil, "show", "x", "--url-file", path+"x").fails(exitUsage)
	unlock(t, h)
}

func TestPasswordFile(t *testing.T) {
	t.Parallel()
	s := testbed.Standalone(t)
	s.SetUser(t, "ops", "on", ">geheim", "+@all", "~*", "&*")
	call(t, s, "show", "x", "--username", "ops", "--password-file", fileOf(t, "geheim\n")).ends(exitOK)
	call(t, s, "doctor", "--username", "ops", "--password-file", pipe(t, "geheim\n")).ends(exitOK) // it connects twice
	if st := call(t, s, "show", "x", "--username", "ops").status; st == exitOK {
		t.Error("it needs no password")
	}
}
