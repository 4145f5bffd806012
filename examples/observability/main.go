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
// for those who have a container engine.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"syscall"
	"time"

	"github.com/redlatch/redlatch/examples/internal/demoserver"
	"github.com/redlatch/redlatch/internal/testbed"
)

type options struct {
	redis      string
	listen     string
	rules      string
	prometheus bool
	jaeger     string
	last       time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.redis, "redis", demoserver.Auto, "URL of a Redis; default: $REDIS_URL, else a private redis-server, else an embedded one")
	flag.StringVar(&o.listen, "listen", "127.0.0.1:0,127.0.0.1:0", "addresses of the two tills' metrics")
	flag.BoolVar(&o.prometheus, "prometheus", false, "start the prometheus of PATH")
	flag.StringVar(&o.jaeger, "jaeger", "no", "start the jaeger of PATH: yes, no, or auto: if there is one")
	flag.StringVar(&o.rules, "rules", "otel/dashboards/alerts.yml", "alert rules for that Prometheus, if the file is there")
	flag.DurationVar(&o.last, "for", 0, "how long to run; 0: until interrupted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := run(ctx, os.Stdout, o)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "observability:", err)
		os.Exit(1)
	}
}

// traces starts a Jaeger, if it is wanted, and lets the spans go there.
func traces(out io.Writer, program *testbed.Program, choice string) error {
	there := func() bool { _, err := exec.LookPath("jaeger"); return err == nil }
	switch {
	case choice == "auto" && !there():
		fmt.Fprintln(out, "Jaeger:      none on PATH; make jaeger builds one from Go's modules, which takes some minutes")
		return nil
	case choice != "auto" && choice != "yes":
		return nil
	}
	j, err := startJaeger(program)
	if err != nil {
		return err
	}
	fmt.Fprintf(out, "Jaeger:      %s\n", j.url)
	if !j.pages {
		fmt.Fprintln(out, "             its API alone: its pages were not built")
	}
	return os.Setenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", j.otlp+"/v1/traces")
}

// run is the program, until ctx ends or its time is over.
func run(ctx context.Context, out io.Writer, o options) (err error) {
	if o.last > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, o.last)
		defer cancel()
	}
	server, err := demoserver.Start(ctx, "observability", o.redis)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, server.Stop()) }()
	fmt.Fprintln(out, "Redis:      ", server.About)
	program := &testbed.Program{}
	defer program.Close() // after the shop, whose spans it takes
	if err := traces(out, program, o.jaeger); err != nil {
		return err
	}
	log := slog.New(slog.NewTextHandler(os.Stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
	s, err := openShop(ctx, server, o.listen, log)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()
	for _, t := range s.tills {
		fmt.Fprintf(out, "Metrics:     http://%s/metrics (%s)\n", t.addr, t.name)
	}
	fmt.Fprintln(out, "Spans:      ", spansGo())
	if o.prometheus {
		p, err := startPrometheus(program, s.targets(), o.rules)
		if err != nil {
			return err
		}
		fmt.Fprintf(out, "Prometheus:  %s\n", p.url)
		fmt.Fprintf(out, "  waits:     %s\n", p.graph(`histogram_quantile(0.99, sum by (le, lock_name) (rate(lock_wait_duration_seconds_bucket[1m])))`))
		fmt.Fprintf(out, "  alerts:    %s/alerts\n", p.pages)
	}
	fmt.Fprintln(out, "Working until interrupted; lost leases are part of it.")
	s.work(ctx)
	fmt.Fprintf(out, "Sold %d; stock and orders did not agree %d times\n", s.sold.Load(), s.wrong.Load())
	return nil
}
