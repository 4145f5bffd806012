// Package hazard holds the tests of what the client library can't bear, and connections that end before it must.
package hazard
