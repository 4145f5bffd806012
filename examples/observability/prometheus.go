package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// prom is a running Prometheus.
type prom struct {
	web
	pages string // where its pages are: Debian's package has them elsewhere
}

// startPrometheus starts the program of PATH on a free port with its data in a
// temporary folder. It is stopped by its own pid when tb cleans up, or when this
// process dies.
func startPrometheus(tb testbed.TB, targets []string, rules string) (*prom, error) {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return nil, fmt.Errorf("%w: scripts/ensure-prometheus.sh installs it on Debian and Ubuntu", err)
	}
	dir, err := os.MkdirTemp("", "redlatch-prometheus-")
	if err != nil {
		return nil, err
	}
	tb.Cleanup(func() { _ = os.RemoveAll(dir) }) // after the process has ended
	config := "global: {scrape_interval: 1s, evaluation_interval: 1s}\nscrape_configs:\n- job_name: shop\n  static_configs:\n  - targets: ['" +
		strings.Join(targets, "', '") + "']\n"
	if abs, err := filepath.Abs(rules); err == nil && rules != "" {
		if _, err := os.Stat(abs); err == nil {
			config += "rule_files: ['" + abs + "']\n"
		}
	}
	file := filepath.Join(dir, "prometheus.yml")
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		return nil, err
	}
	addr, err := freeAddr()
	if err != nil {
		return nil, err
	}
	args := []string{
		"--config.file=" + file, "--storage.tsdb.path=" + filepath.Join(dir, "data"), "--web.listen-address=" + addr,
		"--enable-feature=exemplar-storage", "--log.level=warn",
	}
	// Debian's package keeps the pages beside the program.
	if real, err := filepath.EvalSymlinks(program); err == nil {
		web := filepath.Join(filepath.Dir(real), "..", "share", "prometheus", "web")
		if _, err := os.Stat(web); err == nil {
			args = append(args, "--web.local-assets="+filepath.Clean(web))
		}
	}
	process := testbed.Run(tb, "prometheus", exec.Command(program, args...)) //nolint:gosec,noctx // of PATH; ends with tb
	p := &prom{web: web{url: "http://" + addr}}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for {
		if _, err := p.get(ctx, "/-/ready", nil); err == nil {
			p.pages = p.url
			if _, err := p.get(ctx, "/classic/alerts", nil); err == nil {
				p.pages += "/classic"
			}
			return p, nil
		}
		select {
		case <-process.Done():
			return nil, fmt.Errorf("prometheus ended:\n%s", process.Stderr())
		case <-ctx.Done():
			return nil, errors.New("prometheus is not ready after 30 s")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// graph is the page that draws an expression.
func (p *prom) graph(expr string) string {
	return p.pages + "/graph?g0.range_input=5m&g0.tab=0&g0.expr=" + url.QueryEscape(expr)
}

// sample is one series of an instant query.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // time, text
}

// query evaluates an expression now.
func (p *prom) query(ctx context.Context, expr string) ([]sample, error) {
	body, err := p.get(ctx, "/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, err
	}
	var out struct {
		Data struct {
			Result []sample `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	return out.Data.Result, nil
}
