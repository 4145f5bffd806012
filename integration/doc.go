// Package integration holds the tests of redlatch against real servers:
// standalone, replicas under Sentinel, Cluster and several masters.
//
// It is a module of its own, so that what the tests need (leak and history
// checkers, the OpenTelemetry SDK) never becomes a dependency of the SDK. The
// servers come from internal/testbed of the root module.
package integration
