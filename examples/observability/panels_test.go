package main

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch"
	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
)

const dashboards = "../../otel/dashboards"

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
	text, err := os.ReadFile(filepath.Join(dashboards, "redlatch.json"))
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

// shopFor opens a shop on a server of its own; ctx ends after limit, or with the
// test. To close the shop is the caller's.
func shopFor(t *testing.T, limit time.Duration) (context.Context, *shop) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), limit) // the server outlives t.Context()
	t.Cleanup(cancel)
	server, err := demoserver.Start(ctx, "observability", demoserver.Private)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := server.Stop(); err != nil {
			t.Error(err)
		}
	})
	for {
		s, err := openShop(ctx, server, "127.0.0.1:0,127.0.0.1:0", slog.New(slog.NewTextHandler(io.Discard, nil)))
		if err == nil {
			return ctx, s
		}
		// With its short lease a client connects in a short time, or not at all: a busy machine's server is slow.
		if !errors.Is(err, redlatch.ErrUnavailable) || ctx.Err() != nil {
			t.Fatal(err)
		}
	}
}

// TestPanelsReturnData runs the expression of every panel against a real
// Prometheus that scrapes the shop at work: each must return a number.
func TestPanelsReturnData(t *testing.T) {
	needs(t, "prometheus")
	if testing.Short() {
		t.Skip("it takes half a minute")
	}
	ctx, s := shopFor(t, 4*time.Minute)
	defer func() {
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}()
	p, err := startPrometheus(t, s.targets(), filepath.Join(dashboards, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	working, stop := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() { // ends with working
		defer close(done)
		s.work(working)
	}()
	defer func() {
		stop()
		<-done
	}()

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
			got, err := p.query(ctx, expr)
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
	found := func(expr string, is func(sample) bool) {
		t.Helper()
		for {
			got, err := p.query(ctx, expr)
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
			found("count by ("+label+") ("+metric+")", func(s sample) bool { return s.Metric[label] != "" })
		}
	}
	found(`ALERTS{alertname="RedlatchLeaseLost",alertstate="firing",lock_name="job:*"}`, func(sample) bool { return true })
	if path := os.Getenv("REDLATCH_DRAW"); path != "" {
		draw(t, p, d, path)
	}
}

// numeric reports whether a series has a value that can be drawn.
func numeric(s sample) bool {
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
	if out, err := promtool(dashboards); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
	rules, err := os.ReadFile(filepath.Join(dashboards, "alerts.yml"))
	if err != nil {
		t.Fatal(err)
	}
	tests, err := os.ReadFile(filepath.Join(dashboards, "alerts_test.yml"))
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
	if names < 6 {
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

// TestComposeMountsWhatIsThere keeps compose.yaml in step with the files that it
// names; there is no container engine in these tests.
func TestComposeMountsWhatIsThere(t *testing.T) {
	text, err := os.ReadFile("compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	mounts := regexp.MustCompile(`(?m)["\s](\.{1,2}/[^:"\s]+):/`).FindAllStringSubmatch(string(text), -1)
	if len(mounts) < 6 {
		t.Errorf("only %d mounts were found", len(mounts))
	}
	for _, m := range mounts {
		if _, err := os.Stat(m[1]); err != nil {
			t.Error(err)
		}
	}
	read := func(name string) string {
		text, err := os.ReadFile(filepath.Join("compose", name))
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	for _, port := range []string{"9464", "9465"} {
		if !strings.Contains(string(text), "0.0.0.0:"+port) || !strings.Contains(read("prometheus.yml"), "shop:"+port) {
			t.Errorf("port %s is served or scraped alone", port)
		}
	}
}
