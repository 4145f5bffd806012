package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

// errNoSource says that the program does not run beside its source.
var errNoSource = errors.New("bench: run it from inside its repository: it builds further programs")

// repository is the root of the source that this program is run from: the nearest folder above with a go.work.
func repository() (string, error) {
	dir, err := os.Getwd()
	for err == nil {
		if _, missing := os.Stat(filepath.Join(dir, "go.work")); missing == nil {
			return dir, nil
		}
		above := filepath.Dir(dir)
		if above == dir {
			err = errNoSource
		}
		dir = above
	}
	return "", err
}

// buildAgainst builds this very program with the redlatch of another checkout: the same measuring, another engine. It
// returns the file, which lies in dir.
func buildAgainst(ctx context.Context, checkout, dir string) (string, error) {
	root, err := repository()
	if err != nil {
		return "", err
	}
	if checkout, err = filepath.Abs(checkout); err != nil {
		return "", err
	}
	if _, err := os.Stat(filepath.Join(checkout, "client.go")); err != nil {
		return "", fmt.Errorf("bench: -against: no checkout of redlatch: %w", err)
	}
	source := filepath.Join(root, "bench")
	// A go.mod of its own, beside the one that must stay as it is.
	mod := filepath.Join(dir, "against.mod")
	for from, to := range map[string]string{"go.mod": mod, "go.sum": filepath.Join(dir, "against.sum")} {
		data, err := os.ReadFile(filepath.Join(source, from))
		if err == nil {
			err = os.WriteFile(to, data, 0o600)
		}
		if err != nil {
			return "", err
		}
	}
	if err := goTool(ctx, source, "mod", "edit", "-replace", "github.com/redlatch/redlatch="+checkout, mod); err != nil {
		return "", err
	}
	to := filepath.Join(dir, "against.exe")
	return to, goTool(ctx, source, "build", "-mod=mod", "-modfile="+mod, "-o", to, ".")
}

// goTool runs the go command outside of the workspace.
func goTool(ctx context.Context, dir string, args ...string) error {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "GOWORK=off", "GOFLAGS=")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("bench: go %s: %w\n%s", strings.Join(args, " "), err, out)
	}
	return nil
}
