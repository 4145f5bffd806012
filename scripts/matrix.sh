#!/bin/sh
# Runs the integration tests against every server that scripts/ensure-servers.sh has
# fetched, and prints a table.
#
# usage: SERVERS='redis-6.2.14 valkey-9.1.2' PACKAGES='. ./fair' TEST_FLAGS='-race' scripts/matrix.sh
#
# SERVERS names folders of .cache/servers (default: all), PACKAGES packages of the module
# integration (default: those whose outcome depends on the server, among them the tests with
# Redisson, if a JDK and Maven are there). TEST_FLAGS are flags for go test. Each pair has a log in
# .cache/matrix. What a test skips is listed at the end. All of it takes about two hours on two
# cores; an hour of that are the tests with Redisson.
set -eu
. "$(dirname "$0")/lib.sh"
cd "$root"
logs=$root/.cache/matrix
scripts/ensure-servers.sh --check || exit 1
servers=${SERVERS:-$(cd .cache/servers && for at in */server; do printf '%s\n' "${at%/server}"; done | sort -t- -k1,1 -k2,2V)}
packages=${PACKAGES:-}
if [ -z "$packages" ]; then
  packages=". ./fair ./readwrite ./multi ./servers/topology ./servers/connect"
  if scripts/ensure-java.sh --check; then packages="$packages ./redisson"; fi
fi
for server in $servers; do
  [ -x ".cache/servers/$server/server" ] && continue
  stop "no server $server in .cache/servers: nothing ran. There are:" .cache/servers/*
done
for package in $packages; do
  (cd integration && go list "$package" >/dev/null) && continue
  stop "no package $package in integration: nothing ran"
done
rm -rf "$logs"
mkdir -p "$logs"
set -f
# shellcheck disable=SC2086 # split into words on purpose
set -- ${TEST_FLAGS:-}

failed=0
table=
printf '== servers: %s; packages: %s\n' "$(printf '%s' "$servers" | tr '\n' ' ')" "$packages"
cd integration
for server in $servers; do
  row=$server
  for package in $packages; do
    name=$(basename "$package" | sed 's/^\.$/root/')
    log=$logs/$server.$name.log
    printf '== %s, %s\n' "$server" "$name"
    begin=$(date +%s)
    if REDLATCH_TEST_SERVER=$root/.cache/servers/$server/server \
      go test -count=1 -timeout 30m -v "$@" "$package" >"$log" 2>&1; then
      result=ok
    else
      result=FAIL
      failed=1
      grep -E '^ *--- FAIL|^panic:' "$log" || tail -n 20 "$log"
    fi
    skipped=$(grep -c '^ *--- SKIP' "$log" || true)
    if [ "$skipped" -gt 0 ]; then result="$result, $skipped skipped"; fi
    row="$row; $name: $result ($(($(date +%s) - begin)) s)"
  done
  table="$table$row
"
done
set +f
printf '\n== not tested, and why\n'
grep -h 'NOT TESTED' "$logs"/*.log | sed 's/^ *[a-z_]*\.go:[0-9]*: //' | sort | uniq -c || true
printf '\n== result by server\n%s' "$table"
exit "$failed"
