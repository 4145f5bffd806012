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

func readDashboard(t *testing.T) dashboard {
	t.Helper()
	text, err := os.ReadFile("redlatch.json")
	if err != nil {
		t.Fatal(err)
	}
	var d dashboard
	if err := json.Unmarshal(text, &d); err != nil {
		t.Fatal(err)
	}
	return d
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

// TestPanelsReturnData runs the expression of every panel against a real
// Prometheus that scrapes the shop at work: each must return a number.
func TestPanelsReturnData(t *testing.T) {
	needs(t, "prometheus")
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	p, err := backends.StartPrometheus(t, shop(t, true), "alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()

	exprs := map[string]string{}
	d := readDashboard(t)
	for _, panel := range d.Panels {
		for _, target := range panel.Targets {
			exprs[panel.Title+": "+variables.Replace(target.Expr)] = variables.Replace(target.Expr)
		}
	}
	for _, a := range d.Annotations.List {
		exprs[a.Name+": "+variables.Replace(a.Expr)] = variables.Replace(a.Expr)
	}
	if len(exprs) < 25 {
		t.Fatalf("only %d expressions were found", len(exprs))
	}
	for len(exprs) > 0 {
		for name, expr := range exprs {
			got, err := p.Query(ctx, expr)
			if ctx.Err() == nil && err != nil {
				t.Errorf("%s: %v", name, err)
				delete(exprs, name)
			}
			if slices.ContainsFunc(got, numeric) {
				delete(exprs, name)
			}
		}
		select {
		case <-ctx.Done():
			for name := range exprs {
				t.Errorf("no data: %s", name)
			}
			return
		case <-time.After(500 * time.Millisecond):
		}
	}

	// The variables of the dashboard find what they look for, and a lost lease
	// fires its alert. A scrape that takes longer than a second leaves nothing to be
	// found until the next one.
	found := func(expr string, is func(backends.Sample) bool) {
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
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			text, _ := q["query"].(string)
			metric, label, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(text, "label_values("), ")"), ", ")
			found("count by ("+label+") ("+metric+")", func(s backends.Sample) bool { return s.Metric[label] != "" })
		}
	}
	found(`ALERTS{alertname="RedlatchLeaseLost",alertstate="firing",lock_name="job:*"}`, func(backends.Sample) bool { return true })
	if path := os.Getenv("REDLATCH_DRAW"); path != "" {
		draw(t, p, d, path)
	}
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
	rules, err := os.ReadFile("alerts.yml")
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile("alerts_test.yml")
	if err != nil {
		t.Fatal(err)
	}
	names := 0
	for line := range strings.Lines(string(rules)) {
		name, ok := strings.CutPrefix(strings.TrimSpace(line), "- alert: ")
		if !ok {
			continue
		}
		names++
		if !strings.Contains(string(tests), "alertname: "+name) {
			t.Errorf("no test for %s", name)
		}
	}
	if names < 8 {
		t.Errorf("%d rules were found", names)
	}
	dir := t.TempDir()
	broken := strings.Replace(string(rules), "increase(lock_leases_lost_total[5m])) > 0", "increase(lock_leases_lost_total[5m])) > 5", 1)
	for name, text := range map[string]string{"alerts.yml": broken, "alerts_test.yml": string(tests)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := promtool(dir); err == nil {
		t.Errorf("the tests pass for a rule that is wrong:\n%s", out)
	}
}
