// Package dashboards tests the dashboard, the alert rules and the trace queries beside it, on
// the telemetry of examples/observability at work.
package dashboards

import (
	"context"
	"encoding/json"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/internal/testbed/backends"
)

// needs skips a test without the program, unless the environment asks for it.
func needs(t *testing.T, program string) {
	t.Helper()
	if _, err := exec.LookPath(program); err == nil {
		return
	}
	if os.Getenv("REDLATCH_PROMETHEUS") == "require" {
		t.Fatalf("%s is not on PATH: scripts/ensure-prometheus.sh fetches it", program)
	}
	testbed.Skip(t, "%s is not on PATH; scripts/ensure-prometheus.sh fetches it", program)
}

// dashboard is what the tests need of Grafana's format.
type dashboard struct {
	Panels []struct {
		Type, Title string
		Targets     []struct{ Expr string }
	}
	Annotations struct {
		List []struct{ Name, Expr string }
	}
	Templating struct {
		List []struct {
			Name, Type string
			Query      any
		}
	}
}

// read returns a file of this folder, or one by its path from here.
func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	testbed.Must(t, err)
	return string(text)
}

// variables stand for what Grafana would put in.
var variables = strings.NewReplacer("$type", ".*", "$name", ".*", "$lock", "item:*", "$__rate_interval", "15s", "$__interval", "15s")

// shop runs examples/observability until the test ends, and returns where its metrics are.
// env is its environment beside ours; without names its metrics have no lock names.
func shop(t *testing.T, names bool, env ...string) (targets []string) {
	t.Helper()
	root := filepath.Join("..", "..")
	if _, err := os.Stat(filepath.Join(root, "examples")); err != nil {
		t.Skip("not in a clone of the repository")
	}
	program := filepath.Join(t.TempDir(), "observability")
	build := exec.CommandContext(t.Context(), "go", "build", "-o", program, "./examples/observability")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	server := testbed.Standalone(t)
	for t.Context().Err() == nil {
		cmd := exec.Command(program, "-redis", "redis://"+server.Addr(), "-names="+strconv.FormatBool(names))
		cmd.Env = append(os.Environ(), env...)
		p := testbed.Run(t, "observability", cmd)
		targets = nil
		for line := range p.Lines() {
			if _, rest, ok := strings.Cut(line, "http://"); ok && strings.HasPrefix(line, "Metrics:") {
				addr, _, _ := strings.Cut(rest, "/")
				targets = append(targets, addr)
			}
			if strings.HasPrefix(line, "Working") {
				return targets
			}
		}
		// With its short lease a client connects in a short time, or not at all: a busy machine's server is slow.
		t.Logf("it did not begin: %s", p.Stderr())
	}
	t.Fatal("the shop did not begin")
	return nil
}

// scraped starts a real Prometheus that scrapes the shop at work.
func scraped(t *testing.T, names bool, rules string) *backends.Prometheus {
	t.Helper()
	needs(t, "prometheus")
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	p, err := backends.StartPrometheus(t, shop(t, names), rules)
	testbed.Must(t, err)
	return p
}

// untilFound asks again until there is such a sample. A scrape that takes longer than a second leaves nothing to be
// found until the next one.
func untilFound(t *testing.T, ctx context.Context, p *backends.Prometheus, expr string, is func(backends.Sample) bool) { //nolint:revive // t first, as in testing
	t.Helper()
	for {
		got, err := p.Query(ctx, expr)
		if slices.ContainsFunc(got, is) {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("%s: %v %v", expr, got, err)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

func anything(backends.Sample) bool { return true }

// TestPanelsReturnData: the expression of every panel returns a number, the variables of the dashboard find what they
// look for, and a lost lease fires its alert.
func TestPanelsReturnData(t *testing.T) {
	p := scraped(t, true, "alerts.yml")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	var d dashboard
	testbed.Must(t, json.Unmarshal([]byte(read(t, "redlatch.json")), &d))
	var exprs []string
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			exprs = append(exprs, variables.Replace(target.Expr))
		}
	}
	for _, a := range d.Annotations.List {
		exprs = append(exprs, variables.Replace(a.Expr))
	}
	if len(exprs) < 25 {
		t.Fatalf("only %d expressions were found", len(exprs))
	}
	for _, expr := range exprs {
		untilFound(t, ctx, p, expr, numeric)
	}
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			text, _ := q["query"].(string)
			metric, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "label_values("), ")"), ", ")
			untilFound(t, ctx, p, "count by ("+label+") ("+metric+")", func(s backends.Sample) bool { return s.Metric[label] != "" })
		}
	}
	untilFound(t, ctx, p, `ALERTS{alertname="RedlatchLeaseLost",alertstate="firing",lock_name="job:*"}`, anything)
}

// numeric reports whether a series has a value that can be drawn.
func numeric(s backends.Sample) bool {
	text, _ := s.Value[1].(string)
	v, err := strconv.ParseFloat(text, 64)
	return err == nil && !math.IsNaN(v) && !math.IsInf(v, 0)
}

// TestAlertRules runs promtool's tests of the rules, and sees them fail for a
// rule that was changed.
func TestAlertRules(t *testing.T) {
	needs(t, "promtool")
	promtool := func(dir string) ([]byte, error) {
		cmd := exec.Command("promtool", "test", "rules", "alerts_test.yml")
		cmd.Dir = dir
		return cmd.CombinedOutput()
	}
	if out, err := promtool("."); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	rules, tests := read(t, "alerts.yml"), read(t, "alerts_test.yml")
	dir := t.TempDir()
	broken := strings.Replace(rules, "increase(lock_leases_lost_total[5m])) > 0", "increase(lock_leases_lost_total[5m])) > 5", 1)
	for name, text := range map[string]string{"alerts.yml": broken, "alerts_test.yml": tests} {
		testbed.Must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	if out, err := promtool(dir); err == nil {
		t.Errorf("the tests pass for a rule that is wrong:\n%s", out)
	}
}
