// Package otel names redlatch's telemetry. A Client reports spans and metrics to the global OpenTelemetry providers, or
// to those in its Config; docs/OBSERVABILITY.md lists them all. The folder dashboards has a dashboard, alert rules and
// queries for traces.
package otel

// Scope is the instrumentation scope of all spans and metrics, for a view or a sampler that applies to them alone.
const Scope = "github.com/redlatch/redlatch"
