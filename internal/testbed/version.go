package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"sync"
	"time"
)

// Version tells what a server program is.
type Version struct {
	Product             string // "Redis", "Valkey", "Redict"
	Major, Minor, Patch int
}

func (v Version) String() string {
	return fmt.Sprintf("%s %d.%d.%d", v.Product, v.Major, v.Minor, v.Patch)
}

// AtLeast reports whether the program has what Redis has since major.minor.
// Valkey and Redict count on from Redis 7.2, so that their numbers compare.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// Compare orders versions by their numbers, then by product.
func (v Version) Compare(w Version) int {
	if c := slices.Compare([]int{v.Major, v.Minor, v.Patch}, []int{w.Major, w.Minor, w.Patch}); c != 0 {
		return c
	}
	if v.Product < w.Product {
		return -1
	}
	return 1
}

var versions sync.Map // program: Version; a program does not change under a test

var versionLine = regexp.MustCompile(`(\w+) server v=(\d+)\.(\d+)\.(\d+)`)

// VersionOf asks a server program what it is.
func VersionOf(program string) (Version, error) {
	if v, ok := versions.Load(program); ok {
		return v.(Version), nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "--version")
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return Version{}, fmt.Errorf("testbed: version of %s: %w", program, err)
	}
	m := versionLine.FindStringSubmatch(string(out))
	if m == nil {
		return Version{}, fmt.Errorf("testbed: %s says of itself: %q", program, out)
	}
	v := Version{Product: m[1]}
	for i, n := range []*int{&v.Major, &v.Minor, &v.Patch} {
		if *n, err = strconv.Atoi(m[i+2]); err != nil {
			return Version{}, fmt.Errorf("testbed: %s says of itself: %q", program, out)
		}
	}
	versions.Store(program, v)
	return v, nil
}

// ServerVersion tells which server the functions of this package start for tb.
func ServerVersion(tb TB) Version {
	tb.Helper()
	program, err := programFor(tb)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	v, err := VersionOf(program)
	if err != nil {
		tb.Fatalf("%v", err)
	}
	return v
}

// Needs skips a test whose subject the server lacks: it needs Redis major.minor, or
// one that goes on from it, for the reason that is given.
func Needs(tb TB, major, minor int, reason string) {
	tb.Helper()
	if v := ServerVersion(tb); !v.AtLeast(major, minor) {
		Skip(tb, "on %s: needs %d.%d or newer: %s", v, major, minor, reason)
	}
}

var chosen sync.Map // TB: program

// UseServer has all servers that tb asks for run this program instead of the one
// that [Find] finds. It holds for tb itself, not for its subtests.
func UseServer(tb TB, program string) {
	chosen.Store(tb, program)
	tb.Cleanup(func() { chosen.Delete(tb) })
}

func programFor(tb TB) (string, error) {
	if program, ok := chosen.Load(tb); ok {
		return program.(string), nil
	}
	return Find()
}

// Fetched is a server program that scripts/ensure-servers.sh has fetched.
type Fetched struct {
	Version
	Program string
}

// FetchedServers lists the servers that scripts/ensure-servers.sh has fetched into
// .cache/servers of the workspace, oldest first; none is no error.
func FetchedServers() ([]Fetched, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			break
		}
		up := filepath.Dir(dir)
		if up == dir {
			return nil, errors.New("testbed: this is not run inside the workspace: no go.work above")
		}
		dir = up
	}
	programs, err := filepath.Glob(filepath.Join(dir, ".cache", "servers", "*", "server"))
	if err != nil {
		return nil, err
	}
	all := make([]Fetched, 0, len(programs))
	for _, program := range programs {
		v, err := VersionOf(program)
		if err != nil {
			return nil, err
		}
		all = append(all, Fetched{v, program})
	}
	slices.SortFunc(all, func(a, b Fetched) int { return a.Compare(b.Version) })
	return all, nil
}
