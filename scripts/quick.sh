#!/bin/sh
# Runs what takes no minutes and fetches nothing but Go modules: the units, and tables of what every kind
# of lock promises. The server is the one on PATH, or an imitation: redlatchtest's, as a process.
#
# usage: TEST_FLAGS='-run TestName -v' scripts/quick.sh
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"
skip='/internal/testbed|/dashboards'
tables='TestOneIsInside|TestTheContextIsTheOwner|TestAWaiterIsWoken|TestLeases|TestTheEndOfAClient|TestALostCommandChangesNothing'
lacks='-' # what an imitation can't do
if [ -z "${REDLATCH_TEST_SERVER:-}" ] && ! has redis-server && ! has valkey-server; then
  say "no redis-server here: an imitation takes its place, which can't tell what only a real one does"
  mkdir -p .cache
  (cd redlatchtest && go build -o "$root/.cache/imitation" ./internal/imitation)
  export REDLATCH_TEST_SERVER="$root/.cache/imitation"
  skip="$skip|^$(go list .)\$" # the examples
  # Its clock stands still between two reads of a connection: commands sent together come at one time.
  lacks='TestOneIsInside|TestAWaiterIsWoken|TestTheContextIsTheOwner/.*/.*many_goroutines|TestModelIsWhatTheScriptsDo'
  # It doesn't count commands.
  lacks="$lacks|TestTheEndOfAClient/.*/(Shutdown_beside_a_hold_and|Shutdown_that_has_no_time|a_re-entry_whose)"
fi
mkdir -p .cache/test
log=$root/.cache/test/quick.log
units=$(go list ./... | grep -vE "$skip")
go test -c -o /dev/null ./integration/promises # one of the two that follow would compile the same again
set -f
# shellcheck disable=SC2086 # split into words on purpose
{
  go test -count=1 -parallel 16 -timeout 10m -run "$tables" -skip "$lacks" ${TEST_FLAGS:-} ./integration/promises 2>&1 &
  go test -count=1 -timeout 10m -skip "$lacks" ${TEST_FLAGS:-} $units 2>&1 && wait $! && echo 0 >"$log.status" || echo 1 >"$log.status"
  wait
} | tee "$log"
[ "$(cat "$log.status")" -eq 0 ] || exit 1
grep '^ok ' "$log" | grep -qv 'no tests to run' || stop "no test ran"
