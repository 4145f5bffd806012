#!/bin/sh
# Runs every fuzz target of every module for a while. What it finds is written to the
# target's testdata/fuzz, from where each go test repeats it.
#
# usage: scripts/fuzz.sh [TIME]
set -eu
cd "$(dirname "$0")/.."
time=${1:-30s}
for module in $(scripts/modules.sh); do
  grep -rlE --include='*_test.go' '^func Fuzz' "$module" --exclude-dir=.cache | while read -r file; do
    # A module inside this one has its own turn.
    dir=$(dirname "$file")
    [ "$(cd "$dir" && go list -m -f '{{.Dir}}' 2>/dev/null)" = "$(cd "$module" && pwd)" ] || continue
    sed -n 's/^func \(Fuzz[A-Za-z0-9_]*\).*/\1/p' "$file" | while read -r target; do
      echo "== $dir $target"
      (cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" .)
    done
  done
done
