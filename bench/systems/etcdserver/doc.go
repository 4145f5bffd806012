// Package etcdserver pins the version of etcd's server that the comparison runs: scripts/ensure-peers.sh builds it. It
// is a module outside of the workspace, whose versions it would raise otherwise.
package etcdserver
