// Package otel reports what a Client's locks do as OpenTelemetry spans and metrics.
// It depends on the OpenTelemetry API only; the program chooses the SDK and the
// exporters. docs/OBSERVABILITY.md lists every span, attribute and metric.
//
// Programs do not import this package: the Client uses the global providers, or
// those in its Config.
package otel
