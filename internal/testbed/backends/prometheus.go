package backends

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/redlatch/redlatch/internal/testbed"
)

// Prometheus is a running Prometheus.
type Prometheus struct {
	web
	// Pages is where its pages are: Debian's package has them elsewhere.
	Pages string
}

// StartPrometheus starts the program of PATH on a free port with its data in a
// temporary folder. It scrapes targets every second and evaluates rules, if that file is
// there.
func StartPrometheus(tb testbed.TB, targets []string, rules string) (*Prometheus, error) {
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
	p := &Prometheus{web: web{"http://" + addr}}
	if err := p.run(tb, "prometheus", "/-/ready", exec.Command(program, args...)); err != nil { //nolint:gosec // of PATH
		return nil, err
	}
	p.Pages = p.URL
	if _, err := p.Get(context.Background(), "/classic/alerts", nil); err == nil {
		p.Pages += "/classic"
	}
	return p, nil
}

// Graph is the page that draws an expression.
func (p *Prometheus) Graph(expr string) string {
	return p.Pages + "/graph?g0.range_input=5m&g0.tab=0&g0.expr=" + url.QueryEscape(expr)
}

// Sample is one series of an instant query.
type Sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // time, text
}

// Query evaluates an expression now.
func (p *Prometheus) Query(ctx context.Context, expr string) ([]Sample, error) {
	body, err := p.Get(ctx, "/api/v1/query", url.Values{"query": {expr}})
	if err != nil {
		return nil, err
	}
	var out struct {
		Data struct {
			Result []Sample `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &out); err != nil {
		return nil, err
	}
	return out.Data.Result, nil
}
