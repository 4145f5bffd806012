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
# otherwise, as root or through sudo; elsewhere it stops with what to install.
#
# No system service is installed, started or touched: the program is the one
# that Debian ships in redis-tools under the name redis-check-rdb (it is one
# binary, which looks at its name). The package redis-server would add only a
# link and a service that starts at once. The link is made here instead, in
# .cache/bin, which the Makefile puts on PATH.
set -eu
. "$(dirname "$0")/lib.sh"

optional=
if [ "${1:-}" = --optional ]; then
  optional=1
  [ -z "${REDIS_URL:-}" ] || exit 0
fi

# without REASON: the caller does without, if it can.
without() {
  if [ -n "$optional" ]; then
    say "no redis-server here; the demo takes a slower server of its own ($1)"
    exit 0
  fi
  say "$1"
  exit 1
}

if [ -n "${REDLATCH_TEST_SERVER:-}" ] || has redis-server || has valkey-server; then exit 0; fi

# link PROGRAM NAME: makes NAME in .cache/bin if PROGRAM is a server by that name.
link() {
  program=$(command -v "$1") || return 1
  mkdir -p "$bin" && ln -sf "$program" "$bin/$2" || return 1
  if "$bin/$2" --version </dev/null 2>/dev/null | grep -qi 'server v='; then
    say "$2 is $program"
    return 0
  fi
  rm -f "$bin/$2"
  return 1
}
linked() { link redis-check-rdb redis-server || link valkey-check-rdb valkey-server; }

if linked; then exit 0; fi
has apt-get || without "install redis-server or valkey-server with the package manager of this system (macOS: brew install redis)"

# The demo waits for no password, no dead mirror and no other installation.
limits=
if [ -n "$optional" ] && [ "$(id -u)" -ne 0 ]; then
  sudo -n true >/dev/null 2>&1 || without "install one with sudo apt-get install redis-tools"
fi
if [ -n "$optional" ]; then
  limits="-o Acquire::http::Timeout=10 -o Acquire::https::Timeout=10 -o Acquire::Retries=0 -o DPkg::Lock::Timeout=5"
fi
become_root "the tests need redis-server. As root, run: apt-get install redis-tools; then again make test"

say "installing redis-tools, which holds the server program"
# shellcheck disable=SC2086 # split into words on purpose
$as_root apt-get $limits update -q >&2 || without "apt-get update failed"
for package in redis-tools valkey-tools; do
  # shellcheck disable=SC2086
  if $as_root env DEBIAN_FRONTEND=noninteractive apt-get $limits install -q -y --no-install-recommends "$package" </dev/null >&2 && linked; then
    exit 0
  fi
done
without "no package of this system holds the server, or it can't be installed now: install redis-server or valkey-server yourself"
