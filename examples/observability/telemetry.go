package main

import (
	"cmp"
	"context"
	"errors"
	"net"
	"net/http"
	"os"
	"time"

	prom "github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/otlptranslator"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	otelprom "go.opentelemetry.io/otel/exporters/prometheus"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/resource"
	"go.opentelemetry.io/otel/sdk/trace"
)

// telemetry is one till's exporters.
type telemetry struct {
	addr    string // of the metrics
	tracing *trace.TracerProvider
	meters  *metric.MeterProvider
	server  *http.Server
	served  chan error
}

// newTelemetry serves metrics at listen and sends spans where the environment
// says.
func newTelemetry(ctx context.Context, instance, listen string) (*telemetry, error) {
	res := resource.NewSchemaless(
		attribute.String("service.name", "shop"), attribute.String("service.instance.id", instance))

	// One registry per till: in a service of one process the default one does.
	registry := prom.NewRegistry()
	exporter, err := otelprom.New(
		otelprom.WithRegisterer(registry),
		otelprom.WithTranslationStrategy(otlptranslator.UnderscoreEscapingWithSuffixes), // lock_wait_duration_seconds
		otelprom.WithoutScopeInfo(),
	)
	if err != nil {
		return nil, err
	}
	t := &telemetry{meters: metric.NewMeterProvider(metric.WithReader(exporter), metric.WithResource(res)), served: make(chan error, 1)}

	options := []trace.TracerProviderOption{trace.WithResource(res)}
	if spansGo() != "" {
		spans, err := otlptracehttp.New(ctx) // reads the same environment
		if err != nil {
			return nil, err
		}
		options = append(options, trace.WithBatcher(spans))
	}
	t.tracing = trace.NewTracerProvider(options...)

	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", listen)
	if err != nil {
		return nil, err
	}
	t.addr = listener.Addr().String()
	mux := http.NewServeMux()
	// OpenMetrics carries exemplars: from a bucket to the trace of one that is in it.
	mux.Handle("/metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{EnableOpenMetrics: true}))
	t.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { t.served <- t.server.Serve(listener) }() // ends with close
	return t, nil
}

func (t *telemetry) close() error {
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	err := t.server.Close()
	if served := <-t.served; !errors.Is(served, http.ErrServerClosed) {
		err = errors.Join(err, served)
	}
	return errors.Join(err, t.meters.Shutdown(ctx), t.tracing.Shutdown(ctx))
}

// spansGo is where spans are sent by OTLP; "": nowhere.
func spansGo() string {
	return cmp.Or(os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"), os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT"))
}
