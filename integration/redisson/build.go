//go:build unix

package redisson

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sort"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Version is a version of Redisson.
type Version string

// The versions that the tests try: the newest 4.x when they were written, which is
// the default of pom.xml, and the last 3.x.
const (
	V4 Version = "4.7.0"
	V3 Version = "3.52.0"
)

// Versions are all of them.
var Versions = []Version{V4, V3}

// ErrNoJava says that java, javac or mvn is not on PATH.
var ErrNoJava = errors.New("redisson: a JDK and Maven are not on PATH (scripts/ensure-java.sh installs them on Debian and Ubuntu)")

// ErrSkipped says that REDLATCH_INTEROP=skip leaves these tests out.
var ErrSkipped = errors.New("redisson: left out by REDLATCH_INTEROP=skip")

// Available reports whether the driver can be built and run here: nil, [ErrSkipped]
// or an error that wraps [ErrNoJava].
func Available() error {
	if os.Getenv("REDLATCH_INTEROP") == "skip" {
		return ErrSkipped
	}
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("%w: %s", ErrNoJava, program)
		}
	}
	return nil
}

// Build compiles the driver against a version of Redisson, unless that was done
// since its sources changed, and returns the class path to run it with. It blocks
// while another process builds. The result is in target/<version>/, which Git
// ignores. Maven tries its cache first and the network only when that fails.
func Build(v Version) (classpath string, err error) {
	buildMu.Lock()
	defer buildMu.Unlock()
	if cp, ok := built[v]; ok {
		return cp, nil
	}
	if err := Available(); err != nil {
		return "", err
	}
	dir := sourceDir()
	target := filepath.Join(dir, "target", string(v))
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", err
	}
	unlock, err := lockFile(filepath.Join(target, "build.lock"))
	if err != nil {
		return "", err
	}
	defer unlock()

	sum, err := sourceSum(dir)
	if err != nil {
		return "", err
	}
	stamp := filepath.Join(target, "stamp")
	if old, err := os.ReadFile(stamp); err != nil || string(old) != sum {
		if err := maven(dir, v, "--offline"); err != nil {
			if err := maven(dir, v); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(stamp, []byte(sum), 0o644); err != nil {
			return "", err
		}
	}
	jars, err := os.ReadFile(filepath.Join(target, "classpath.txt"))
	if err != nil {
		return "", err
	}
	cp := filepath.Join(target, "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(jars))
	built[v] = cp
	return cp, nil
}

var (
	buildMu sync.Mutex
	built   = map[Version]string{} // guarded by buildMu
)

// maven compiles and writes classpath.txt: two goals instead of a life cycle, so
// that only two plugins have to be there.
func maven(dir string, v Version, flags ...string) error {
	args := append([]string{"--quiet", "--batch-mode", "-Dredisson.version=" + string(v)}, flags...)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", append(args, "compiler:compile", "dependency:build-classpath")...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("redisson: build against Redisson %s: %w\n%s", v, err, out)
	}
	return nil
}

// sourceDir is this folder: the Maven project lies beside this file.
func sourceDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// sourceSum changes with whatever the build reads.
func sourceSum(dir string) (string, error) {
	files := []string{filepath.Join(dir, "pom.xml")}
	err := filepath.WalkDir(filepath.Join(dir, "src"), func(path string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() {
			files = append(files, path)
		}
		return err
	})
	if err != nil {
		return "", err
	}
	sort.Strings(files)
	h := sha256.New()
	for _, f := range files {
		data, err := os.ReadFile(f)
		if err != nil {
			return "", err
		}
		fmt.Fprintf(h, "%s %d\n%s", filepath.Base(f), len(data), data)
	}
	return fmt.Sprintf("%x", h.Sum(nil)), nil
}

// lockFile waits for an exclusive lock on the file; test binaries of several
// packages may build at the same time.
func lockFile(path string) (unlock func(), err error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, err
	}
	return func() { _ = f.Close() }, nil
}
