// Package broken puts a fault into a copy of the code, so that a test can be seen to find it.
package broken

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// A Break is a fault as text.
type Break struct {
	File string // from the root of the repository
	// Old stands exactly once in the file; New takes its place.
	Old, New string
}

// Root is the repository's, from the folder of a package of integration.
var Root = filepath.Join("..", "..")

// Fits says whether the break can be made in the code as it is.
func (b Break) Fits() error {
	text, err := os.ReadFile(filepath.Join(Root, filepath.FromSlash(b.File)))
	if err != nil {
		return err
	}
	if n := strings.Count(string(text), b.Old); n != 1 {
		return fmt.Errorf("what is to be replaced stands %d times in %s; adapt the table", n, b.File)
	}
	return nil
}

// Build makes the tests of a package of integration from a copy with the break in it. The
// copy, with those packages of integration that the first one needs, goes to dir. It returns
// the program, and the folder in which that runs.
func (b Break) Build(dir, pkg string, needs ...string) (program, folder string, err error) {
	if err := b.Fits(); err != nil {
		return "", "", err
	}
	if err := b.copyTo(dir, append(needs, pkg)); err != nil {
		return "", "", err
	}
	program, folder = filepath.Join(dir, "broken.test"), filepath.Join(dir, "integration", filepath.FromSlash(pkg))
	build := exec.CommandContext(context.Background(), "go", "test", "-c", "-o", program, ".")
	build.Dir, build.Env = folder, append(os.Environ(), "GOWORK=off")
	if out, err := build.CombinedOutput(); err != nil {
		return "", "", fmt.Errorf("build: %w\n%s", err, out)
	}
	return program, folder, nil
}

func (b Break) copyTo(dir string, packages []string) error {
	return filepath.WalkDir(Root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(Root, path)
		if err != nil {
			return err
		}
		to, part := filepath.Join(dir, name), filepath.ToSlash(name)
		if d.IsDir() {
			switch {
			case part == ".":
				return nil
			case strings.HasPrefix(d.Name(), "."), part == "docs", part == "bench", part == "examples", part == "cmd",
				strings.HasPrefix(part, "integration/") && !within(part, packages):
				return fs.SkipDir
			}
			return os.MkdirAll(to, 0o750)
		}
		if !d.Type().IsRegular() || strings.HasSuffix(name, "_test.go") && !within(part, packages) {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		if part == b.File {
			text = []byte(strings.Replace(string(text), b.Old, b.New, 1))
		}
		return os.WriteFile(to, text, 0o600)
	})
}

// within reports whether the file or folder belongs to one of the packages of integration.
func within(part string, packages []string) bool {
	return slices.ContainsFunc(packages, func(pkg string) bool {
		return part == "integration/"+pkg || strings.HasPrefix(part, "integration/"+pkg+"/")
	})
}
