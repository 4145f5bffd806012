package dashboards

import (
	"context"
	"encoding/json"
	"fmt"
	"html"
	"math"
	"net/url"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redlatch/redlatch/internal/testbed/backends"
)

// draw makes the picture of docs/OBSERVABILITY.md: plain lines from the answers of
// Prometheus to the expressions of a few panels. It is no rendering by Grafana.
func draw(t *testing.T, p *backends.Prometheus, d dashboard, path string) {
	t.Helper()
	titles := []string{"Acquire: p50, p95, p99", "Acquisitions by outcome", "Waiting and held", "Wait and hold", "Ends of holds", "Tail of the wait (p99 / p50)"}
	const width, height = 460, 190
	var out strings.Builder
	fmt.Fprintf(&out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="10">`, 2*width, 3*height)
	out.WriteString(`<rect width="100%" height="100%" fill="#fff"/>` + "\n")
	time.Sleep(time.Minute) // a minute of work to draw
	for i, title := range titles {
		for _, panel := range d.Panels {
			if panel.Title != title {
				continue
			}
			var lines []line
			for _, target := range panel.Targets {
				lines = append(lines, ranged(t, p, variables.Replace(target.Expr))...)
			}
			fmt.Fprintf(&out, `<g transform="translate(%d,%d)">`, i%2*width, i/2*height)
			drawPanel(&out, title, lines, width, height)
			out.WriteString("</g>\n")
		}
	}
	out.WriteString("</svg>\n")
	if err := os.WriteFile(path, []byte(out.String()), 0o644); err != nil { //nolint:gosec // a picture for everyone
		t.Fatal(err)
	}
}

type line struct {
	label  string
	points [][2]float64
}

func ranged(t *testing.T, p *backends.Prometheus, expr string) []line {
	t.Helper()
	now := time.Now().Unix()
	body, err := p.Get(context.Background(), "/api/v1/query_range", url.Values{
		"query": {expr}, "start": {strconv.FormatInt(now-60, 10)}, "end": {strconv.FormatInt(now, 10)}, "step": {"2"},
	})
	if err != nil {
		t.Fatal(err)
	}
	var reply struct {
		Data struct {
			Result []struct {
				Metric map[string]string
				Values [][2]any
			}
		}
	}
	if err := json.Unmarshal(body, &reply); err != nil {
		t.Fatal(err)
	}
	var out []line
	for _, r := range reply.Data.Result {
		l := line{}
		for _, key := range []string{"lock_outcome", "lock_type", "lock_name", "instance"} {
			if r.Metric[key] != "" {
				l.label = strings.TrimSpace(l.label + " " + r.Metric[key])
			}
		}
		if _, quantile, ok := strings.Cut(expr, "histogram_quantile("); ok && l.label == "" {
			q, rest, _ := strings.Cut(quantile, ",")
			_, metric, _ := strings.Cut(rest, "rate(lock_")
			what, _, _ := strings.Cut(metric, "_")
			l.label = what + " q" + q
		}
		if strings.Contains(expr, "lock_waiting") {
			l.label = "waiting " + l.label
		} else if strings.Contains(expr, "lock_held") {
			l.label = "held " + l.label
		}
		for _, v := range r.Values {
			at, _ := v[0].(float64)
			text, _ := v[1].(string)
			if y, err := strconv.ParseFloat(text, 64); err == nil && !math.IsNaN(y) && !math.IsInf(y, 0) {
				l.points = append(l.points, [2]float64{(at - float64(now-60)) / 60, y})
			}
		}
		if len(l.points) > 1 {
			out = append(out, l)
		}
	}
	return out
}

func drawPanel(out *strings.Builder, title string, lines []line, width, height float64) {
	colours := []string{"#1f77b4", "#ff7f0e", "#2ca02c", "#d62728", "#9467bd", "#8c564b", "#e377c2", "#7f7f7f", "#bcbd22", "#17becf"}
	top := 0.0
	for _, l := range lines {
		for _, p := range l.points {
			top = max(top, p[1])
		}
	}
	left, right, head, foot := 40.0, 130.0, 24.0, 20.0
	fmt.Fprintf(out, `<text x="8" y="15" font-size="12" font-weight="bold">%s</text>`, html.EscapeString(title))
	for _, f := range []float64{0, .5, 1} {
		y := height - foot - f*(height-head-foot)
		fmt.Fprintf(out, `<line x1="%g" x2="%g" y1="%g" y2="%g" stroke="#ddd"/><text x="%g" y="%g" text-anchor="end">%.3g</text>`, left, width-right, y, y, left-4, y+3, f*top)
	}
	for i, l := range lines[:min(len(lines), 10)] {
		var d strings.Builder
		for j, p := range l.points {
			fmt.Fprintf(&d, "%c%.1f,%.1f", "ML"[min(j, 1)], left+p[0]*(width-left-right), height-foot-p[1]/max(top, 1e-9)*(height-head-foot))
		}
		fmt.Fprintf(out, `<path d="%s" fill="none" stroke="%s"/><text x="%g" y="%g" fill="%s">%s</text>`,
			d.String(), colours[i], width-right+6, head+10+float64(i)*13, colours[i], html.EscapeString(l.label))
	}
	fmt.Fprintf(out, `<text x="%g" y="%g" fill="#777">the last minute</text>`, left, height-6)
}
