// Package versions tests the promises that depend on the server on every server that
// scripts/ensure-servers.sh has fetched: a short form of what make matrix does.
// docs/SERVERS.md has the table.
package versions
