// Package connect tests how users reach their servers: over TLS, with passwords,
// through Unix sockets and IPv6, on every topology; and what they are told when it
// fails.
package connect
