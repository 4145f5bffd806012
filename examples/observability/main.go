// Command observability is a workload to observe: two tills of a shop with an endless
// flash sale and locks of every kind. It exports redlatch's telemetry.
//
// It serves metrics for Prometheus, one address per till, and sends spans by OTLP to
// OTEL_EXPORTER_OTLP_ENDPOINT, if that is set. With -prometheus it starts the
// prometheus on PATH on a free port, which scrapes both tills and has the alert rules
// of otel/dashboards; with -jaeger it starts the jaeger on PATH and sends the spans there.
//
//	go run ./examples/observability -prometheus -jaeger=yes   # from the root; or: make observe
//	OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4318 go run ./examples/observability
//
// compose.yaml beside this file adds Grafana with the shipped dashboard, and Tempo,
// for those who have a container engine. telemetry.go has the exporters, shop.go how a
// client gets them, sale.go the work.
package main

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
	"github.com/redlatch/redlatch/internal/testbed/backends"
)

// What the program takes.
var (
	redis      = flag.String("redis", demoserver.Auto, "URL of a Redis; default: $REDIS_URL, else a private redis-server, else an embedded one")
	listen     = flag.String("listen", "127.0.0.1:0,127.0.0.1:0", "addresses of the two tills' metrics")
	prometheus = flag.Bool("prometheus", false, "start the prometheus of PATH")
	jaeger     = flag.String("jaeger", "no", "start the jaeger of PATH: yes, no, or auto: if there is one")
	names      = flag.Bool("names", true, "metrics with lock names, as templates")
	rules      = flag.String("rules", "otel/dashboards/alerts.yml", "alert rules for that Prometheus, if the file is there")
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// run is the program, until ctx ends.
func run(ctx context.Context) (err error) {
	server, err := demoserver.Start(ctx, "observability", *redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Println("Redis:      ", server.About)
	program := &testbed.Program{}
	defer program.Close() // after the shop, whose spans it takes
	if err := startJaeger(program); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := openShop(ctx, server, *listen, *names, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	var targets []string
	for _, t := range s.tills {
		fmt.Printf("Metrics:     http://%s/metrics (%s)\n", t.addr, t.name)
		targets = append(targets, t.addr)
	}
	fmt.Println("Spans:       to", cmp.Or(spansGo(), "nowhere (set OTEL_EXPORTER_OTLP_ENDPOINT)"))
	if *prometheus {
		p, err := backends.StartPrometheus(program, targets, *rules)
		if err != nil {
			return err
		}
		fmt.Printf("Prometheus:  %s\n", p.URL)
		fmt.Printf("  waits:     %s\n", p.Graph(`histogram_quantile(0.99, sum by (le, lock_name) (rate(lock_wait_duration_seconds_bucket[1m])))`))
		fmt.Printf("  alerts:    %s/alerts\n", p.Pages)
	}
	fmt.Println("Working until interrupted; lost leases are part of it.")
	s.work(ctx)
	fmt.Printf("Sold %d; stock and orders did not agree %d times\n", s.sold.Load(), s.wrong.Load())
	return nil
}

// startJaeger starts a Jaeger, if it is wanted, and lets the spans go there.
func startJaeger(program *testbed.Program) error {
	if _, err := exec.LookPath("jaeger"); err != nil && *jaeger == "auto" {
		fmt.Println("Jaeger:      none on PATH; make jaeger builds one from Go's modules, which takes some minutes")
		return nil
	}
	if *jaeger == "no" {
		return nil
	}
	j, err := backends.StartJaeger(program)
	if err != nil {
		return err
	}
	fmt.Println("Jaeger:     ", j.URL)
	if !j.Pages {
		fmt.Println("             its API alone: its pages were not built")
	}
	return os.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", j.OTLP)
}
