#!/bin/sh
# Runs every fuzz target of every module for a while, and says which. What they find is
# written to the target's testdata/fuzz, from where each go test repeats it.
#
# usage: scripts/fuzz.sh [TIME [NAME]], scripts/fuzz.sh --list [NAME]
#
# TIME is for each target. NAME is a part of "folder target", as --list prints them.
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"
time=${1:-30s}
name=${2:-}

targets=$(grep -rE --include='*_test.go' --exclude-dir=.cache --exclude-dir=testdata '^func Fuzz[A-Za-z0-9_]*\(' . |
  sed -n 's|^\./\(.*\)/[^/]*:func \(Fuzz[A-Za-z0-9_]*\).*|\1 \2|p' | sort | grep -F -- "$name" || true)
[ -n "$targets" ] || stop "no target${name:+ is called $name}: nothing ran"
if [ "$time" = --list ]; then
  printf '%s\n' "$targets"
  exit 0
fi

ran=0
failed=
while read -r dir target; do
  printf '== %s %s, %s\n' "$dir" "$target" "$time"
  if ! (cd "$dir" && go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" .) </dev/null; then
    failed="$failed $dir/$target"
  fi
  ran=$((ran + 1))
done <<EOF
$targets
EOF
printf '== %d targets ran for %s each%s\n' "$ran" "$time" "${failed:+; failed:$failed}"
[ -z "$failed" ]
