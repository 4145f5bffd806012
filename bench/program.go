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

// A program is what runs the processes of contenders that this program can't run itself: they speak the lines of
// package work all the same.
type program struct {
	path []string // with its first arguments
	env  []string // besides this process's own
}

// command is what to start; a nil program is this one.
func (p *program) command() ([]string, error) {
	if p != nil {
		return p.path, nil
	}
	self, err := os.Executable()
	return []string{self}, err
}

func (p *program) environment() []string {
	if p == nil {
		return nil
	}
	return p.env
}

// errNoSource says that the program does not run beside its source.
var errNoSource = errors.New("bench: run it from inside its repository: it builds further programs")

// repository is the root of the source that this program is run from: the nearest folder above with a go.work.
func repository() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.work")); err == nil {
			if _, err := os.Stat(filepath.Join(dir, "bench", "go.mod")); err == nil {
				return dir, nil
			}
		}
		above := filepath.Dir(dir)
		if above == dir {
			return "", errNoSource
		}
		dir = above
	}
}

// buildAgainst builds this very program with the redlatch of another checkout: the same measuring, another engine. What
// it makes lies in dir.
func buildAgainst(ctx context.Context, checkout, dir string) (*program, error) {
	root, err := repository()
	if err != nil {
		return nil, err
	}
	if checkout, err = filepath.Abs(checkout); err != nil {
		return nil, err
	}
	if _, err := os.Stat(filepath.Join(checkout, "client.go")); err != nil {
		return nil, fmt.Errorf("bench: -against: no checkout of redlatch: %w", err)
	}
	source := filepath.Join(root, "bench")
	// A go.mod of its own, beside the one that must stay as it is.
	mod := filepath.Join(dir, "against.mod")
	for name, to := range map[string]string{"go.mod": mod, "go.sum": filepath.Join(dir, "against.sum")} {
		data, err := os.ReadFile(filepath.Join(source, name))
		if err == nil {
			err = os.WriteFile(to, data, 0o644)
		}
		if err != nil {
			return nil, err
		}
	}
	const module = "github.com/redlatch/redlatch"
	if err := goTool(ctx, source, "mod", "edit", "-replace", module+"="+checkout, mod); err != nil {
		return nil, err
	}
	to := filepath.Join(dir, "against.exe")
	if err := goTool(ctx, source, "build", "-mod=mod", "-modfile="+mod, "-o", to, "."); err != nil {
		return nil, err
	}
	return &program{path: []string{to}}, nil
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
