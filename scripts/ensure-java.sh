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

say() { printf 'ensure-java: %s\n' "$*" >&2; }

missing() {
  for program in java javac mvn; do
    command -v "$program" >/dev/null 2>&1 || { echo "$program is not on PATH"; return; }
  done
  # "javac 17.0.15", "javac 21-ea", and "javac 1.8.0_402" of old.
  version=$(javac -version 2>&1 | sed -n 's/^javac \([0-9]*\).*/\1/p')
  [ "${version:-0}" -ge 17 ] || echo "javac is older than 17"
}

why=$(missing)

if [ "${1:-}" = --check ]; then
  [ "${REDLATCH_INTEROP:-}" != skip ] || why="REDLATCH_INTEROP=skip"
  [ -n "$why" ] || exit 0
  printf '\n!!!! NOT TESTED: Redisson and redlatch on the same locks (%s).\n' "$why" >&2
  printf '!!!! make interop runs these tests, and installs what they need on Debian and Ubuntu.\n\n' >&2
  exit 1
fi

[ -n "$why" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  say "$why. The tests with Redisson need a JDK (17 or later) and Maven on PATH:"
  case $(uname -s) in
    Darwin) say "  brew install openjdk maven" ;;
    *) say "  install them with the package manager of this system" ;;
  esac
  exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    say "$why. As root, run: apt-get install default-jdk-headless maven"
    exit 1
  fi
  as_root=sudo
fi

say "$why; installing default-jdk-headless and maven"
$as_root apt-get update -q >&2
$as_root env DEBIAN_FRONTEND=noninteractive apt-get install -q -y --no-install-recommends \
  default-jdk-headless maven </dev/null >&2

why=$(missing)
if [ -n "$why" ]; then
  say "installed them, but $why"
  exit 1
fi
