package backends

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/redlatch/redlatch/internal/testbed"
)

// Jaeger is a running Jaeger (version 2) that keeps its traces in memory.
type Jaeger struct {
	web
	// OTLP is where it takes spans by OTLP over HTTP.
	OTLP string
	// Pages says whether it has its pages, or the API alone.
	Pages bool
}

const jaegerConfig = `service:
  extensions: [jaeger_storage, jaeger_query]
  pipelines:
    traces: {receivers: [otlp], exporters: [jaeger_storage_exporter]}
  telemetry:
    metrics: {level: none}
    logs: {level: warn}
    traces: {level: none}
extensions:
  jaeger_storage:
    backends: {memory: {memory: {max_traces: 100000}}}
  jaeger_query:
    storage: {traces: memory}
    http: {endpoint: "%s"}
    grpc: {endpoint: "%s"}
%sreceivers:
  otlp:
    protocols:
      http: {endpoint: "%s"}
exporters:
  jaeger_storage_exporter: {trace_storage: memory}
`

// StartJaeger starts the program of PATH on free ports.
func StartJaeger(tb testbed.TB) (*Jaeger, error) {
	program, err := exec.LookPath("jaeger")
	if err != nil {
		return nil, fmt.Errorf("%w: make jaeger builds it", err)
	}
	dir, err := os.MkdirTemp("", "redlatch-jaeger-")
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // after the process has ended
	var addr [3]string
	for i := range addr {
		if addr[i], err = freeAddr(); err != nil {
			return nil, err
		}
	}
	j := &Jaeger{web: web{"http://" + addr[0]}, OTLP: "http://" + addr[2] + "/v1/traces"}
	// What scripts/ensure-jaeger.sh builds has its pages beside the program.
	ui := ""
	if real, err := filepath.EvalSymlinks(program); err == nil {
		assets := filepath.Join(filepath.Dir(real), "pages")
		if _, err := os.Stat(filepath.Join(assets, "index.html")); err == nil {
			ui = fmt.Sprintf("    ui: {assets_path: %q}\n", assets)
		}
	}
	file := filepath.Join(dir, "jaeger.yml")
	config := fmt.Sprintf(jaegerConfig, addr[0], addr[1], ui, addr[2])
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	cmd := exec.Command(program, "--config="+file)                   //nolint:gosec // of PATH
	cmd.Env = append(os.Environ(), "OTEL_TRACES_SAMPLER=always_off") // it would send its own, too
	if err := j.run(tb, "jaeger", "/api/services", cmd); err != nil {
		return nil, err
	}
	page, err := j.Get(context.Background(), "/search", nil)
	j.Pages = err == nil && len(page) > 500 // else a page that says that there are none
	return j, nil
}
