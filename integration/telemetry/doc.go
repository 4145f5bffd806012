// Package telemetry holds the tests of what redlatch tells OpenTelemetry and
// slog: span trees, metrics and log lines, with the SDK on one side and a real
// server on the other.
package telemetry
