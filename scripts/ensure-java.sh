#!/bin/sh
# Makes sure that a JDK (17 or later) and Maven are there, which the tests with Redisson need
# (integration/redisson). With --check, REDLATCH_INTEROP=skip is as good as none.
#
# usage: scripts/ensure-java.sh [--check]
set -eu
. "$(dirname "$0")/lib.sh"

missing() {
  for program in java javac mvn; do
    has "$program" || { echo "$program is not on PATH"; return; }
  done
  # "javac 17.0.15", "javac 21-ea", and "javac 1.8.0_402" of old.
  version=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
  [ "${version:-0}" -ge 17 ] || echo "javac is older than 17"
}

why=$(missing)
if [ "${1:-}" = --check ] && [ "${REDLATCH_INTEROP:-}" = skip ]; then why="REDLATCH_INTEROP=skip"; fi
[ -n "$why" ] || exit 0
untested "${1:-}" "Redisson and redlatch on the same locks ($why)" \
  "make interop runs these tests, and installs what they need on Debian and Ubuntu"
has apt-get ||
  stop "$why. The tests with Redisson need a JDK (17 or later) and Maven on PATH (macOS: brew install openjdk maven)"
apt_install default-jdk-headless maven
why=$(missing)
[ -z "$why" ] || stop "installed them, but $why"
