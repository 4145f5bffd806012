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

// Available says why the driver can't be built and run here; nil: it can.
func Available() error {
	if os.Getenv("REDLATCH_INTEROP") == "skip" {
		return errors.New("redisson: left out by REDLATCH_INTEROP=skip")
	}
	for _, program := range []string{"java", "javac", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return fmt.Errorf("redisson: a JDK and Maven are not on PATH (scripts/ensure-java.sh installs them on Debian and Ubuntu): %s", program)
		}
	}
	return nil
}

var builds = map[Version]func() (string, error){
	V4: sync.OnceValues(func() (string, error) { return build(V4) }),
	V3: sync.OnceValues(func() (string, error) { return build(V3) }),
}

// Build compiles the driver against a version of Redisson, unless that was done
// since its sources changed, and returns the class path to run it with. It blocks
// while another process builds. The result is in target/<version>/, which Git
// ignores. Maven tries its cache first and the network only when that fails. The working directory is this folder.
func Build(v Version) (classpath string, err error) { return builds[v]() }

func build(v Version) (classpath string, err error) {
	if err := Available(); err != nil {
		return "", err
	}
	target, err := filepath.Abs(filepath.Join("target", string(v)))
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(target, 0o755); err != nil {
		return "", err
	}
	lock, err := os.Create(filepath.Join(target, "build.lock"))
	if err != nil {
		return "", err
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", err
	}
	sum, err := sourceSum()
	if err != nil {
		return "", err
	}
	stamp := filepath.Join(target, "stamp")
	if old, err := os.ReadFile(stamp); err != nil || string(old) != sum {
		if maven(v, "--offline") != nil {
			if err := maven(v); err != nil {
				return "", err
			}
		}
		if err := os.WriteFile(stamp, []byte(sum), 0o644); err != nil {
			return "", err
		}
	}
	jars, err := os.ReadFile(filepath.Join(target, "classpath.txt"))
	return filepath.Join(target, "classes") + string(os.PathListSeparator) + strings.TrimSpace(string(jars)), err
}

// maven compiles and writes classpath.txt: two goals instead of a life cycle, so
// that only two plugins have to be there.
func maven(v Version, flags ...string) error {
	args := append([]string{"--quiet", "--batch-mode", "-Dredisson.version=" + string(v)}, flags...)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "mvn", append(args, "compiler:compile", "dependency:build-classpath")...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("redisson: build against Redisson %s: %w\n%s", v, err, out)
	}
	return nil
}

// sourceSum changes with whatever the build reads.
func sourceSum() (string, error) {
	h := sha256.New()
	var errs error
	for _, root := range []string{"pom.xml", "src"} {
		errs = errors.Join(errs, filepath.WalkDir(root, func(path string, d fs.DirEntry, err error) error {
			if err != nil || d.IsDir() {
				return err
			}
			data, err := os.ReadFile(path)
			fmt.Fprintf(h, "%s %d\n%s", d.Name(), len(data), data)
			return err
		}))
	}
	return fmt.Sprintf("%x", h.Sum(nil)), errs
}
