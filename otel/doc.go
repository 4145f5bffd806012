// Package otel turns what a Client's locks do into OpenTelemetry spans and
// metrics. It uses the OpenTelemetry API only; which SDK and exporters receive
// them is the program's choice. docs/OBSERVABILITY.md lists every span, attribute
// and metric.
//
// Programs do not import this package: the Client uses the global providers, or
// those in its Config.
package otel
