package dashboards

import (
	"context"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed"
)

// Every alert has a test, and a runbook: a heading of docs/OPERATIONS.md, with commands below it.
func TestAlertsHaveRunbooks(t *testing.T) {
	runbook := filepath.Join("..", "..", "docs", "OPERATIONS.md")
	if _, err := os.Stat(runbook); err != nil {
		t.Skip("not in a clone of the repository")
	}
	page, tests, alerts := read(t, runbook), read(t, "alerts_test.yml"), strings.Split(read(t, "alerts.yml"), "- alert: ")[1:]
	for _, rule := range alerts {
		name, _, _ := strings.Cut(rule, "\n")
		if !strings.Contains(tests, "alertname: "+name) {
			t.Errorf("no test for %s", name)
		}
		if url := "docs/OPERATIONS.md#" + strings.ToLower(name) + "\n"; !strings.Contains(rule, "runbook_url: https://") || !strings.Contains(rule, url) {
			t.Errorf("%s has no runbook_url that ends with %s", name, url)
		}
		_, section, found := strings.Cut(page, "\n### "+name+"\n")
		section, _, _ = strings.Cut(section, "\n#")
		if !found || !strings.Contains(section, "\nredlatch ") {
			t.Errorf("docs/OPERATIONS.md has no commands below a heading ### %s", name)
		}
	}
	if len(alerts) < 8 {
		t.Errorf("%d rules were found", len(alerts))
	}
}

// The rules find what they look for in the metrics of a Client without lock names, in a real Prometheus: with times
// and limits that a short run of the shop passes, what is wrong there fires.
func TestAlertsFireWithoutLockNames(t *testing.T) {
	rules := regexp.MustCompile(`\[\d+m\]`).ReplaceAllString(read(t, "alerts.yml"), "[15s]")
	rules = regexp.MustCompile(`(?m)^ +for: .*\n`).ReplaceAllString(rules, "")
	for _, limit := range [][2]string{{") > 300", ") > 0.02"}, {") > 900", ") > 1"}, {") > 5", ") > 0.001"}, {") > 0.8", ") > 0.01"}, {") > 1", ") > 0.1"}} {
		if !strings.Contains(rules, limit[0]+"\n") {
			t.Fatalf("no rule has the limit %s", limit[0])
		}
		rules = strings.Replace(rules, limit[0]+"\n", limit[1]+"\n", 1)
	}
	file := filepath.Join(t.TempDir(), "alerts.yml")
	testbed.Must(t, os.WriteFile(file, []byte(rules), 0o600))
	p := scraped(t, false, file)
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	shows := func(expr string) { t.Helper(); untilFound(t, ctx, p, expr, anything) }
	for _, alert := range []string{"LeaseLost", "Stuck", "HeldLong", "SlowWaits", "Contention"} {
		shows(`ALERTS{alertname="Redlatch` + alert + `",alertstate="firing",lock_type!="",lock_name=""}`)
	}
	// Nothing fails in the shop, and every lock is got by somebody: what these rules count is there.
	shows(`lock_renewals_total{error_type="unavailable",instance!=""}`)
	shows(`lock_acquire_duration_seconds_count{lock_outcome="busy",lock_type!="",lock_name=""} > 0`)
}
