#!/bin/sh
# Prints the folders of the workspace's modules, one per line, the root first.
#
# usage: scripts/modules.sh
set -eu
cd "$(dirname "$0")/.."
go work edit -json | sed -n 's/^[[:space:]]*"DiskPath": "\(.*\)".*/\1/p'
