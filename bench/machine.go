package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
)

// machine says where the figures come from: they compare within one run, not between machines.
type machine struct {
	OS, Arch, CPU, Go, Server string
	Cores                     int
	Libraries                 []string
}

func thisMachine(server string) machine {
	m := machine{
		OS: runtime.GOOS, Arch: runtime.GOARCH, CPU: "unknown processor", Go: runtime.Version(),
		Server: server, Cores: runtime.NumCPU(),
	}
	// Only Linux has this file; elsewhere the model stays unknown.
	if info, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(info)) {
			if name, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(name) == "model name" {
				m.CPU = strings.TrimSpace(value)
				break
			}
		}
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if slices.ContainsFunc([]string{"/rueidis", "/redsync/", "/redislock", "/go-redis/"}, func(part string) bool {
				return strings.Contains(dep.Path, part)
			}) {
				m.Libraries = append(m.Libraries, dep.Path+" "+dep.Version)
			}
		}
	}
	return m
}

func (m machine) String() string {
	return fmt.Sprintf("%s/%s, %d × %s, %s, %s\n%s", m.OS, m.Arch, m.Cores, m.CPU, m.Go, m.Server, strings.Join(m.Libraries, ", "))
}
