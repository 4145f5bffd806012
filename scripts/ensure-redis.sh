#!/bin/sh
# Makes sure that the tests find a Redis server program.
#
# usage: scripts/ensure-redis.sh [--optional]
#
# With --optional (make demo) nothing is asked and nothing fails: REDIS_URL names a
# server, or a program is found or can be installed without a password, or the
# caller does without.
#
# Does nothing where redis-server or valkey-server is on PATH, or
# REDLATCH_TEST_SERVER names a program. On Debian and Ubuntu it installs one
# otherwise, as root or through sudo; elsewhere it stops with the command to run.
#
# No system service is installed, started or touched: the program is the one
# that Debian ships in redis-tools under the name redis-check-rdb (it is one
# binary, which looks at its name). The package redis-server would add only a
# link and a service that starts at once. The link is made here instead, in
# .cache/bin, which the Makefile puts on PATH.
set -eu

root=$(cd "$(dirname "$0")/.." && pwd)
bin=$root/.cache/bin
PATH=$bin:$PATH

say() { printf 'ensure-redis: %s\n' "$*" >&2; }

optional=
if [ "${1:-}" = --optional ]; then
  optional=1
  if [ -n "${REDIS_URL:-}" ]; then
    exit 0
  fi
fi

# without REASON: the caller does without, if it can.
without() {
  if [ -n "$optional" ]; then
    say "no redis-server here; the demo takes a slower server of its own ($1)"
    exit 0
  fi
}

if [ -n "${REDLATCH_TEST_SERVER:-}" ] ||
  command -v redis-server >/dev/null 2>&1 || command -v valkey-server >/dev/null 2>&1; then
  exit 0
fi

# link PROGRAM NAME: makes NAME in .cache/bin if PROGRAM is a server by that name.
link() {
  program=$(command -v "$1") || return 1
  mkdir -p "$bin" || return 1
  ln -sf "$program" "$bin/$2" || return 1
  if "$bin/$2" --version </dev/null 2>/dev/null | grep -qi 'server v='; then
    say "$2 is $program"
    return 0
  fi
  rm -f "$bin/$2"
  return 1
}

if link redis-check-rdb redis-server || link valkey-check-rdb valkey-server; then
  exit 0
fi

if ! command -v apt-get >/dev/null 2>&1; then
  case $(uname -s) in
    Darwin) command="brew install redis" ;;
    *)
      if command -v dnf >/dev/null 2>&1; then
        command="sudo dnf install valkey"
      elif command -v apk >/dev/null 2>&1; then
        command="apk add redis"
      elif command -v pacman >/dev/null 2>&1; then
        command="sudo pacman -S valkey"
      elif command -v zypper >/dev/null 2>&1; then
        command="sudo zypper install redis"
      else
        command="the package manager of this system (package redis or valkey)"
      fi
      ;;
  esac
  without "install one with $command"
  say "the tests need redis-server or valkey-server on PATH. Install it with:"
  say "  $command"
  exit 1
fi

as_root=
if [ "$(id -u)" -ne 0 ]; then
  if [ -n "$optional" ]; then
    sudo -n true >/dev/null 2>&1 || without "install one with sudo apt-get install redis-tools"
    as_root="sudo -n"
  elif command -v sudo >/dev/null 2>&1; then
    as_root=sudo
  else
    say "the tests need redis-server. As root, run: apt-get install redis-tools; then again make test"
    exit 1
  fi
fi

# The demo does not wait for a dead mirror, or for another installation.
limits=
if [ -n "$optional" ]; then
  limits="-o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10 -o Acquire::Retries=0 -o DPkg::Lock::Timeout=5"
fi

say "installing redis-tools, which holds the server program"
# shellcheck disable=SC2086 # split into words on purpose
$as_root apt-get $limits update -q >&2 || without "apt-get update failed"
for package in redis-tools valkey-tools; do
  # shellcheck disable=SC2086
  if $as_root env DEBIAN_FRONTEND=noninteractive apt-get $limits install -q -y --no-install-recommends "$package" </dev/null >&2; then
    if link redis-check-rdb redis-server || link valkey-check-rdb valkey-server; then
      exit 0
    fi
  fi
done
without "no package of this system holds the server, or it can't be installed now"
say "no package of this system holds the server. Install redis-server or valkey-server yourself and run make test again"
exit 1
