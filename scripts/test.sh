#!/bin/sh
# Runs the tests of every module with the race detector.
#
# usage: TEST_FLAGS='-run TestA|TestB' scripts/test.sh
#
# TEST_FLAGS are flags for go test, separated by spaces. Three packages of a module run side by
# side, and of each eight of the tests that may run in parallel: most of them wait for leases. All
# bounds leave room for a machine that has other work; TEST_FLAGS='-p 1' gives each package the
# machine alone. Goes on after a module has failed, lists at the end what was not tested and a line
# per module, and fails when one failed or ran no test at all.
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"
set -f
# shellcheck disable=SC2086 # split into words on purpose
set -- ${TEST_FLAGS:-}
mkdir -p .cache/test

REDLATCH_UNTESTED=$root/.cache/test/untested # go test shows nothing of tests that are skipped
export REDLATCH_UNTESTED
: >"$REDLATCH_UNTESTED"

summary=
failed=0
for module in $(modules); do
  name=$(echo "$module" | sed 's|^\./||; s|^\.$|root|; s|/|-|g')
  log=$root/.cache/test/$name.log
  printf '\n== %s: go test -race %s ./...\n' "$name" "$*"
  begin=$(date +%s)
  # The status of the first part of a pipe is lost in sh: it goes through a file.
  { (cd "$module" && go test -race -count=1 -p 3 -parallel 8 -timeout 30m "$@" ./...) 2>&1 && echo 0 >"$log.status" || echo 1 >"$log.status"; } | tee "$log"
  took=$(($(date +%s) - begin))
  ran=$(grep -c '^ok ' "$log" || true)
  empty=$(grep -c '^ok .*\[no tests to run\]' "$log" || true)
  if [ "$(cat "$log.status")" -ne 0 ]; then
    result=FAIL
    failed=1
  elif [ "$ran" -eq "$empty" ]; then
    result="FAIL (no test ran)"
    failed=1
  else
    result="ok, $((ran - empty)) package(s) with tests"
  fi
  summary="$summary$(printf '%-12s %s, %d s' "$name" "$result" "$took")
"
done
if [ -s "$REDLATCH_UNTESTED" ]; then
  printf '\n== not tested, and why\n'
  sort "$REDLATCH_UNTESTED" | uniq -c
fi
printf '\n== result by module\n%s' "$summary"
for what in java prometheus jaeger chromium servers; do
  "scripts/ensure-$what.sh" --check || true
done
exit "$failed"
