#!/bin/sh
# Makes sure that a JDK (17 or later) and Maven are there, which the tests with
# Redisson need (integration/redisson).
#
# usage: scripts/ensure-java.sh [--check]
#
# Does nothing where both are on PATH. On Debian and Ubuntu it installs them
# otherwise, as root or through sudo; elsewhere it stops with what to install.
# With --check it installs nothing: it says loudly what will not be tested, and
# its status is 1, when something is missing or REDLATCH_INTEROP=skip leaves those
# tests out.
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
if [ "${1:-}" = --check ]; then
  [ "${REDLATCH_INTEROP:-}" != skip ] || why="REDLATCH_INTEROP=skip"
  [ -z "$why" ] || untested "Redisson and redlatch on the same locks ($why)" \
    "make interop runs these tests, and installs what they need on Debian and Ubuntu"
  exit 0
fi
[ -n "$why" ] || exit 0
has apt-get || {
  say "$why. The tests with Redisson need a JDK (17 or later) and Maven on PATH (macOS: brew install openjdk maven)"
  exit 1
}
apt_install default-jdk-headless maven
why=$(missing)
[ -z "$why" ] || { say "installed them, but $why"; exit 1; }
